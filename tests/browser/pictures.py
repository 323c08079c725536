"""Pictures of the report for the pages: of a fleet that is well, of one in trouble, and of an empty catalog.

python -m tests.browser.pictures
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from kidxlib.catalog.tables import TABLES
from kidxlib.tables.delta_tables import DeltaTables
from tests.browser.conftest import chromium, open_page
from tests.docs.pages import PROJECT
from tests.support.report_fleet import NOW_MS, run_kidx
from tests.support.shop_fleet import build_shop

_SEED: Final = 20261128


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a page of a report.

    Attributes:
        fleet: `well`, `trouble` or `empty`.
        page: of the report, and what of it comes after a slash.
        width, height: of the window, in pixels.
    """

    name: str
    fleet: str
    page: str = "overview"
    width: int = 1200
    height: int = 1000
    theme: str = "light"


PICTURES: Final = (
    Picture("report-wide", "well"),
    Picture("report-phone", "trouble", width=390, height=1300),
    Picture("report-dark", "trouble", page="timeline/payments-2", theme="dark"),
    Picture("report-empty", "empty", height=700),
    Picture("report-trouble", "trouble"),
)


def draw(directory: Path, scratch: Path) -> None:
    """Write all pictures as PNG."""
    reports = {}
    for fleet in ("well", "trouble", "empty"):
        place, reports[fleet] = scratch / fleet, scratch / f"{fleet}.html"
        if fleet == "empty":
            tables = DeltaTables(str(place))
            for table in TABLES:
                tables.make(table)
            options: tuple[str, ...] = ("--catalog", str(place))
        else:
            catalog = build_shop(place, random.Random(_SEED), in_trouble=fleet == "trouble")
            options = ("--catalog", str(catalog), "--sample", "20")
        run_kidx("report", *options, "--output", str(reports[fleet]), "--now", str(NOW_MS), codes=(0, 3))
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        for picture in PICTURES:
            opened = open_page(
                browser, reports[picture.fleet], width=picture.width, height=picture.height, theme=picture.theme
            )
            opened.page.evaluate("page => { location.hash = page; }", picture.page)
            opened.page.wait_for_selector(f'body[data-page="{picture.page.partition("/")[0]}"]')
            opened.page.wait_for_load_state("networkidle")
            opened.page.screenshot(path=directory / f"{picture.name}.png")
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        draw(PROJECT / "docs" / "images", Path(scratch))
