"""Workloads: submission, everything that can be done to one, and why it waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from quotas.api.finding import named
from quotas.api.problems import answer_for, items_of
from quotas.api.views import Door
from quotas.errors import DomainError, Problem, Problems, refuse
from quotas.models import Quota, User
from quotas.permissions import PERMISSIONS, allowed, grants_of, visible_quotas
from workloads.api.bodies import (
    ActBody,
    BulkBody,
    CloneBody,
    ExtendBody,
    MoveBody,
    PriorityBody,
    ReorderBody,
    RulesBody,
    ScaleWorkloadBody,
    VisibilityBody,
    WorkloadBody,
)
from workloads.api.queries import AllocationQuery, EventQuery, WorkloadQuery
from workloads.api.shapes import (
    ActedRead,
    AllocationRead,
    EventRead,
    RulesRead,
    SubmittedRead,
    WhyRead,
    WorkloadRead,
    WorkloadReadWhole,
)
from workloads.models import Allocation, Event, Workload
from workloads.seeing import facts_for, reason_for
from workloads.selectors import place_in_queue, visible_workloads
from workloads.services import (
    change_priority,
    change_visibility,
    clone_workload,
    delete_workload,
    extend_workload,
    hold_workload,
    move_workload,
    release_workload,
    reorder_workload,
    restart_workload,
    save_rules,
    scale_workload,
    stop_workload,
    submit_workload,
    submit_workloads,
)
from workloads.specs import BULK_MAX, WorkloadReader, WorkloadSpec, read_rules

ACTS: dict[str, Callable[..., object]] = {
    "stop": stop_workload,
    "delete": delete_workload,
    "hold": hold_workload,
    "release": release_workload,
    "restart": restart_workload,
    "priority": change_priority,
    "move": move_workload,
}
RIGHTS = tuple(name for name in PERMISSIONS if name.startswith(("workload.", "queue.reorder")))
LIVE_ROWS = Prefetch("allocations", Allocation.objects.filter(ended_at__isnull=True), to_attr="live_allocations")


def workload_rows(actor: User) -> QuerySet[Workload]:
    """Workloads that the actor may read, with all that their shape shows; three queries a page."""
    rows = visible_workloads(actor).select_related("cluster", "workspace", "quota", "owner", "verdict")
    return rows.prefetch_related(LIVE_ROWS)


class WorkloadDoor(Door):
    """Training jobs, notebooks and services."""

    queryset = Workload.objects.none()
    reads = WorkloadRead
    list_query = WorkloadQuery
    queries: ClassVar = {"events": EventQuery, "allocations": AllocationQuery}
    creates: ClassVar = frozenset({"create", "bulk", "clone"})
    matches: ClassVar = frozenset({"set_rules"})

    def rows(self) -> QuerySet[Workload]:
        return workload_rows(self.actor)

    def one(self, pk: int) -> Workload:
        return get_object_or_404(self.rows(), pk=pk)

    def rights(self, workload: Workload) -> list[str]:
        grants = grants_of(self.actor)
        return [name for name in RIGHTS if allowed(self.actor, name, workload, grants=grants)]

    @cached_property
    def seen(self) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Takes facts to what the caller may read of them."""
        return facts_for(self.actor)

    def acted(self, act: Callable[..., object], workload: Workload, **kwargs: Any) -> Response:
        """The workload after something was done to it."""

        def done() -> Workload:
            act(actor=self.actor, workload=workload, **kwargs)
            return self.one(workload.pk)

        return self.changed(done, reads=WorkloadReadWhole)

    # --- reading ----------------------------------------------------------------------------------------

    @extend_schema(responses=WorkloadRead)
    def list(self, request: Request) -> Response:
        """Workloads that the caller may read, newest first."""
        return self.listed(self.rows())

    @extend_schema(responses=WorkloadReadWhole)
    def retrieve(self, request: Request, pk: int) -> Response:
        """One workload with everything it was submitted with."""
        return self.answer(self.one(pk), reads=WorkloadReadWhole)

    @extend_schema(responses=WhyRead)
    @action(detail=True)
    def why(self, request: Request, pk: int) -> Response:
        """Why it waits, what would let it run, its place in the queue, and when it may start."""
        return Response(self.shown(why_of(self.actor, self.one(pk)), WhyRead))

    @extend_schema(responses=EventRead(many=True))
    @action(detail=True)
    def events(self, request: Request, pk: int) -> Response:
        """The time line, oldest first."""
        return self.listed(Event.objects.filter(workload=self.one(pk)), EventRead)

    @extend_schema(responses=AllocationRead(many=True))
    @action(detail=True)
    def allocations(self, request: Request, pk: int) -> Response:
        """Where its replicas are and were, newest first."""
        found = Allocation.objects.filter(workload=self.one(pk)).select_related("pool", "node")
        return self.listed(found, AllocationRead)

    # --- submitting -------------------------------------------------------------------------------------

    @extend_schema(request=WorkloadBody, responses={201: WorkloadReadWhole})
    def create(self, request: Request) -> Response:
        """Submit a workload."""
        spec = WorkloadSpec.from_mapping(self.body, actor=self.actor)
        return self.created(lambda: self.one(submit_workload(actor=self.actor, spec=spec).pk), WorkloadReadWhole)

    @extend_schema(request=BulkBody, responses={201: SubmittedRead})
    @action(detail=False, methods=["post"])
    def bulk(self, request: Request) -> Response:
        """Submit up to 500 workloads: all of them are taken, or none."""
        specs = self._specs(self.body)
        return self.created(lambda: {"workloads": submit_workloads(actor=self.actor, specs=specs)}, SubmittedRead)

    def _specs(self, body: Mapping[str, Any]) -> Sequence[WorkloadSpec]:
        items = body.get("workloads")
        if set(body) != {"workloads"} or not isinstance(items, list) or not 0 < len(items) <= BULK_MAX:
            raise refuse("workloads", "invalid", reason="type", wanted=f"1 to {BULK_MAX} submissions, and nothing else")
        problems, reader = Problems(), WorkloadReader(self.actor)
        found = [
            problems.take(f"workloads.{index}", partial(self._spec, reader, item)) for index, item in enumerate(items)
        ]
        problems.raise_any()
        return [spec for spec in found if spec is not None]

    def _spec(self, reader: WorkloadReader, item: object) -> WorkloadSpec:
        if not isinstance(item, Mapping):
            raise refuse("", "invalid", reason="type", wanted="JSON object")
        return reader.read(item)

    @extend_schema(request=CloneBody, responses={201: WorkloadReadWhole})
    @action(detail=True, methods=["post"])
    def clone(self, request: Request, pk: int) -> Response:
        """Submit the same again under another name."""
        workload, body = self.one(pk), self.given(CloneBody)
        return self.created(
            lambda: self.one(clone_workload(actor=self.actor, workload=workload, name=body["name"]).pk),
            WorkloadReadWhole,
        )

    # --- acting -----------------------------------------------------------------------------------------

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Stop the workload if it lives, and hide it."""
        workload = self.one(pk)
        return self.changed(lambda: delete_workload(actor=self.actor, workload=workload))

    @extend_schema(request=None, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: int) -> Response:
        """Ask for it to stop; the engine confirms later."""
        return self.acted(stop_workload, self.one(pk))

    @extend_schema(request=None, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, pk: int) -> Response:
        """Keep waiting work from starting until it is released."""
        return self.acted(hold_workload, self.one(pk))

    @extend_schema(request=None, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: int) -> Response:
        """Let held work start again."""
        return self.acted(release_workload, self.one(pk))

    @extend_schema(request=None, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, pk: int) -> Response:
        """Run it again from its beginning."""
        return self.acted(restart_workload, self.one(pk))

    @extend_schema(request=PriorityBody, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def priority(self, request: Request, pk: int) -> Response:
        """Change the priority, also while it runs."""
        return self.acted(change_priority, self.one(pk), **self.given(PriorityBody))

    @extend_schema(request=ExtendBody, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: int) -> Response:
        """Let work that has a limit of time run longer."""
        return self.acted(extend_workload, self.one(pk), **self.given(ExtendBody))

    @extend_schema(request=VisibilityBody, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def visibility(self, request: Request, pk: int) -> Response:
        """Share it in the workspace, or keep it private."""
        return self.acted(change_visibility, self.one(pk), **self.given(VisibilityBody))

    @extend_schema(request=ScaleWorkloadBody, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def scale(self, request: Request, pk: int) -> Response:
        """Set the size of a service or of elastic training; it holds until the next rule fires."""
        return self.acted(scale_workload, self.one(pk), **self.given(ScaleWorkloadBody))

    @extend_schema(request=MoveBody, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: int) -> Response:
        """Let waiting work wait in another quota of its workspace."""
        workload, reference = self.one(pk), self.given(MoveBody)["quota"]
        quota: Quota = named(visible_quotas(self.actor), reference, field="quota")
        return self.acted(move_workload, workload, quota=quota)

    @extend_schema(request=ReorderBody, responses=WorkloadReadWhole)
    @action(detail=True, methods=["post"])
    def reorder(self, request: Request, pk: int) -> Response:
        """Put waiting work directly before or after another of the same quota and priority."""
        workload = self.one(pk)
        ((side, reference),) = self.given(ReorderBody).items()
        other = named(visible_workloads(self.actor), reference, field=side)
        return self.acted(reorder_workload, workload, **{side: other})

    @extend_schema(request=ActBody, responses=ActedRead)
    @action(detail=False, methods=["post"])
    def act(self, request: Request) -> Response:
        """Do one thing to several workloads, each by itself: what is refused for one is done for the others."""
        body = self.given(ActBody)
        extra = {"priority": body["priority"]} if body["action"] == "priority" else {}
        if body["action"] == "move":
            extra = {"quota": named(visible_quotas(self.actor), body["quota"], field="quota")}
        act = partial(ACTS[body["action"]], actor=self.actor, **extra)
        return self.changed(
            lambda: {"results": [self._one_of_many(act, pk) for pk in dict.fromkeys(body["workloads"])]},
            reads=ActedRead,
        )

    def _one_of_many(self, act: Callable[..., object], pk: int) -> dict[str, Any]:
        try:
            with transaction.atomic():
                act(workload=self.one(pk))
        except (DomainError, Http404) as error:
            found = answer_for(error, has_precondition=False)
            problems = found[1] if found is not None else []
            return {"id": pk, "done": False, "problems": items_of(problems or [Problem("", "not_found")])}
        return {"id": pk, "done": True, "problems": []}

    # --- scaling rules ----------------------------------------------------------------------------------

    @extend_schema(responses=RulesRead)
    @action(detail=True)
    def rules(self, request: Request, pk: int) -> Response:
        """The scaling rules of a service."""
        return Response(self.shown(self.one(pk), RulesRead))

    @extend_schema(request=RulesBody, responses=RulesRead)
    @rules.mapping.put
    def set_rules(self, request: Request, pk: int) -> Response:
        """Put these scaling rules in the place of those before; the level applies at once."""
        workload = self.one(pk)
        rules = read_rules(self.given(RulesBody)["rules"])

        def saved() -> Workload:
            save_rules(actor=self.actor, workload=workload, rules=rules, revision=self.revision)
            return self.one(pk)

        return self.changed(saved, reads=RulesRead)


def why_of(actor: User, workload: Workload) -> dict[str, Any]:
    """The verdict as the actor may read it; places in the queue count only what it sees."""
    verdict = getattr(workload, "verdict", None)
    if verdict is None or workload.is_final:
        return {"state": workload.state, "code": None}
    return {
        "state": workload.state,
        "code": verdict.code,
        "facts": reason_for(actor)(verdict.code, verdict.facts),
        "would_unblock": facts_for(actor)(verdict.would_unblock),
        "position": place_in_queue(actor=actor, workload=workload),
        "since": verdict.since,
        "earliest_at": verdict.earliest_at,
        "latest_at": verdict.latest_at,
        "sureness": verdict.sureness,
    }
