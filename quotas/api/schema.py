"""How the calls describe themselves in OpenAPI: headers, pages, refusals, and the codes as enums."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework.permissions import SAFE_METHODS

from quotas.api.problems import CONTENT_TYPE
from quotas.api.queries import ListQuery
from quotas.api.serializers import ProblemBody
from quotas.api.views import Door
from quotas.words import REFUSALS

IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": r'^(\*|"[0-9]{1,9}")$'},
    OpenApiParameter.HEADER,
    description="The `ETag` that the change is based on; another one in force is answered with 412.",
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[!-~]{1,64}$"},
    OpenApiParameter.HEADER,
    description="Asking again with the same key and body within 24 hours gives the first answer and creates nothing.",
)
REFUSED = {
    "400": "The body is not JSON.",
    "401": "No valid token and no session.",
    "403": "The permission that the problem names is missing.",
    "404": "Nothing here, or nothing that the caller may see.",
    "409": "It changed or stands in use meanwhile.",
    "412": "`If-Match` names a revision that is no longer in force.",
    "413": "The body is too large.",
    "415": "The body is not `application/json`.",
    "422": "A parameter or the body is refused; each problem names its field.",
    "429": "Too many requests; `Retry-After` says when to come back.",
    "503": "The database does not answer.",
}
READING = ("401", "403", "404", "422", "429", "503")
CHANGING = (*READING, "409")
WITH_BODY = ("400", "413", "415")


class ApiSchema(AutoSchema):
    """Reads what a ``Door`` says about its actions."""

    def get_override_parameters(self) -> list[Any]:
        door = self._door
        query = door.query_class()()
        found: list[Any] = [query] if query.fields else []
        if door.action in door.matches:
            found.append(IF_MATCH)
        if door.action in door.creates:
            found.append(IDEMPOTENCY_KEY)
        return found

    def get_operation_id(self) -> str:
        return f"{self._door.basename}_{self._door.action}"

    def get_tags(self) -> list[str]:
        return [str(self._door.basename)]

    @property
    def _door(self) -> Door:
        if not isinstance(self.view, Door):
            raise TypeError(f"{self.view} is no door of the API")
        return self.view

    def _is_list_view(self, serializer: Any = None) -> bool:
        return issubclass(self._door.query_class(), ListQuery)

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        for answer in bodies.values():
            if "text/csv" in answer.get("content", {}):
                answer["content"]["text/csv"] = {"schema": {"type": "string"}}
        problem = {CONTENT_TYPE: {"schema": self.resolve_serializer(ProblemBody, "response").ref}}
        return bodies | {code: {"description": REFUSED[code], "content": problem} for code in self._refusals()}

    def _refusals(self) -> list[str]:
        codes = set(READING if self.method in SAFE_METHODS else CHANGING)
        if self.method not in (*SAFE_METHODS, "DELETE"):
            codes.update(WITH_BODY)
        if self._door.action in self._door.matches:
            codes.add("412")
        return sorted(codes)


def publish_rules(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Bodies take no unknown fields, and the stable codes are listed as enums."""
    schemas = result["components"]["schemas"]
    for name, schema in schemas.items():
        if name.endswith("Request") and schema.get("type") == "object":
            schema.setdefault("additionalProperties", False)
    schemas["Refusal"] = {"type": "string", "enum": sorted(REFUSALS), "description": "Codes of refusals."}
    return result
