"""What the pages say of the code is what the code says, and their links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import json
import re

import pytest

from benchmarks.figures import MEASURED, recorded
from kidxlib.catalog.tables import TABLES
from kidxlib.compaction import compact_partition
from kidxlib.operations.compare import copy_in_store
from kidxlib.recovery import outcome, partition_fold
from kidxlib.recovery import partition_fold as fold
from kidxlib.storage.store import client
from tests.docs.pages import CATALOG_PAGE, PAGES, PROJECT, SQL_PAGE, read
from tests.docs.render import FIGURE, pages_made, rendered, with_what_is_kept
from tests.kidxlib.audit.test_segment import CASES
from tests.support.damages import all_files

_LINK = re.compile(r"\[[^]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_STATUS_ROW = re.compile(r"^\| `([a-z]+)` \|", re.MULTILINE)
_REASON_ROW = re.compile(r"^\| `([a-z]+)` \| `([a-z-]+)` \|", re.MULTILINE)
_WARNING_ROW = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)
ALL_PAGES = [*PAGES, "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", sorted(pages_made()))
def test_what_is_made_is_what_the_code_and_the_benchmarks_say(page: str) -> None:
    assert read(page) == rendered(page), "run .venv/bin/python -m tests.docs.render"


def test_all_that_is_kept_of_benchmarks_is_shown() -> None:
    pages = "".join(map(read, pages_made()))
    shown = set(re.findall(r"<!-- Measured: ([\w-]+), ([\w ,]+);", pages))
    kept = {
        (path.stem, table["name"])
        for path in MEASURED.glob("*.json")
        for table in json.loads(path.read_text())["tables"]
    }
    assert kept <= shown


@pytest.mark.parametrize("page", PAGES)
def test_kept_figures_stand_within_a_line(page: str) -> None:
    """A line that begins with a comment is no part of its paragraph in Markdown."""
    text = read(page)
    assert text.count("<!-- = ") == text.count("<!-- . -->") == len(FIGURE.findall(text))
    assert not re.search(r"^\s*<!-- = ", text, re.MULTILINE)


def test_a_kept_figure_is_a_target_or_a_cell() -> None:
    told = json.loads((MEASURED / "runs.json").read_text())["tables"][0]
    (front, *cells), columns = told["rows"][1], told["columns"]
    page = f"It takes <!-- = runs; seconds; {front}; {columns[1]} -->9,999<!-- . --> s."
    assert cells[0] in with_what_is_kept(page) and "9,999" not in with_what_is_kept(page)
    stage = [target for target in recorded(MEASURED, "job") if target.name == "job: scan stage"]
    for target in stage:
        page = f"<!-- = job; job: scan stage; {target.unit} --><!-- . -->"
        assert f">{target.shown}<" in with_what_is_kept(page)
    assert len(stage) == 2
    for words in ("job; job: scan stage", "job; job: of another name", "runs; seconds; another row; now, Spark"):
        with pytest.raises(KeyError, match="kept figures are called"):
            with_what_is_kept(f"<!-- = {words} --><!-- . -->")


def test_pages_name_every_table_where_they_name_them() -> None:
    """In the table at the beginning of the catalog's page, and where another opens them, with Spark and without."""
    page, names = read(CATALOG_PAGE), [table.name for table in TABLES]
    beginning = page[: page.index("## Where it is")]
    assert sorted(re.findall(r"^\| `([a-z_]+)` \|", beginning, re.MULTILINE)) == sorted(names)
    for opened in (r"^for table in ([a-z_ ]+); do$", r'^TABLES = """([a-z_\s]+)"""'):
        found = re.search(opened, read(SQL_PAGE), re.MULTILINE)
        assert found is not None and sorted(found[1].split()) == sorted(names)


def test_every_status_and_reason_is_explained() -> None:
    """The words of the code, no more and no fewer: of a scan's end, of a fold's failure, of a log that was not read."""
    in_code = {(status.value, word) for status, word, _ in outcome._ENDS.values() if word is not None}
    fold_failures = [word for word, _ in partition_fold._FAILURES.values()] + [fold.NEGATIVE_EPOCH_OFFSET]
    in_code |= {(outcome.Status.QUARANTINED.value, word) for word in fold_failures}
    for call in ast.walk(ast.parse(inspect.getsource(outcome.end_of_unread_log))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ScanEnd":
            status, word = call.args[:2]
            assert isinstance(word, ast.Constant)
            # Where the status is decided above, it is `gone` (no row is written) or, for a dangling link, `unreadable`.
            name = status.attr.lower() if isinstance(status, ast.Attribute) else "unreadable"
            in_code.add((name, str(word.value)))
    page = read(CATALOG_PAGE)
    section = page[page.index("## The status of a segment") : page.index("## Timestamps")]
    assert set(_REASON_ROW.findall(section)) == in_code
    assert set(_STATUS_ROW.findall(section)) == {status.value for status in outcome.Status}


def test_every_reason_of_an_audit_is_explained() -> None:
    """Those that the tables of damages ask for."""
    page = read("docs/reasons.md")
    reasons = set(re.findall(r"`([a-z-]+)`", page[page.index("## Of an audit") : page.index("## Of other commands")]))
    reported = {damage.reason for damage in all_files.DAMAGES} | {
        case.reason for case in CASES if case.reason is not None
    }
    assert reported <= reasons, reported - reasons


def test_every_verdict_on_a_copy_is_explained() -> None:
    page = read("docs/object-stores.md")
    section = page[page.index("## Whether a copy is") : page.index("## Sources and indexes in")]
    assert _WARNING_ROW.findall(section) == [verdict.value for verdict in copy_in_store.CopyVerdict]
    assert f"has {client.AT_ONCE} requests on their way" in section


def test_every_reason_of_compaction_is_explained() -> None:
    page = read("docs/compaction.md")
    removed = page[page.index("## Files that nothing needs") : page.index("## Tables")]
    assert _WARNING_ROW.findall(removed) == [reason.value for reason in compact_partition.OrphanReason]
    kept = page[page.index("## What stays, and why") :]
    assert {
        compact_partition.LOG_CHANGED,
        compact_partition.UNREADABLE,
        compact_partition.UNFINISHED,
        compact_partition.NOT_LOCKED,
    } <= set(_WARNING_ROW.findall(kept))
    assert f"`{compact_partition.NOT_OURS}`" in page


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_to_what_is_there(page: str) -> None:
    for target in _LINK.findall(read(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = ((PROJECT / page).parent / path).resolve() if path else PROJECT / page
        assert found.exists(), f"{page}: {target}"
        if anchor:
            anchors = {
                re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")
                for title in _HEADING.findall(found.read_text())
            }
            assert anchor in anchors, f"{page}: {target}"
