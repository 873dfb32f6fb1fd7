"""Workspaces: the list, members with their roles, the quotas they use, settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Prefetch, Q
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.forms.workspaces import (
    AddMemberForm,
    BindQuotaForm,
    EditWorkspaceForm,
    HandOverForm,
    NewWorkspaceForm,
    RolesForm,
)
from console.selectors import Branch, quota_branches
from console.views.base import Crumb, FormPage, HtmxRequest, done, page_or_part, paged
from quotas.errors import refuse
from quotas.models import CustomRole, Member, Role, User, Workspace
from quotas.permissions import allowed, permissions_on, require, visible_members, visible_quotas, visible_workspaces
from quotas.selectors import get_workspace
from quotas.services import (
    add_member,
    archive_workspace,
    bind_quota,
    create_workspace,
    edit_workspace,
    hand_over,
    remove_member,
    set_default_quota,
    set_roles,
)
from quotas.specs import WorkspaceSpec
from workloads.models import FINAL, State
from workloads.selectors import visible_workloads
from workloads.services import delete_workspace, unbind_quota

TABS = ("overview", "members", "quotas", "settings")


@login_required
@require_safe
def workspace_list(request: HtmxRequest) -> HttpResponse:
    members = Prefetch("members", visible_members(request.user).select_related("user"))
    rows = visible_workspaces(request.user).prefetch_related("bindings__quota", members).order_by("name", "id")
    page = paged(request, rows)
    counts = live_counts(request, page.object_list)
    context = {
        "page": page,
        "rows": [{**workspace_row(workspace), **counts.get(workspace.pk, {})} for workspace in page.object_list],
        "may": set(permissions_on(request.user)),
    }
    return render(request, page_or_part(request, "workspaces/list.html", "board"), context)


def workspace_row(workspace: Workspace) -> dict[str, Any]:
    members = list(workspace.members.all())
    owner = next((member.user.get_username() for member in members if Role.OWNER in member.roles), "")
    return {"workspace": workspace, "owner": owner, "members": len(members), "running": 0, "waiting": 0}


def live_counts(request: HtmxRequest, workspaces: Iterable[Workspace]) -> dict[int, dict[str, int]]:
    """Running and waiting workloads that the person may see, by workspace. One query."""
    found = visible_workloads(request.user).filter(workspace__in=list(workspaces)).exclude(state__in=FINAL)
    counts = (
        found.order_by()
        .values("workspace_id")
        .annotate(running=Count("id", filter=~Q(state=State.QUEUED)), waiting=Count("id", filter=Q(state=State.QUEUED)))
    )
    return {row["workspace_id"]: {"running": row["running"], "waiting": row["waiting"]} for row in counts}


@login_required
@require_safe
def workspace_detail(request: HtmxRequest, pk: int, tab: str = "overview") -> HttpResponse:
    if tab not in TABS:
        raise Http404
    workspace = get_workspace(actor=request.user, pk=pk)
    context = {
        "workspace": workspace,
        "tab": tab,
        "tabs": tabs_of(workspace),
        "may": set(permissions_on(request.user, workspace)),
        **TAB_CONTEXT[tab](request, workspace),
    }
    return render(request, page_or_part(request, "workspaces/detail.html", "tab"), context)


def tabs_of(workspace: Workspace) -> list[tuple[str, str, str]]:
    """(name, title, address) of the parts of a workspace."""
    names = (*TABS, "scheduling")
    return [(name, tab_title(name), reverse("workspace-tab", args=[workspace.pk, name])) for name in names]


def tab_title(name: str) -> str:
    return {
        "overview": _("Overview"),
        "members": _("Members"),
        "quotas": _("Quotas"),
        "settings": _("Settings"),
        "scheduling": _("Scheduling Configuration"),
    }[name]


def _overview_tab(request: HtmxRequest, workspace: Workspace) -> dict[str, Any]:
    found = visible_workloads(request.user).filter(workspace=workspace).select_related("quota", "workspace", "owner")
    return {
        "branches": bound_branches(request, workspace),
        "page": paged(request, found.exclude(state__in=FINAL).order_by("-submitted_at", "-id")),
    }


def bound_branches(request: HtmxRequest, workspace: Workspace) -> list[Branch]:
    """The quotas of the workspace with what they hold, of all clusters."""
    bound = {binding.quota_id: binding for binding in workspace.bindings.select_related("quota__cluster")}
    clusters = {binding.quota.cluster for binding in bound.values()}
    return [
        branch
        for cluster in sorted(clusters, key=lambda found: found.pk)
        for branch in quota_branches(actor=request.user, cluster=cluster)
        if branch.quota.pk in bound
    ]


def _members_tab(request: HtmxRequest, workspace: Workspace) -> dict[str, Any]:
    custom = {role.pk: role.name for role in workspace.custom_roles.all()}
    members = visible_members(request.user).filter(workspace=workspace).select_related("user").order_by("id")
    manages = allowed(request.user, "member.manage", workspace)
    return {
        "members": [member_row(member, custom) for member in members],
        "custom_roles": workspace.custom_roles.order_by("name"),
        "invitations": workspace.invitations.filter(accepted_at=None, revoked_at=None) if manages else [],
    }


def member_row(member: Member, custom: dict[int, str]) -> dict[str, Any]:
    return {
        "member": member,
        "roles": [
            *(Role(role).label for role in member.roles),
            *(custom[pk] for pk in member.custom_roles if pk in custom),
        ],
        "is_owner": Role.OWNER in member.roles,
    }


def _quotas_tab(request: HtmxRequest, workspace: Workspace) -> dict[str, Any]:
    bindings = list(workspace.bindings.select_related("quota__cluster").order_by("-is_default", "quota__name"))
    branches = {branch.quota.pk: branch for branch in bound_branches(request, workspace)}
    rows = [{"binding": binding, "branch": branches.get(binding.quota_id)} for binding in bindings]
    return {"rows": rows}


def _settings_tab(request: HtmxRequest, workspace: Workspace) -> dict[str, Any]:
    return {}


TAB_CONTEXT = {
    "overview": _overview_tab,
    "members": _members_tab,
    "quotas": _quotas_tab,
    "settings": _settings_tab,
}


# --- changes ---------------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "POST"])
def workspace_new(request: HtmxRequest) -> HttpResponse:
    require(request.user, "workspace.create")
    form = NewWorkspaceForm(request.POST or None, quotas=visible_quotas(request.user).order_by("name"))
    page = FormPage(
        request, form, _("New workspace"), _("Create workspace"), reverse("workspace-list"), crumbs=crumbs()
    )
    if not form.is_valid():
        return page.answer()
    spec = WorkspaceSpec(
        name=form.cleaned_data["name"],
        description=form.cleaned_data["description"],
        quotas=tuple(form.cleaned_data["quotas"]),
        owner=person_named(form.cleaned_data["owner"], "owner") if form.cleaned_data["owner"] else None,
    )
    workspace = create_workspace(actor=request.user, spec=spec)
    return done(request, _("Workspace %(name)s is there.") % {"name": workspace.name}, "workspace-detail", workspace.pk)


@login_required
@require_http_methods(["GET", "POST"])
def workspace_edit(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "workspace.edit", workspace)
    initial = {"name": workspace.name, "description": workspace.description, "revision": workspace.revision}
    form = EditWorkspaceForm(request.POST or None, initial=initial)
    page = _form_page(request, workspace, form, _("Edit %(name)s") % {"name": workspace.name}, _("Save"), "settings")
    if not form.is_valid():
        return page.answer()
    changes = {"name": form.cleaned_data["name"], "description": form.cleaned_data["description"]}
    edit_workspace(actor=request.user, workspace=workspace, changes=changes, revision=form.cleaned_data["revision"])
    return done(request, _("Saved."), "workspace-tab", pk, "settings", changed=["workspaces"])


@login_required
@require_http_methods(["GET", "POST"])
def member_add(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "member.manage", workspace)
    form = AddMemberForm(request.POST or None, custom_roles=workspace.custom_roles.all())
    page = _form_page(request, workspace, form, _("Add a member"), _("Add"), "members")
    if not form.is_valid():
        return page.answer()
    roles, custom = split_roles(workspace, form.cleaned_data["roles"])
    user = person_named(form.cleaned_data["user"], "user")
    add_member(actor=request.user, workspace=workspace, user=user, roles=roles, custom_roles=custom)
    return done(
        request,
        _("%(name)s is a member now.") % {"name": user.get_username()},
        "workspace-tab",
        pk,
        "members",
        changed=[f"workspace.{pk}"],
    )


@login_required
@require_http_methods(["GET", "POST"])
def member_roles(request: HtmxRequest, pk: int, member_pk: int) -> HttpResponse:
    workspace, member = get_member(request, pk, member_pk)
    require(request.user, "member.manage", workspace)
    held = [*member.roles, *(f"custom:{role}" for role in member.custom_roles)]
    form = RolesForm(request.POST or None, custom_roles=workspace.custom_roles.all(), initial={"roles": held})
    title = _("Roles of %(name)s") % {"name": member.user.get_username()}
    page = _form_page(request, workspace, form, title, _("Save"), "members")
    if not form.is_valid():
        return page.answer()
    roles, custom = split_roles(workspace, form.cleaned_data["roles"])
    set_roles(actor=request.user, member=member, roles=roles, custom_roles=custom)
    return done(request, _("Saved."), "workspace-tab", pk, "members", changed=[f"workspace.{pk}"])


@login_required
@require_POST
def member_remove(request: HtmxRequest, pk: int, member_pk: int) -> HttpResponse:
    _workspace, member = get_member(request, pk, member_pk)
    is_self = member.user_id == request.user.pk
    remove_member(actor=request.user, member=member)
    said = _("%(name)s is no member any more.") % {"name": member.user.get_username()}
    if is_self:
        return done(request, said, "workspace-list")
    return done(request, said, "workspace-tab", pk, "members", changed=[f"workspace.{pk}"])


@login_required
@require_http_methods(["GET", "POST"])
def workspace_hand_over(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "workspace.hand_over", workspace)
    people = User.objects.filter(memberships__workspace=workspace, is_active=True).order_by("username")
    form = HandOverForm(request.POST or None, members=people.exclude(memberships__in=owners(workspace)))
    page = _form_page(request, workspace, form, _("Hand the workspace over"), _("Hand over"), "settings")
    if not form.is_valid():
        return page.answer()
    hand_over(actor=request.user, workspace=workspace, to=form.cleaned_data["to"])
    return done(request, _("The workspace has a new owner."), "workspace-tab", pk, "members")


@login_required
@require_http_methods(["GET", "POST"])
def workspace_bind(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "workspace.bind_quota", workspace)
    free = visible_quotas(request.user).exclude(bindings__workspace=workspace).order_by("name")
    form = BindQuotaForm(request.POST or None, quotas=free)
    page = _form_page(request, workspace, form, _("Bind a quota"), _("Bind"), "quotas")
    if not form.is_valid():
        return page.answer()
    bind_quota(
        actor=request.user, workspace=workspace, quota=form.cleaned_data["quota"], default=form.cleaned_data["default"]
    )
    return done(
        request, _("The workspace may use the quota now."), "workspace-tab", pk, "quotas", changed=[f"workspace.{pk}"]
    )


@login_required
@require_POST
def workspace_unbind(request: HtmxRequest, pk: int, quota_pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    binding = get_binding(workspace, quota_pk)
    unbind_quota(actor=request.user, workspace=workspace, quota=binding.quota)
    return done(
        request,
        _("The workspace no longer uses the quota."),
        "workspace-tab",
        pk,
        "quotas",
        changed=[f"workspace.{pk}"],
    )


@login_required
@require_POST
def workspace_default(request: HtmxRequest, pk: int, quota_pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    binding = get_binding(workspace, quota_pk)
    set_default_quota(actor=request.user, workspace=workspace, quota=binding.quota)
    return done(
        request, _("Work that names no quota uses it now."), "workspace-tab", pk, "quotas", changed=[f"workspace.{pk}"]
    )


@login_required
@require_POST
def workspace_archive(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    archived = request.POST.get("to") == "archived"
    archive_workspace(actor=request.user, workspace=workspace, archived=archived)
    said = _("The workspace takes no new work.") if archived else _("The workspace is open again.")
    return done(request, said, "workspace-tab", pk, "settings")


@login_required
@require_POST
def workspace_delete(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    delete_workspace(actor=request.user, workspace=workspace)
    return done(request, _("Workspace %(name)s is gone.") % {"name": workspace.name}, "workspace-list")


# --- small things ----------------------------------------------------------------------------------------------------


def _form_page(request: HtmxRequest, workspace: Workspace, form: Any, title: str, submit: str, tab: str) -> FormPage:
    back = reverse("workspace-tab", args=[workspace.pk, tab])
    return FormPage(request, form, title, submit, back, crumbs=crumbs(workspace))


def crumbs(workspace: Workspace | None = None) -> tuple[Crumb, ...]:
    start = (Crumb(_("Work")), Crumb(_("Workspaces"), reverse("workspace-list")))
    return (*start, Crumb(workspace.name, reverse("workspace-detail", args=[workspace.pk]))) if workspace else start


def split_roles(workspace: Workspace, given: Iterable[str]) -> tuple[list[str], list[CustomRole]]:
    """Built-in roles, and the workspace's own ones by their number."""
    given = list(given)
    own = [int(value.removeprefix("custom:")) for value in given if value.startswith("custom:")]
    return [value for value in given if not value.startswith("custom:")], list(
        workspace.custom_roles.filter(pk__in=own)
    )


def person_named(name: str, field: str) -> User:
    """The open account with that user name, in whatever case; refused at ``field`` where there is none."""
    found = User.objects.filter(username__iexact=name.strip(), is_active=True).first()
    if found is None:
        raise refuse(field, "invalid", reason="not_found", given=name)
    return found


def owners(workspace: Workspace) -> Any:
    return Member.objects.filter(workspace=workspace, roles__contains=[Role.OWNER])


def get_member(request: HtmxRequest, pk: int, member_pk: int) -> tuple[Workspace, Member]:
    workspace = get_workspace(actor=request.user, pk=pk)
    members = visible_members(request.user).filter(workspace=workspace).select_related("user", "workspace")
    member = members.filter(pk=member_pk).first()
    if member is None:
        raise Http404
    return workspace, member


def get_binding(workspace: Workspace, quota_pk: int) -> Any:
    binding = workspace.bindings.select_related("quota").filter(quota_id=quota_pk).first()
    if binding is None:
        raise Http404
    return binding
