"""The audit: who did what to what, through which door. Written next to the change, in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import models

from quotas.actors import Actor, System
from quotas.models import AuditEvent

SECRET_WORDS = ("password", "secret", "token", "digest", "environment")
HIDDEN = "(hidden)"


def actor_name(actor: Actor) -> str:
    """How the actor is named in events: the login name, or what the system part is called."""
    return actor.name if isinstance(actor, System) else actor.get_username()


def record(
    *,
    actor: Actor,
    verb: str,
    thing: models.Model | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    workspace_id: int | None = None,
    facts: Mapping[str, Any] | None = None,
    result: str = "done",
) -> AuditEvent:
    """Write one entry. Values whose names speak of secrets are hidden."""
    return AuditEvent.objects.create(
        **entry(actor, verb, thing, before, after, workspace_id=workspace_id, facts=facts, result=result)
    )


def record_many(*, actor: Actor, verb: str, things: Sequence[models.Model], after: Sequence[Mapping[str, Any]]) -> None:
    """One entry for each thing, in one statement."""
    AuditEvent.objects.bulk_create(
        AuditEvent(**entry(actor, verb, thing, None, state, workspace_id=getattr(thing, "workspace_id", None)))
        for thing, state in zip(things, after, strict=True)
    )


def entry(
    actor: Actor,
    verb: str,
    thing: models.Model | None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    workspace_id: int | None = None,
    facts: Mapping[str, Any] | None = None,
    result: str = "done",
) -> dict[str, Any]:
    """The fields of an entry."""
    return {
        **_who(actor),
        "verb": verb,
        "result": result,
        "object_type": thing._meta.model_name if thing is not None else "",
        "object_id": thing.pk if thing is not None else None,
        "object_name": str(thing)[:253] if thing is not None else "",
        "workspace_id": workspace_id,
        "before": without_secrets(before or {}),
        "after": without_secrets(after or {}),
        "facts": without_secrets(facts or {}),
    }


def _who(actor: Actor) -> dict[str, Any]:
    origin = actor.origin
    is_system = isinstance(actor, System)
    return {
        "actor": None if isinstance(actor, System) else actor,
        "actor_name": actor_name(actor),
        "door": origin.door if origin else ("system" if is_system else "command"),
        "address": origin.address if origin else None,
        "token_prefix": actor.token.prefix if not isinstance(actor, System) and actor.token else "",
    }


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values with those of telling names replaced, at any depth of mappings."""
    return {key: _shown(key, value) for key, value in values.items()}


def _shown(key: str, value: Any) -> Any:
    if value and any(word in key.lower() for word in SECRET_WORDS):
        return HIDDEN
    if isinstance(value, Mapping):
        return without_secrets(value)
    return value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides, reduced to the keys that differ."""
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return {key: before.get(key) for key in keys}, {key: after.get(key) for key in keys}
