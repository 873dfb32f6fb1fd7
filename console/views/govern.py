"""How workspaces govern themselves: own roles, invitations, requests for more quota; and the table of all roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.forms.govern import (
    MODULES,
    AnswerForm,
    CustomRoleForm,
    InviteForm,
    JoinForm,
    QuotaRequestForm,
    role_initial,
)
from console.views.base import Crumb, FormPage, HtmxRequest, done, page_or_part, paged
from console.views.workspaces import crumbs
from quotas.models import CustomRole, NodePool, Quota, QuotaRequest, RequestState, Role, User, Workspace
from quotas.permissions import LEVELS, PERMISSIONS, allowed, grants_of, require, visible_workspaces
from quotas.selectors import get_workspace
from quotas.services import (
    accept_as_new,
    accept_invitation,
    approve_request,
    create_custom_role,
    decline_request,
    delete_custom_role,
    edit_custom_role,
    find_invitation,
    invite,
    request_quota,
    revoke_invitation,
    withdraw_request,
)
from quotas.services.requests import QuotaRequestSpec
from quotas.services.roles import CustomRoleSpec

# --- own roles -------------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "POST"])
def role_edit(request: HtmxRequest, pk: int, role_pk: int | None = None) -> HttpResponse:
    """A new role of the workspace's own, or one changed."""
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "member.manage", workspace)
    role = get_role(workspace, role_pk) if role_pk else None
    form = CustomRoleForm(request.POST or None, initial=role_initial(role))
    title = _("Edit role %(name)s") % {"name": role.name} if role else _("New role")
    page = FormPage(request, form, title, _("Save"), members_of(workspace), crumbs=crumbs(workspace))
    if not form.is_valid():
        return page.answer()
    spec = CustomRoleSpec.from_mapping(form.mapping())
    if role is None:
        create_custom_role(actor=request.user, workspace=workspace, spec=spec)
    else:
        edit_custom_role(actor=request.user, role=role, spec=spec)
    return done(request, _("Saved."), "workspace-tab", pk, "members", changed=[f"workspace.{pk}"])


