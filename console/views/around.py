"""What stands around the rest: search, profile, cluster choice, tokens, audit."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.forms.base import ConsoleForm
from console.frame import CLUSTER_KEY
from console.middleware import THEMES
from console.views.base import Crumb, FormPage, HtmxRequest, asked_text, done, paged
from console.views.quotas import number
from quotas.models import Role, Token, Workspace
from quotas.permissions import (
    grants_of,
    visible_audit,
    visible_clusters,
    visible_nodes,
    visible_quotas,
    visible_workspaces,
)
from quotas.services import create_token, revoke_token
from quotas.specs import NAME_MAX, TokenSpec
from workloads.schedules import NOT_PLACES
from workloads.selectors import visible_workloads

FOUND_EACH = 20


@login_required
@require_safe
def search(request: HtmxRequest) -> HttpResponse:
    """Quotas, workloads, workspaces and nodes whose name holds the text."""
    text = asked_text(request)
    groups = found_groups(request, text) if text else []
    context = {"search_text": text, "groups": groups, "count": sum(len(group["rows"]) for group in groups)}
    return render(request, "search.html", context)


def found_groups(request: HtmxRequest, text: str) -> list[dict[str, Any]]:
    """What is found, by sort; sorts without a find are left out."""
    sorts = (
        (_("Quotas"), visible_quotas(request.user), "quota-detail", "hierarchy-3"),
        (_("Workspaces"), visible_workspaces(request.user), "workspace-detail", "folders"),
        (_("Workloads"), visible_workloads(request.user), "workload-detail", "stack-2"),
        (_("Nodes"), visible_nodes(request.user), "node-detail", "server-2"),
    )
    groups = []
    for title, rows, route, icon in sorts:
        found = rows.filter(name__icontains=text).order_by("-id")[:FOUND_EACH]
        lines = [{"name": row.name, "url": reverse(route, args=[row.pk])} for row in found]
        groups.append({"title": title, "icon": icon, "rows": lines})
    return [group for group in groups if group["rows"]]


@login_required
@require_POST
def choose_cluster(request: HtmxRequest) -> HttpResponse:
    chosen = visible_clusters(request.user).filter(pk=number(request.POST.get("cluster"))).first()
    if chosen is None:
        raise Http404
    request.session[CLUSTER_KEY] = chosen.pk
    return redirect("overview")


# --- profile ---------------------------------------------------------------------------------------------------------


class ProfileForm(ConsoleForm):
    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"), help_text=gettext_lazy("UTC: times are shown in the zone of your browser.")
    )
    theme = forms.ChoiceField(
        label=gettext_lazy("Theme"),
        choices=(
            ("light", gettext_lazy("Light")),
            ("dark", gettext_lazy("Dark")),
            ("system", gettext_lazy("As the system")),
        ),
    )
    shortcuts = forms.BooleanField(label=gettext_lazy("Single-key shortcuts"), required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        zone = self.fields["time_zone"]
        assert isinstance(zone, forms.ChoiceField)
        zone.choices = [(name, name) for name in sorted(available_timezones() - NOT_PLACES)]


@login_required
@require_http_methods(["GET", "POST"])
def profile(request: HtmxRequest) -> HttpResponse:
    user = request.user
    initial = {"time_zone": user.time_zone, "theme": user.theme, "shortcuts": user.shortcuts}
    form = ProfileForm(request.POST or None, initial=initial)
    page = FormPage(
        request,
        form,
        _("Profile"),
        _("Save"),
        reverse("overview"),
        template="profile.html",
        context={"roles": roles_held(request)},
    )
    if not form.is_valid():
        return page.answer()
    for name, value in form.cleaned_data.items():
        setattr(user, name, value)
    user.save(update_fields=list(form.cleaned_data))
    response = done(request, _("Saved."), "profile")
    if user.theme in THEMES:
        response.set_cookie("theme", user.theme, max_age=31536000, samesite="Lax")
    return response


def roles_held(request: HtmxRequest) -> list[dict[str, Any]]:
    """The person's workspaces with the roles held there."""
    rows = request.user.memberships.select_related("workspace").order_by("workspace__name")
    return [
        {"workspace": row.workspace, "roles": ", ".join(str(Role(role).label) for role in row.roles)} for row in rows
    ]


# --- tokens ----------------------------------------------------------------------------------------------------------


class TokenForm(ConsoleForm):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=NAME_MAX,
        help_text=gettext_lazy("What it is for, such as nightly-export."),
    )
    workspace = forms.ModelChoiceField(
        label=gettext_lazy("For"),
        queryset=Workspace.objects.none(),
        required=False,
        empty_label=gettext_lazy("everything that I may do"),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("At most as"),
        required=False,
        choices=[("", "–"), *((role.value, role.label.capitalize()) for role in Role)],
        help_text=gettext_lazy("With a workspace: the token has at most this role there."),
    )
    expires_at = forms.DateTimeField(
        label=gettext_lazy("Expires"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )

    def __init__(self, *args: Any, workspaces: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["workspace"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = workspaces


@login_required
@require_http_methods(["GET", "POST"])
def token_list(request: HtmxRequest) -> HttpResponse:
    """One's own tokens. A new one's secret is in this one answer and nowhere else."""
    form = TokenForm(request.POST or None, workspaces=visible_workspaces(request.user).order_by("name"))
    tokens = Token.objects.filter(user=request.user).select_related("workspace").order_by("-id")
    page = FormPage(
        request,
        form,
        _("API tokens"),
        _("Create token"),
        reverse("overview"),
        template="tokens.html",
        crumbs=(Crumb(_("Govern")),),
        context={"page": paged(request, tokens)},
    )
    if not form.is_valid():
        return page.answer()
    spec = TokenSpec.from_mapping(
        {name: value for name, value in form.cleaned_data.items() if value not in (None, "")},
        workspaces=visible_workspaces(request.user),
    )
    token, secret = create_token(actor=request.user, spec=spec)
    fresh = TokenForm(workspaces=visible_workspaces(request.user).order_by("name"))
    response = page.answer(status=200, form=fresh, secret=secret, token=token, page=paged(request, tokens))
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_POST
def token_revoke(request: HtmxRequest, pk: int) -> HttpResponse:
    token = Token.objects.filter(pk=pk, user=request.user).first()
    if token is None:
        raise Http404
    revoke_token(actor=request.user, token=token)
    return done(request, _("The token no longer works."), "token-list")


# --- audit -----------------------------------------------------------------------------------------------------------


@login_required
@require_safe
def audit(request: HtmxRequest) -> HttpResponse:
    """Who did what, newest first; whole for the platform's people, else of the workspaces one manages."""
    rows = visible_audit(request.user).order_by("-id")
    text, result = asked_text(request), request.GET.get("result", "")
    if text:
        rows = (
            rows.filter(object_name__icontains=text)
            | rows.filter(actor_name__icontains=text)
            | rows.filter(verb__icontains=text)
        )
    if result in ("done", "refused"):
        rows = rows.filter(result=result)
    before = number(request.GET.get("before"))
    if before:
        rows = rows.filter(pk__lt=before)
    found = list(rows[:51])
    context = {
        "rows": found[:50],
        "older": found[49].pk if len(found) > 50 else None,
        "text": text,
        "result": result,
        "reads_all": grants_of(request.user).reads_all,
    }
    return render(request, "audit.html", context)
