"""A real browser, and the report of a fleet in which five things are wrong."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, sync_playwright

from tests.docs.pages import PROJECT
from tests.support.report_fleet import NOW_MS, Fleet, build_fleet, run_kidx

_OURS: Final = PROJECT / ".jars" / "chromium" / "chromium"
_NAMES: Final = ("chromium-headless-shell", "chromium")


@dataclass(slots=True)
class Reported:
    """A fleet's report, as a page and as JSON."""

    fleet: Fleet
    page: Path
    numbers: dict[str, Any]


@dataclass(slots=True)
class Opened:
    """A page in the browser, and what it complained of or asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, name: str) -> None:
        """Show one of its pages."""
        self.page.evaluate("name => { location.hash = name; }", name)
        self.page.wait_for_selector(f'body[data-page="{name}"]')


def chromium(playwright: Playwright) -> Browser:
    """A browser without a window."""
    path = str(_OURS) if _OURS.exists() else next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("needs Chromium, which ./setup.sh test fetches where there is Debian's apt-get")
    # Who is root may not have Chromium's sandbox; pages here are our own files.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=path, args=arguments)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = chromium(playwright)
        yield started
        started.close()


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    directory = tmp_path_factory.mktemp("fleet")
    fleet = build_fleet(directory, random.Random(29))
    page = directory / "report.html"
    at = ("report", "--catalog", str(fleet.catalog), "--now", str(NOW_MS), "--sample", "50")
    run_kidx(*at, "--output", str(page), codes=(3,))  # it has damaged index files
    return Reported(fleet, page, json.loads(run_kidx(*at, "--json", codes=(3,))))


def open_page(browser: Browser, path: Path, *, width: int = 1200, height: int = 900, theme: str = "light") -> Opened:
    """Open a file in a window of its own."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
    opened = Opened(context.new_page())

    def complain(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            opened.errors.append(message.text)

    def ask(request: Request) -> None:
        opened.requests.append(request.url)

    opened.page.on("console", complain)
    opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.page.on("request", ask)
    opened.page.goto(path.as_uri())
    opened.page.wait_for_selector('body[data-page="overview"]')
    return opened
