"""Scaling rules of services: all of them, and adding, editing, removing one with a look at what follows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.charts import StepPicture, step_picture
from console.forms.workloads import RuleForm, rule_initial
from console.frame import current_cluster
from console.views.base import Crumb, FormPage, HtmxRequest, done, paged
from quotas.permissions import require
from workloads import schedules
from workloads.models import FINAL, Kind, ScalingRule, Workload
from workloads.selectors import get_workload, visible_workloads
from workloads.services import save_rules
from workloads.specs import RuleSpec

NEXT_RUNS = 5
DAY = timedelta(days=1)
MOST_STEPS = 200


@login_required
@require_safe
def rule_list(request: HtmxRequest) -> HttpResponse:
    """All rules of services in the cluster that the person may see."""
    services = visible_workloads(request.user).filter(cluster=current_cluster(request), kind=Kind.SERVICE)
    rules = ScalingRule.objects.filter(workload__in=services.exclude(state__in=FINAL)).select_related(
        "workload__workspace", "workload__quota"
    )
    context = {
        "page": paged(request, rules.order_by("workload__name", "id")),
        "services": services.exclude(state__in=FINAL).order_by("name")[:50],
    }
    return render(request, "workloads/rule_list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def rule_new(request: HtmxRequest, workload_pk: int) -> HttpResponse:
    workload = get_workload(actor=request.user, pk=workload_pk)
    return edit(request, workload, None)


@login_required
@require_http_methods(["GET", "POST"])
def rule_edit(request: HtmxRequest, pk: int) -> HttpResponse:
    rule = get_rule(request, pk)
    return edit(request, rule.workload, rule)


@login_required
@require_POST
def rule_remove(request: HtmxRequest, pk: int) -> HttpResponse:
    rule = get_rule(request, pk)
    others = [RuleSpec.of(row) for row in rule.workload.rules.exclude(pk=pk)]
    save_rules(actor=request.user, workload=rule.workload, rules=others)
    return done(request, _("Rule %(name)s is gone.") % {"name": rule.name}, "workload-detail", rule.workload_id)


def get_rule(request: HtmxRequest, pk: int) -> ScalingRule:
    found = ScalingRule.objects.filter(workload__in=visible_workloads(request.user)).select_related("workload__cluster")
    rule = found.filter(pk=pk).first()
    if rule is None:
        raise Http404
    return rule


def edit(request: HtmxRequest, workload: Workload, rule: ScalingRule | None) -> HttpResponse:
    """The form of a rule; "Preview" shows the next firings and the size over a day and a week."""
    require(request.user, "workload.set_rules", workload)
    if workload.kind != Kind.SERVICE:
        raise Http404
    form = RuleForm(request.POST or None, initial=rule_initial(rule, timezone.get_current_timezone_name()))
    title = _("Edit rule %(name)s") % {"name": rule.name} if rule else _("Add a scaling rule")
    page = FormPage(
        request,
        form,
        title,
        _("Save"),
        reverse("workload-detail", args=[workload.pk]),
        template="workloads/rule_form.html",
        crumbs=(
            Crumb(_("Workloads"), reverse("workload-list")),
            Crumb(workload.name, reverse("workload-detail", args=[workload.pk])),
        ),
        lead=_("From its time on the service has this size, until another rule fires."),
        context={"preview_label": _("Preview"), "workload": workload},
    )
    if not form.is_valid():
        return page.answer(**(preview_of(workload, []) if not form.is_bound else {}))
    spec = RuleSpec.from_mapping(form.mapping())
    rules = [
        spec if rule is not None and row.pk == rule.pk else RuleSpec.of(row) for row in workload.rules.order_by("id")
    ]
    rules = rules if rule is not None else [*rules, spec]
    if request.POST.get("do") == "preview":
        return page.answer(**preview_of(workload, rules, spec))
    save_rules(actor=request.user, workload=workload, rules=rules)
    return done(request, _("Saved. The size follows at once."), "workload-detail", workload.pk)


def preview_of(workload: Workload, rules: Sequence[RuleSpec], spec: RuleSpec | None = None) -> dict[str, Any]:
    """The next firings of the rule, and the size that all rules together give over a day and a week."""
    if spec is None:
        return {}
    now = workload.cluster.now()
    return {
        "explained": schedules.explain(spec.cron, spec.zone),
        "runs": schedules.upcoming(spec.as_rule(), now, NEXT_RUNS),
        "pictures": [
            (_("24 hours"), picture(rules, now, DAY, workload.replicas)),
            (_("7 days"), picture(rules, now, 7 * DAY, workload.replicas)),
        ],
    }


def picture(rules: Sequence[RuleSpec], now: datetime, length: timedelta, current: int) -> StepPicture:
    """The size from now on as a step line."""
    plain = [rule.as_rule() for rule in rules if rule.enabled]
    changes = {now}
    for rule in plain:
        changes |= {firing.at for firing in schedules.upcoming(rule, now, MOST_STEPS) if firing.at < now + length}
    size, levels = current, []
    for at in sorted(changes):
        wanted = schedules.wanted(plain, at)
        size = wanted.size(size) if wanted else size
        levels.append((at, size))
    return step_picture(levels, start=now, end=now + length)
