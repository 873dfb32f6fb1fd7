"""Showing a preview: names for numbers, and only what the caller may see."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from quotas.models import NodePool, Quota, User
from quotas.permissions import visible_quotas
from scheduler.previews import Book, Preview, Touched
from workloads.selectors import visible_workloads

TOUCHED = ("preempted", "shrunk", "moved", "starts", "waits")


def shown_preview(actor: User, found: Preview, new: Iterable[int] = ()) -> dict[str, Any]:
    """The parts about work and quotas that the actor sees; ``new``: work that is there only in the preview."""
    quotas = visible_quotas(actor).in_bulk()
    touched = {name: getattr(found, name) for name in TOUCHED}
    ids = {one.id for group in touched.values() for one in group}
    visible = set(visible_workloads(actor).filter(pk__in=ids).values_list("pk", flat=True)) | set(new)
    pools = NodePool.objects.in_bulk({book.pool_id for book in found.after})
    return {
        **{name: [_work(one, quotas) for one in group if one.id in visible] for name, group in touched.items()},
        "before": [_book(book, quotas, pools) for book in found.before if book.quota_id in quotas],
        "after": [_book(book, quotas, pools) for book in found.after if book.quota_id in quotas],
    }


def _work(one: Touched, quotas: dict[int, Quota]) -> dict[str, Any]:
    quota = quotas.get(one.quota_id) or Quota.objects.get(pk=one.quota_id)
    return {"id": one.id, "name": one.name, "quota": quota, "gpu_milli": one.gpu_milli, "code": one.code}


def _book(book: Book, quotas: dict[int, Quota], pools: dict[int, NodePool]) -> dict[str, Any]:
    numbers = {name: value for name, value in dataclasses.asdict(book).items() if not name.endswith("_id")}
    return {**numbers, "quota": quotas[book.quota_id], "pool": pools[book.pool_id]}