@login_required
@require_POST
def role_delete(request: HtmxRequest, pk: int, role_pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    role = get_role(workspace, role_pk)
    delete_custom_role(actor=request.user, role=role)
    return done(request, _("Role %(name)s is gone.") % {"name": role.name}, "workspace-tab", pk, "members")


def get_role(workspace: Workspace, pk: int) -> CustomRole:
    found: CustomRole | None = workspace.custom_roles.filter(pk=pk).first()
    if found is None:
        raise Http404
    return found


def members_of(workspace: Workspace) -> str:
    return reverse("workspace-tab", args=[workspace.pk, "members"])


@login_required
@require_safe
def role_table(request: HtmxRequest) -> HttpResponse:
    """Every role with its levels, what each permission takes, and which of them the reader has where."""
    grants = grants_of(request.user)
    modules = list(MODULES)
    workspaces = visible_workspaces(request.user, grants=grants).filter(pk__in=list(grants.workspaces)).order_by("name")
    context = {
        "modules": [MODULES[module] for module in modules],
        "roles": [
            (Role(role).label, [levels[module].name.lower() for module in modules]) for role, levels in LEVELS.items()
        ],
        "permissions": [
            (
                name,
                MODULES.get(needs.module or "", "") or needs.module or "",
                needs.own.name.lower(),
                needs.any.name.lower(),
            )
            for name, needs in PERMISSIONS.items()
        ],
        "mine": [
            (workspace, [grants.levels_in(workspace.pk)[module].name.lower() for module in modules])
            for workspace in workspaces
        ],
    }
    return render(request, "roles.html", context)


# --- invitations -----------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "POST"])
def member_invite(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "member.manage", workspace)
    form = InviteForm(request.POST or None)
    lead = _("The mail holds a link that is good for seven days and for this address alone.")
    page = FormPage(
        request, form, _("Invite by e-mail"), _("Invite"), members_of(workspace), crumbs=crumbs(workspace), lead=lead
    )
    if not form.is_valid():
        return page.answer()
    email, roles = form.cleaned_data["email"], form.cleaned_data["roles"]
    invite(actor=request.user, workspace=workspace, email=email, roles=roles, link=link_maker(request))
    said = _("%(email)s has been invited.") % {"email": email}
    return done(request, said, "workspace-tab", pk, "members", changed=[f"workspace.{pk}"])


def link_maker(request: HttpRequest) -> Callable[[str], str]:
    """Makes the address of the page that accepts a secret."""
    return lambda secret: request.build_absolute_uri(reverse("invitation", args=[secret]))


@login_required
@require_POST
def invitation_revoke(request: HtmxRequest, pk: int, invitation_pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "member.manage", workspace)
    invitation = workspace.invitations.filter(pk=invitation_pk).first()
    if invitation is None:
        raise Http404
    revoke_invitation(actor=request.user, invitation=invitation)
    return done(request, _("The invitation is void."), "workspace-tab", pk, "members")


@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """The page that a mail leads to: join with the account one has, or make one."""
    found = find_invitation(secret)
    knows_account = User.objects.filter(email__iexact=found.email).exists()
    form = JoinForm(request.POST or None)
    page = FormPage(
        request,
        form,
        _("Join %(name)s") % {"name": found.workspace.name},
        _("Join"),
        reverse("account_login"),
        template="invitation.html",
        context={"invitation": found, "knows_account": knows_account},
    )
    if request.method != "POST":
        return page.answer()
    if request.user.pk is not None:  # somebody who has not signed in has none
        member = accept_invitation(actor=request.user, secret=secret)
        return redirect("workspace-detail", member.workspace_id)
    if knows_account or not form.is_valid():
        return page.answer(status=422)
    accept_as_new(secret=secret, username=form.cleaned_data["username"], password=form.cleaned_data["password"])
    return redirect("account_login")


# --- requests for more quota -----------------------------------------------------------------------------------------


def visible_requests(user: User) -> QuerySet[QuotaRequest]:
    """Requests of the workspaces whose configuration the person may read."""
    grants = grants_of(user)
    readable = [
        workspace.pk
        for workspace in visible_workspaces(user, grants=grants)
        if allowed(user, "configuration.read", workspace, grants=grants)
    ]
    found = QuotaRequest.objects.filter(workspace__in=readable)
    return found.select_related("workspace", "quota__cluster", "pool", "asked_by", "decided_by")


@login_required
@require_safe
def request_list(request: HtmxRequest) -> HttpResponse:
    grants = grants_of(request.user)
    page = paged(request, visible_requests(request.user).order_by("-id"))
    context = {
        "page": page,
        "rows": [
            {
                "asked": row,
                "is_open": row.state == RequestState.OPEN,
                "may_withdraw": allowed(request.user, "quota.request", row.workspace, grants=grants),
            }
            for row in page.object_list
        ],
        "may_decide": allowed(request.user, "quota.decide_request", grants=grants),
        "asking": [
            workspace
            for workspace in visible_workspaces(request.user, grants=grants).filter(archived_at=None).order_by("name")
            if allowed(request.user, "quota.request", workspace, grants=grants)
        ],
    }
    return render(request, page_or_part(request, "requests.html", "board"), context)


@login_required
@require_http_methods(["GET", "POST"])
def request_new(request: HtmxRequest, pk: int) -> HttpResponse:
    workspace = get_workspace(actor=request.user, pk=pk)
    require(request.user, "quota.request", workspace)
    quotas = Quota.objects.filter(bindings__workspace=workspace).order_by("name")
    pools = NodePool.objects.filter(amounts__quota__in=quotas).distinct()
    form = QuotaRequestForm(request.POST or None, quotas=quotas, pools=pools)
    where = (*crumbs(workspace), Crumb(_("Quota requests"), reverse("request-list")))
    page = FormPage(request, form, _("Ask for more quota"), _("Ask"), reverse("request-list"), crumbs=where)
    if not form.is_valid():
        return page.answer()
    spec = QuotaRequestSpec.from_mapping(form.mapping(), workspace=workspace)
    request_quota(actor=request.user, workspace=workspace, spec=spec)
    return done(request, _("A platform administrator will decide."), "request-list")


@login_required
@require_http_methods(["GET", "POST"])
def request_decide(request: HtmxRequest, pk: int, verb: str) -> HttpResponse:
    """Approve or decline, with a word to those who asked."""
    decisions: dict[str, tuple[Callable[..., Any], str]] = {
        "approve": (approve_request, _("Approve")),
        "decline": (decline_request, _("Decline")),
    }
    asked = get_request(request, pk)
    if verb not in decisions:
        raise Http404
    require(request.user, "quota.decide_request")
    decide, words = decisions[verb]
    form = AnswerForm(request.POST or None)
    title = f"{words}: {asked.quota.name}"
    page = FormPage(request, form, title, words, reverse("request-list"), lead=asked.reason)
    if request.method != "POST" or not form.is_valid():
        return page.answer()
    decide(actor=request.user, request=asked, answer=form.cleaned_data["answer"])
    return done(request, _("Decided."), "request-list")


@login_required
@require_POST
def request_withdraw(request: HtmxRequest, pk: int) -> HttpResponse:
    withdraw_request(actor=request.user, request=get_request(request, pk))
    return done(request, _("The request is taken back."), "request-list")


def get_request(request: HtmxRequest, pk: int) -> QuotaRequest:
    found = visible_requests(request.user).filter(pk=pk).first()
    if found is None:
        raise Http404
    return found
