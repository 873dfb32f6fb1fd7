"""Asking twice creates once: the ``Idempotency-Key`` header on creations."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.errors import Problem, Refused
from quotas.models import IdempotencyKey, User

KEPT_FOR = timedelta(hours=24)
SHAPE = re.compile(r"[\x21-\x7e]{1,64}")


def key_of(request: Request) -> str | None:
    """The key that the caller gives; raises ValidationError for one of another shape."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not SHAPE.fullmatch(key):
        problem = serializers.ErrorDetail("1 to 64 printable characters without blanks.", code="shape")
        raise serializers.ValidationError({"Idempotency-Key": [problem]})
    return key


def once(request: Request, key: str, work: Callable[[], Response], *, keep: Callable[[Any], Any]) -> Response:
    """The answer of ``work``, or the kept answer of an earlier call with the same key and body.

    The key is taken in the transaction of the work: a second caller waits for the first, and a refusal keeps
    nothing. ``keep`` says what of the answer may be stored.
    """
    with transaction.atomic():
        row = take(request, key)
        if row is None:
            return kept_answer(request, key)
        response = work()
        row.status, row.answer = response.status_code, keep(response.data)
        row.save(update_fields=["status", "answer"])
        return response


def take(request: Request, key: str) -> IdempotencyKey | None:
    """The key's new row, or None when the key was used before."""
    mine = IdempotencyKey.objects.filter(user=_person(request))
    mine.filter(created_at__lt=timezone.now() - KEPT_FOR).delete()
    try:
        with transaction.atomic():
            return IdempotencyKey.objects.create(user=_person(request), key=key, digest=digest_of(request))
    except IntegrityError:
        return None


def kept_answer(request: Request, key: str) -> Response:
    row = IdempotencyKey.objects.get(user=_person(request), key=key)
    if row.digest != digest_of(request):
        raise Refused([Problem("Idempotency-Key", "conflict", {"key": key})])
    return Response(row.answer, status=row.status, headers={"Idempotency-Replayed": "true"})


def digest_of(request: Request) -> str:
    """What was asked, by whichever token of the user."""
    asked = [request.method, request.get_full_path(), request.data, request.auth.pk if request.auth else None]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _person(request: Request) -> User:
    if not isinstance(request.user, User):
        raise TypeError("a creation without a person got past the permission check")
    return request.user
