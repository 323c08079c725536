"""The documentation site: built without a warning and without a network, and read from a disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from yaml import safe_load

import kidxlib
from kidxlib.cli import main
from tests.docs.pages import PAGES, PROJECT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", directory],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return directory


def test_each_page_has_its_place() -> None:
    """In one of the four kinds, and once: mkdocs itself says what is in none."""
    nav = safe_load((PROJECT / "mkdocs.yml").read_text())["nav"]
    kinds = {kind: entries for part in nav for kind, entries in part.items()}
    assert list(kinds) == ["Home", "Tutorial", "How to", "Reference", "Explanation"]
    pages = [page for kind in list(kinds)[1:] for entry in kinds[kind] for page in entry.values()]
    assert len(pages) == len(set(pages))
    assert {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} <= set(pages)


def test_reference_pages_are_made_of_the_code(site: Path) -> None:
    commands = (site / "reference-commands.html").read_text()
    assert all(f'id="kidx-{name}"' in commands for name in main._COMMANDS)
    library = (site / "reference-library.html").read_text()
    names = set(kidxlib.__all__) - {"__version__"}
    assert {name for name in names if f'id="kidxlib.{name}"' not in library} == set()
    assert "index.interval.bytes" in (site / "reference-settings.html").read_text()


def test_it_is_read_from_a_disk_and_searched(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in sorted(site.glob("*.html")):
        page.goto(path.as_uri())
        assert page.locator("h1").count() or path.name == "404.html", path.name
    page.goto((site / "index.html").as_uri())
    page.locator('[data-md-component="search-query"]').fill("quarantined")
    page.wait_for_selector(".md-search-result__link")
    found = [str(link.get_attribute("href")) for link in page.locator(".md-search-result__link").all()]
    assert any("catalog.html" in link for link in found), found
    elsewhere = [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    # The page for a wrong address stands at no place of a disk: it asks for files of a server's root.
    assert not elsewhere and not errors
    page.context.close()
