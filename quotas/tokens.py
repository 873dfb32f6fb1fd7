"""The secrets of API tokens: made once, shown once, kept only as a hash."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from django.utils import timezone

from quotas.models import Token

SECRET = re.compile(r"tg_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")


def new_secret() -> tuple[str, str, str]:
    """Prefix, the whole secret (256 random bits) and its digest."""
    prefix = secrets.token_hex(4)
    secret = f"tg_{prefix}_{secrets.token_urlsafe(32)}"
    return prefix, secret, digest_of(secret)


def digest_of(secret: str) -> str:
    """A plain hash will do: the secret is random, so there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


def find_token(secret: str) -> Token | None:
    """The live token of an active user with this secret, its user and workspace read along; one query."""
    shape = SECRET.fullmatch(secret)
    if shape is None:
        return None
    token = Token.objects.select_related("user", "workspace").filter(prefix=shape.group(1)).first()
    if token is None or not hmac.compare_digest(token.digest, digest_of(secret)):
        return None
    return token if token.is_live(timezone.now()) and token.user.is_active else None
