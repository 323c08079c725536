"""Pictures of the report of the bundled sample, for the pages: python -m tests.browser.pictures"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.browser.conftest import chromium, open_page
from tests.docs.pages import PROJECT
from tests.support.report_fleet import run_kidx

#: Pictures by their names: the page of the report, and how much of it is shown, in pixels.
PICTURES: Final = {"report-overview": ("overview", 1000)}
#: A month after the sample was written.
_NOW: Final = "2026-12-20T00:00:00Z"


def draw(directory: Path) -> None:
    """Write all pictures as PNG."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        at = ("--catalog", f"{scratch}/catalog")
        source = f"sample={PROJECT / 'samples' / 'kafka-logs'}"
        run_kidx("build", "--source", source, *at, "--index-dir", f"{scratch}/index", "--now", _NOW)
        run_kidx("verify", "--source", source, *at, codes=(0, 3))
        run_kidx("report", *at, "--output", f"{scratch}/report.html", "--now", _NOW, codes=(0, 3))
        browser = chromium(playwright)
        for name, (page, height) in PICTURES.items():
            opened = open_page(browser, Path(scratch) / "report.html", height=height)
            opened.go(page)
            opened.page.screenshot(path=directory / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    draw(PROJECT / "docs" / "images")
