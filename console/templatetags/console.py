"""What templates of the console may call: icons, badges, bars, amounts and times. None asks a query."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from django import template
from django.template.context import RequestContext
from django.templatetags.static import static
from django.utils import timezone
from django.utils.dateformat import format as date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from console import amounts
from console.charts import Usage
from console.charts import usage_bar as draw_usage_bar
from workloads import schedules
from workloads.models import ScalingRule, Template, Workload

register = template.Library()

STATES: dict[str, tuple[str, str, Any]] = {  # state -> (tone, icon, word)
    "queued": ("quiet", "hourglass", _("queued")),
    "held": ("warn", "hand-stop", _("held")),
    "starting": ("note", "loader-2", _("starting")),
    "running": ("good", "player-play", _("running")),
    "resizing": ("note", "arrows-exchange-2", _("resizing")),
    "preempting": ("warn", "arrow-down", _("preempting")),
    "stopping": ("warn", "player-pause", _("stopping")),
    "succeeded": ("good", "check", _("succeeded")),
    "failed": ("bad", "circle-x", _("failed")),
    "stopped": ("quiet", "player-stop", _("stopped")),
    "ready": ("good", "circle-check", _("ready")),
    "cordoned": ("warn", "ban", _("cordoned")),
    "draining": ("warn", "arrow-down", _("draining")),
    "lost": ("bad", "server-off", _("lost")),
    "leaving": ("warn", "arrow-down", _("leaving")),
    "ended": ("quiet", "player-stop", _("ended")),
    "on": ("good", "check", _("on")),
    "off": ("quiet", "minus", _("off")),
    "over": ("warn", "alert-triangle", _("over its guarantee")),
    "open": ("note", "hourglass", _("open")),
    "approved": ("good", "check", _("approved")),
    "declined": ("bad", "x", _("declined")),
    "withdrawn": ("quiet", "minus", _("withdrawn")),
    "archived": ("quiet", "lock", _("archived")),
    "active": ("good", "circle-check", _("active")),
}
KINDS: dict[str, tuple[str, Any]] = {
    "training": ("flask", _("training job")),
    "notebook": ("notebook", _("notebook")),
    "service": ("world-share", _("inference service")),
}


POLICIES: dict[str, Any] = {
    "fifo": _("First in, first out"),
    "round_robin": _("Round robin"),
    "balance": _("Balance"),
    "intelligent": _("Intelligent"),
}
ROLES: dict[str, Any] = {
    "owner": _("owner"),
    "administrator": _("administrator"),
    "operator": _("operator"),
    "developer": _("developer"),
    "viewer": _("viewer"),
}


@register.filter
def policy(name: str) -> Any:
    """A queue policy in the reader's language."""
    return POLICIES.get(str(name), name)


@register.filter
def role(name: str) -> Any:
    """A role in the reader's language; one of a workspace's own keeps its name."""
    return ROLES.get(str(name), name)


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """An icon of the sprite; it says nothing by itself, so the words beside it must."""
    return format_html(
        '<svg class="icon" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("vendor/icons.svg"),
        name,
    )


@register.inclusion_tag("components/state.html")
def state(name: str, held: bool = False) -> dict[str, Any]:
    """A state as colour, shape and word."""
    tone, icon_name, word = STATES.get("held" if held else str(name), ("quiet", "circle", name))
    return {"tone": tone, "icon": icon_name, "word": word}


@register.simple_tag
def kind(name: str) -> SafeString:
    icon_name, word = KINDS.get(str(name), ("stack-2", name))
    return format_html('<span class="d-inline-flex align-items-center gap-1">{}{}</span>', icon(icon_name), word)


@register.inclusion_tag("components/usage_bar.html")
def usage_bar(usage: Usage, scale: int | None = None) -> dict[str, Any]:
    return {"bar": draw_usage_bar(usage, scale=scale)}


@register.filter
def gpus(milli: int | None) -> str:
    return amounts.gpus(milli)


@register.filter
def cores(milli: int | None) -> str:
    return amounts.gpus(milli)


@register.filter
def memory(mib: int | None) -> str:
    return amounts.memory(mib)


@register.filter
def span(seconds: float | None) -> str:
    return amounts.span(seconds)


@register.filter
def since(at: datetime | None, now: datetime) -> str:
    """How long ago ``at`` was at ``now``; both on the same clock."""
    return amounts.span(None if at is None else (now - at).total_seconds())


@register.filter
def pairs(labels: dict[str, Any] | None) -> str:
    """Labels as people write them: "team=a, tier=gold"."""
    return ", ".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))


@register.simple_tag
def when(at: datetime | None, form: str = "j M H:i") -> SafeString | str:
    """A time in the reader's zone; the title has UTC."""
    if at is None:
        return amounts.NOTHING
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        at.isoformat(timespec="seconds"),
        at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        date_format(local, form),
    )


@register.simple_tag(takes_context=True)
def query(context: RequestContext, **changes: Any) -> str:
    """The page's own address with some parameters changed; None or "" removes one."""
    parameters = context["request"].GET.copy()
    for name, value in changes.items():
        if value in (None, ""):
            parameters.pop(name, None)
        else:
            parameters[name] = str(value)
    if "page" not in changes:
        parameters.pop("page", None)
    return f"?{parameters.urlencode()}"


@register.filter
def gpus_asked(workload: Workload) -> int:
    """Thousandths of a GPU that all its replicas ask for."""
    return workload.gpu_milli_each * workload.replicas


@register.filter
def schedule_words(rule: ScalingRule) -> str:
    """The rule's times in a sentence."""
    return schedules.explain(rule.cron, rule.zone)


@register.filter
def template_gpus(template: Template) -> int:
    """Thousandths of a GPU that one replica of this size asks for."""
    return template.gpus * template.gpu_milli
