"""The frame of every viewset: parse, call the service, answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from rest_framework import serializers
from rest_framework.permissions import SAFE_METHODS
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from quotas.api import idempotency
from quotas.api.pages import Pages, page_of
from quotas.api.queries import MOST_ROWS_CSV, ChangeQuery, ListQuery, Query
from quotas.api.renderers import CSVRenderer
from quotas.api.serializers import Read, Write
from quotas.errors import refuse
from quotas.models import User

ETAG = re.compile(r'"([0-9]{1,9})"')


class Door(GenericViewSet[Any]):
    """A group of calls about one kind of thing.

    ``reads`` is the serializer of its answers; ``list_query`` the parameters of its list; ``queries`` those of
    other calls by action. Class attributes ``creates`` and ``matches`` name the actions that take an
    ``Idempotency-Key`` and an ``If-Match``; the schema says so too.
    """

    lookup_value_converter = "int"
    pagination_class = Pages
    metadata_class = None
    reads: ClassVar[type[Read]]
    list_query: ClassVar[type[ListQuery]] = ListQuery
    queries: ClassVar[dict[str, type[Query]]] = {}
    creates: ClassVar[frozenset[str]] = frozenset({"create"})
    matches: ClassVar[frozenset[str]] = frozenset()
    query: dict[str, Any]

    @property
    def actor(self) -> User:
        user = self.request.user
        if not isinstance(user, User):
            raise TypeError("a call without a person got past the permission check")
        return user

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.action:  # without one, the method is not allowed and says so
            self.query = self.query_class().read(request.query_params)

    def query_class(self) -> type[Query]:
        """The parameters that the current action takes."""
        if self.action == "list":
            return self.queries.get("list", self.list_query)
        fallback = Query if self.request.method in SAFE_METHODS else ChangeQuery
        return self.queries.get(self.action or "", fallback)

    def get_renderers(self) -> list[BaseRenderer]:
        is_list = issubclass(self.query_class(), ListQuery) if self.action else False
        return [JSONRenderer(), CSVRenderer()] if is_list else [JSONRenderer()]

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[BaseRenderer, str]:
        """``?format=csv`` counts like ``Accept: text/csv``; what else stands there the query judges."""
        for renderer in self.get_renderers():
            if isinstance(renderer, CSVRenderer) and request.query_params.get("format") == renderer.format:
                return renderer, renderer.media_type
        renderer, media_type = super().perform_content_negotiation(request, force)
        return renderer, media_type

    def get_serializer_class(self) -> type[Any]:
        return self.reads

    # --- in ---------------------------------------------------------------------------------------------

    @property
    def body(self) -> dict[str, Any]:
        """A copy of the body's fields as they came, for a spec to judge; raises Refused if it is something else."""
        data = self.request.data
        if not isinstance(data, Mapping):
            raise refuse("", "invalid", reason="type", wanted="JSON object")
        return dict(data)

    def given(self, shape: type[Write], **kwargs: Any) -> dict[str, Any]:
        """The body, checked against the shape; raises ValidationError."""
        body = shape(data=self.request.data, context=self.get_serializer_context(), **kwargs)
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)

    @property
    def revision(self) -> int | None:
        """The revision that ``If-Match`` asks for; None: the caller does not mind."""
        header = self.request.headers.get("If-Match")
        if header is None or header.strip() == "*":
            return None
        shape = ETAG.fullmatch(header.strip())
        if shape is None:
            problem = serializers.ErrorDetail('A revision in quotes, such as "7".', code="shape")
            raise serializers.ValidationError({"If-Match": [problem]})
        return int(shape.group(1))

    # --- out --------------------------------------------------------------------------------------------

    def shown(self, thing: Any, reads: type[Read] | None = None) -> Any:
        """The thing as plain data."""
        return (reads or self.reads)(thing, context=self.get_serializer_context()).data

    def answer(self, thing: Any, status: int = 200, reads: type[Read] | None = None) -> Response:
        """The thing, with its revision as ``ETag`` where it has one."""
        revision = getattr(thing, "revision", None)
        headers = {"ETag": f'"{revision}"'} if isinstance(revision, int) else {}
        return Response(self.shown(thing, reads), status=status, headers=headers)

    def listed(
        self,
        rows: QuerySet[Any],
        reads: type[Read] | None = None,
        prepare: Callable[[list[Any]], Iterable[Any]] = list,
    ) -> Response:
        """A page of the rows that the query asks for; ``prepare`` may read more about the rows of the page."""
        shape = self.query_class()
        if not issubclass(shape, ListQuery):
            raise TypeError(f"{self.action} has no list parameters")
        rows = self.filtered(rows, shape)
        order = self.query["ordering"]
        is_csv = isinstance(self.request.accepted_renderer, CSVRenderer)
        found, cursor = page_of(
            rows,
            field=shape.orders[order.lstrip("-")],
            descending=order.startswith("-"),
            limit=MOST_ROWS_CSV if is_csv else self.query["limit"],
            cursor=self.query.get("cursor"),
        )
        items = (reads or self.reads)(prepare(found), many=True, context=self.get_serializer_context()).data
        return Response({"items": items, "next": cursor})

    def filtered(self, rows: QuerySet[Any], shape: type[ListQuery]) -> QuerySet[Any]:
        asked = {look: self.query[name] for name, look in shape.lookups.items() if name in self.query}
        return rows.filter(Q(**asked)) if asked else rows

    def changed(self, work: Callable[[], Any], status: int = 200, reads: type[Read] | None = None) -> Response:
        """The answer after the change; with ``dry_run`` everything is done, checked and taken back."""
        with transaction.atomic():
            thing = work()
            response = Response(status=204) if thing is None else self.answer(thing, status, reads)
            if self.query["dry_run"]:
                take_back()
                response["Dry-Run"] = "true"
        return response

    def created(
        self, work: Callable[[], Any], reads: type[Read] | None = None, keep: Callable[[Any], Any] = dict
    ) -> Response:
        """The answer after a creation, which an ``Idempotency-Key`` makes repeatable."""
        key = idempotency.key_of(self.request)
        if key is None or self.query["dry_run"]:
            return self.changed(work, 201, reads)
        return idempotency.once(self.request, key, lambda: self.changed(work, 201, reads), keep=keep)


def take_back() -> None:
    """Undo the open transaction after its late checks had their say."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    transaction.set_rollback(True)
