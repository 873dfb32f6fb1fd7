"""What the tests' identity provider says of people."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from oauth2_provider.oauth2_validators import OAuth2Validator


class Claims(OAuth2Validator):  # type: ignore[misc]  # a base class without types
    """Name, address and groups, as the folder says at this moment."""

    oidc_claim_scope = None

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        from tests.sso.provider import people

        facts = people(settings.PROVIDER_FOLDER)[request.user.username]
        return {"preferred_username": request.user.username, "email": facts["email"], "groups": facts["groups"]}
