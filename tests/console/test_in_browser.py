"""Pages in a real Chromium: live without reload, no rule of the policy broken, readable in both themes and sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.db import transaction
from playwright.sync_api import Browser, Page, expect

from quotas.models import LedgerEntry
from scheduler.triggers import signal
from tests.console.conftest import Served
from tests.console.test_pages_by_role import numbers_of
from tests.console.world import GPU, PASSWORD

pytestmark = pytest.mark.browser

SIZES = {"wide": (1440, 1000), "narrow": (390, 844)}
LOOKED_AT = [
    "/",
    "/usage",
    "/quotas",
    "/quotas/new",
    "/quotas/rebalance",
    "/quotas/{root}",
    "/quotas/{root}/children",
    "/quotas/{root}/usage",
    "/quotas/{root}/policy",
    "/quotas/{root}/history",
    "/quotas/{north}/scale",
    "/workspaces",
    "/workspaces/{b}",
    "/workspaces/{b}/members",
    "/workspaces/{b}/scheduling",
    "/workspaces/{b}/settings",
    "/workspaces/{b}/members/add",
    "/workloads",
    "/workloads/new/training",
    "/workloads/{chat}",
    "/workloads/{wide_b}",
    "/workloads/{chat}/rules/new",
    "/queue",
    "/rules",
    "/nodes",
    "/nodes/{node}",
    "/search?q=n",
    "/profile",
    "/tokens",
    "/audit",
    "/roles",
    "/requests",
]
SERIOUS = ("serious", "critical")


@contextmanager
def signed_in(browser: Browser, served: Served, person: str, **options: object) -> Iterator[Page]:
    """A page of somebody who has signed in through the login form; breaches of the policy are kept on it."""
    context = browser.new_context(base_url=served.address, **options)
    page = context.new_page()
    page.goto("/accounts/login/")
    page.fill("[name=login]", person)
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    expect(page.locator(".menu")).to_have_count(1)
    yield page
    context.close()


def breaches_of(page: Page) -> list[str]:
    """Gathers what the console says about the content security policy, and errors of scripts, from now on."""
    found: list[str] = []
    page.on(
        "console", lambda message: found.append(message.text) if "Content Security Policy" in message.text else None
    )
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def serious(page: Page) -> list[str]:
    violations = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node['html'][:120]}"
        for violation in violations
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def scrolls_sideways(page: Page) -> bool:
    wide: bool = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return wide


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_readable_and_keeps_the_policy(browser: Browser, served: Served, theme: str, size: str):
    width, height = SIZES[size]
    numbers = numbers_of(served.world)
    wrong: dict[str, list[str]] = {}
    options = {"viewport": {"width": width, "height": height}, "color_scheme": theme, "reduced_motion": "reduce"}
    with signed_in(browser, served, "platform", **options) as page:
        breaches = breaches_of(page)
        for path in LOOKED_AT:
            page.goto(path.format(**numbers))
            found = serious(page) + (["scrolls sideways"] if scrolls_sideways(page) else [])
            if found:
                wrong[path] = found
        assert page.locator("html").get_attribute("data-bs-theme") == theme
        assert (wrong, breaches) == ({}, [])


def commit(change: Callable[[], object], *topics: str) -> None:
    """A change as a service makes it: committed, then told."""
    with transaction.atomic():
        change()
        signal(*topics)


def test_the_tide_turns_before_ones_eyes(browser: Browser, served: Served):
    with signed_in(browser, served, "platform") as page:
        page.goto("/")
        cards = page.locator("#cards")
        expect(cards).to_contain_text("21 / 32 GPUs")
        expect(page.locator("[data-live-text]")).to_contain_text("Live")
        page.evaluate("document.querySelector('#cards').dataset.seen = 'before'")
        entries = LedgerEntry.objects.filter(quota=served.world.quotas["root"])
        commit(lambda: entries.update(used=30 * GPU), "overview")
        expect(cards).to_contain_text("30 / 32 GPUs")
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_work_that_starts_shows_on_its_page_at_once(browser: Browser, served: Served):
    workload = served.world.workloads["wide-b"]
    with signed_in(browser, served, "developer-b") as page:
        page.goto(f"/workloads/{workload.pk}")
        expect(page.locator(".why")).to_contain_text("1 of its 2 workers")
        expect(page.locator("[data-live-text]")).to_contain_text("Live")
        workload.state = "starting"
        commit(lambda: workload.save(update_fields=["state"]), f"workload.{workload.pk}", "workloads")
        expect(page.locator(".lead-line .state")).to_have_text("starting")
        expect(page.locator(".why")).to_have_count(0)


def test_a_quota_is_scaled_in_the_side_panel(browser: Browser, served: Served):
    world = served.world
    row = f"#q-{world.quotas['south'].pk}"
    with signed_in(browser, served, "platform") as page:
        breaches = breaches_of(page)
        page.goto("/quotas")
        page.click(f"{row} >> text=Scale")
        field = page.locator("#panel-body").get_by_label("Guaranteed GPUs")
        expect(field).to_have_value("20")
        field.fill("24")
        page.click("#panel-body button:has-text('Scale')")
        expect(page.locator("#panel .problems")).to_contain_text("4 GPUs are missing")
        expect(field).to_have_value("24")
        field.fill("16")
        page.click("#panel-body button:has-text('Scale')")
        expect(page.locator(row)).to_contain_text("5 / 16")
        expect(page.locator("#panel")).not_to_be_visible()
        assert breaches == []


def test_the_tree_is_walked_and_folded_with_keys(browser: Browser, served: Served):
    root, north = (served.world.quotas[name].pk for name in ("root", "north"))
    with signed_in(browser, served, "platform") as page:
        page.goto("/quotas")
        page.focus(f"#q-{root}")
        page.keyboard.press("ArrowDown")
        expect(page.locator(f"#q-{north}")).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(f"#q-{root}")).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(f"#q-{root}")).to_have_attribute("aria-expanded", "false")
        expect(page.locator(f"#q-{north}")).to_have_count(0)


def test_the_theme_that_is_chosen_stays(browser: Browser, served: Served):
    with signed_in(browser, served, "platform", color_scheme="light") as page:
        page.goto("/")
        page.click("[aria-label='Theme']")
        page.click("[data-set-theme='dark']")
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")


def test_the_menu_opens_on_a_phone(browser: Browser, served: Served):
    with signed_in(browser, served, "viewer-b", viewport={"width": 390, "height": 844}) as page:
        page.goto("/")
        page.click("[aria-label='Open the menu']")
        page.click(".menu >> text=Resource Quotas")
        expect(page).to_have_url(re.compile("/quotas$"))
        assert not scrolls_sideways(page)


def test_pages_work_without_scripts(browser: Browser, served: Served):
    with signed_in(browser, served, "platform", java_script_enabled=False) as page:
        page.goto(f"/quotas/{served.world.quotas['north'].pk}")
        page.click("[role=switch] >> nth=0")
        expect(page.locator("[role=switch] >> nth=0")).to_have_attribute("aria-checked", "true")
        page.goto("/quotas")
        page.click("[aria-label='Fold root']")
        expect(page.locator(f"#q-{served.world.quotas['north'].pk}")).to_have_count(0)
