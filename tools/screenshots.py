"""Pictures of all pages of a running Tidegate, in both themes, wide and narrow, into var/screenshots/."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urljoin

from playwright.sync_api import Browser, Page, sync_playwright

from tools.devtool.checks import find_chromium

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"wide": (1440, 1000), "narrow": (390, 844)}
THEMES = ("light", "dark")
SETTLE_MS = 700

PAGES = {
    "overview": "/",
    "quotas": "/quotas",
    "quota-new": "/quotas/new",
    "quota-rebalance": "/quotas/rebalance",
    "workspaces": "/workspaces",
    "workspace-new": "/workspaces/new",
    "queue": "/queue",
    "workloads": "/workloads",
    "workload-new": "/workloads/new/training",
    "workload-new-service": "/workloads/new/service",
    "rules": "/rules",
    "nodes": "/nodes",
    "tokens": "/tokens",
    "audit": "/audit",
    "profile": "/profile",
    "search": "/search?q=a",
}
# A page about one thing: the list that links to it, the selector of the link, and what follows its address.
DETAILS = {
    "quota": (
        "/quotas",
        "tr [href^='/quotas/']:not([href*='new'])",
        ("", "/children", "/usage", "/policy", "/history", "/scale"),
    ),
    "workspace": (
        "/workspaces",
        "tr [href^='/workspaces/']",
        ("", "/members", "/scheduling", "/quotas", "/settings", "/members/add"),
    ),
    "workload": ("/workloads?state=running", "tr [href^='/workloads/']", ("",)),
    "waiting": ("/queue", "tr [href^='/workloads/']", ("",)),
    "service": ("/workloads?kind=service", "tr [href^='/workloads/']", ("", "/rules/new")),
    "node": ("/nodes", "tr [href^='/nodes/']", ("", "/drain")),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    address = options.address or (ROOT / "var" / "address").read_text().split()[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        taken = sum(1 for _ in take_all(browser, address, options))
        browser.close()
    print(f"{taken} pictures in {options.out}")
    return 0


def take_all(browser: Browser, address: str, options: argparse.Namespace) -> Iterator[Path]:
    """Every picture that the options ask for, one browser context a theme and size."""
    for theme in options.themes:
        for size in options.sizes:
            width, height = SIZES[size]
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
            context.add_cookies([{"name": "theme", "value": theme, "url": address}])
            page = context.new_page()
            sign_in(page, address, options.user, options.password)
            for name, path in addresses(page, address, options.only):
                yield take(page, urljoin(address, path), options.out / f"{name}-{theme}-{size}.png")
            context.close()


def sign_in(page: Page, address: str, user: str, password: str) -> None:
    page.goto(urljoin(address, "/accounts/login/"))
    page.fill("[name=login]", user)
    page.fill("[name=password]", password)
    page.click("form button")
    page.wait_for_url(lambda url: "login" not in url)


def addresses(page: Page, address: str, only: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and paths of the pages; those about one thing take the first thing of its list."""
    for name, path in PAGES.items():
        if not only or name in only:
            yield name, path
    for name, (listed, link, endings) in DETAILS.items():
        if only and name not in only:
            continue
        page.goto(urljoin(address, listed))
        first = page.locator(link).first
        if first.count() == 0:
            continue
        found = first.get_attribute("href") or ""
        for ending in endings:
            yield f"{name}{ending.replace('/', '-')}", f"{found}{ending}"


def take(page: Page, url: str, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    page.goto(url)
    page.wait_for_timeout(SETTLE_MS)
    size = page.viewport_size or {"width": SIZES["wide"][0], "height": SIZES["wide"][1]}
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": max(size["height"], height)})  # what sticks, sticks once
    page.screenshot(path=str(file))
    page.set_viewport_size(size)
    return file


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev screenshots", description=__doc__)
    parser.add_argument("--address", help="where it runs (default: the ./dev up of this folder)")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", default="tide-turns-daily")
    parser.add_argument("--out", type=Path, default=ROOT / "var" / "screenshots")
    parser.add_argument("--only", nargs="*", default=[], metavar="PAGE", help=f"of {', '.join([*PAGES, *DETAILS])}")
    parser.add_argument("--themes", nargs="*", default=list(THEMES), choices=THEMES)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
