"""What the pages say of the code is what the code says, and their links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import json
import re

import pytest

import kidxlib.indexing.segments
from benchmarks.figures import MEASURED, recorded
from jobs.common.catalog.commit_retry import ATTEMPTS
from kidxlib.audit import copies
from kidxlib.catalog.tables import TABLES
from kidxlib.compaction import orphans, task
from kidxlib.indexing.summary import PROBLEMS_KEPT
from kidxlib.lookup.checked_segment import WINDOW_BYTES
from kidxlib.operations.report.timeline import PIECES_MOST, SEGMENTS_SHOWN
from kidxlib.operations.report.what_if_work import LADDER
from kidxlib.records.bulk.decode import BYTES_MAX, ROWS_MAX
from kidxlib.recovery import outcome, producers
from kidxlib.recovery import partition_fold as fold
from kidxlib.retention import policy as retention_reasons
from kidxlib.run.settings import BuildSettings
from kidxlib.storage.ranged_log import RANGE_BYTES, RANGES_AHEAD
from kidxlib.storage.store import client
from kidxlib.terminal.build import PROBLEMS_SHOWN
from kidxlib.terminal.progress import LINE_SECONDS
from tests.docs.pages import CATALOG_PAGE, PAGES, PROJECT, SQL_PAGE, read
from tests.docs.prose import sentences_of
from tests.docs.render import FIGURE, pages_made, rendered, with_what_is_kept, without_what_is_kept
from tests.kidxlib.audit.logs.test_log import CASES
from tests.support.damages import all_files
from tests.support.logs.golden import SAMPLES

_LINK = re.compile(r"\[[^]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_STATUS_ROW = re.compile(r"^\| `([a-z]+)` \|", re.MULTILINE)
_REASON_ROW = re.compile(r"^\| `([a-z]+)` \| `([a-z-]+)` \|", re.MULTILINE)
_RETENTION_REASON_ROW = re.compile(r"^\| `(delete|keep|undecided)` \| `([a-z -]+)` \|", re.MULTILINE)
_WARNING_ROW = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)
ALL_PAGES = [*PAGES, "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", sorted(pages_made()))
def test_what_is_made_is_what_the_code_and_the_benchmarks_say(page: str) -> None:
    assert read(page) == rendered(page), "run .venv/bin/python -m tests.docs.render"


def test_all_that_is_kept_of_benchmarks_is_shown() -> None:
    pages = "".join(map(read, pages_made()))
    shown = set(re.findall(r"<!-- Measured: ([\w-]+), ([\w ]+);", pages))
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


_UNIT = "ns|µs|ms|s|seconds?|minutes?|min|hours?|h|[kMGT]i?B/s|M/s"
#: A number with a unit in which something is measured; or the heading of such numbers: `from disk, ms`.
_MEASUREMENT = re.compile(rf"\d ?(?:{_UNIT}|[kMG]i?B a second|×|%|times as)(?![\w/])|, (?:{_UNIT})$|^(?:{_UNIT}) per ")
#: Sections in which they may be typed, and why.
_SECTIONS_TYPED = {
    ("docs/performance.md", "Profiles"): "no benchmark repeats them: each has its date and machine",
    ("docs/performance.md", "What was tried, and did not help"): "no benchmark repeats them, either",
    ("docs/performance.md", "What breaks at 100 million segments and 1 PB"): "calculated",
    ("docs/sizing.md", "Three fleets"): "calculated",
}
_ONCE = "measured once: its date stands there"
#: Sentences and cells that may have one, by words of theirs, and why. `§` stands for code.
_TYPED = {
    ("docs/audit.md", "one thread takes at 250 MB/s"): "a rate that the code takes, not a measured one",
    ("docs/clusters.md", "Two executors that unpack"): _ONCE,
    ("docs/compaction.md", "§ (60 s)"): "a setting",
    ("docs/compaction.md", "µs per lookup"): _ONCE,
    ("docs/object-stores.md", "One takes 1.2 ms of a core"): _ONCE,
    ("docs/object-stores.md", "A server that waits 50 ms"): "what the benchmark sets",
    ("docs/object-stores.md", "one request at a time, s"): _ONCE,
    ("docs/object-stores.md", "as kidx asks, s"): _ONCE,
    ("docs/object-stores.md", "The pauses between the tries"): "a setting",
    ("docs/performance.md", "With 1 % new"): "the name of a case",
    ("docs/performance.md", "waits 400 ms before it answers"): "what the benchmark sets",
    ("docs/performance.md", "Its target, 0.2 ms a segment"): "what is required",
    ("docs/performance.md", "It is to be 5 times as fast"): "what is required",
    ("docs/performance.md", "§ 20 times as fast"): "what is required",
    ("docs/performance.md", "is to give 0.8 times as many"): "what is required",
    ("docs/read.md", "45 minutes around a midnight"): "what a sample holds",
    ("docs/read.md", "without one 1 ms before 1970"): "a value",
    ("docs/recover.md", "(9 s by default"): "Kafka's default",
    ("docs/report.md", "within 4 % of what was said"): _ONCE,
    ("docs/retention.md", "§ (1h)"): "a setting",
    ("docs/retention.md", "§ (60s)"): "a setting",
    ("docs/sizing.md", "(0.5 %)"): "of the format",
}


@pytest.mark.parametrize("page", PAGES)
def test_measurements_are_those_that_are_kept(page: str) -> None:
    """Typed ones become stale. They come from what is kept (`render.FIGURE`), or stand in the lists above."""
    typed, used, section = list[str](), set[tuple[str, str]](), ""
    text = read(page)
    headings = set(_HEADING.findall(text))
    for sentence in sentences_of(without_what_is_kept(text), page):
        section = sentence.text if sentence.text in headings else section
        if _MEASUREMENT.search(sentence.text):
            in_list = {key for key in _TYPED if key[0] == page and key[1] in sentence.text}
            allowed = {(page, section)} & _SECTIONS_TYPED.keys() or in_list
            used |= allowed
            typed += [] if allowed else [str(sentence)]
    assert not typed, "\n".join(["kept of which benchmark? Else say it without a number, or list it:", *typed])
    assert used == {key for key in [*_TYPED, *_SECTIONS_TYPED] if key[0] == page}, "leave out what is no longer there"


@pytest.mark.parametrize(
    "text", ["It takes 5 s.", "1.5 × as fast", "read at 1,000 MB/s", "3 % of them", "3.3 GB a second", "from disk, ms"]
)
def test_a_measurement_is_found(text: str) -> None:
    assert _MEASUREMENT.search(text)
    assert not _MEASUREMENT.search("segments of 1 GiB, 3 sources, 16 KiB and 2 shards, segments")


def test_pages_name_every_table_where_they_name_them() -> None:
    """In the table at the beginning of the catalog's page, and where another opens them, with Spark and without."""
    page, names = read(CATALOG_PAGE), [table.name for table in TABLES]
    beginning = page[: page.index("## Where it is")]
    assert sorted(re.findall(r"^\| `([a-z_]+)` \|", beginning, re.MULTILINE)) == sorted(names)
    for opened in (r"^for table in ([a-z_ ]+); do$", r'^TABLES = """([a-z_\s]+)"""'):
        found = re.search(opened, read(SQL_PAGE), re.MULTILINE)
        assert found is not None and sorted(found[1].split()) == sorted(names)


_WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_MIB = 1024 * 1024
#: Where pages count what the code has: the page, its words, and how many there are.
_COUNTED = [
    (
        "README.md",
        r"bundled\s+sample, (\w+) topics",
        len({path.name.rpartition("-")[0] for path in SAMPLES.glob("*-*")}),
    ),
    ("docs/airflow.md", r"there are (\w+) DAGs", len([*PROJECT.glob("airflow_dags/kidx_*.py")])),
    ("docs/compaction.md", r"for each file, up to (\w+),", PROBLEMS_SHOWN),
    ("docs/library.md", r"RecordBatchReader`: ([\d,]+) records at", ROWS_MAX),
    ("docs/library.md", r"or (\w+) MiB of them", BYTES_MAX // _MIB),
    ("docs/object-stores.md", r"(\w+) ranges are on their way", RANGES_AHEAD),
    ("docs/object-stores.md", r"in ranges of (\w+) MiB", RANGE_BYTES // _MIB),
    ("docs/object-stores.md", r"each (\w+) KiB that it looks at", WINDOW_BYTES // 1024),
    ("docs/operations.md", r"`longest_run_hours` \((\w+)\)", BuildSettings().longest_run_hours),
    ("docs/operations.md", r"After (\w+) tries", ATTEMPTS),
    ("docs/operations.md", r"in chunks of (\w+) MiB", RANGE_BYTES // _MIB),
    ("docs/operations.md", r"MiB, (\w+) ahead", RANGES_AHEAD),
    ("docs/operations.md", r"keeps (\w+) reads in flight", RANGES_AHEAD),
    ("docs/exit-codes.md", r"named, (\w+) on screen", PROBLEMS_SHOWN),
    ("docs/exit-codes.md", r"up to ([\d,]+) with `--json`", PROBLEMS_KEPT),
    ("docs/operations.md", r"another every (\w+) seconds", int(LINE_SECONDS)),
    ("docs/report.md", r"has (\w+) values of `retention.ms`", len(LADDER.times_ms)),
    ("docs/report.md", r"and (\w+) of `retention.bytes`", len(LADDER.sizes)),
    ("docs/report.md", r"([\d,]+) segments are shown one by one", SEGMENTS_SHOWN),
    ("docs/report.md", r"up to (\w+) pieces", PIECES_MOST),
    ("docs/performance.md", r"by ranges of (\w+) MiB", RANGE_BYTES // _MIB),
]


@pytest.mark.parametrize(("page", "words", "count"), _COUNTED)
def test_what_pages_count_is_as_many(page: str, words: str, count: int) -> None:
    found = re.search(words, read(page))
    assert found is not None, f"{page} no longer says so: leave it out here"
    expected = _WORDS[count] if count < len(_WORDS) else f"{count:,}"
    assert found[1].lower() in (expected, f"{count:,}")


def test_every_status_and_reason_is_explained() -> None:
    """The words of the code, no more and no fewer: of a scan's end, of a fold's failure, of a log that was not read."""
    in_code = {(status.value, word) for status, word, _ in outcome._ENDS.values() if word is not None}
    fold_failures = [word for word, _ in producers._FAILURES.values()] + [fold.NEGATIVE_EPOCH_OFFSET]
    in_code |= {(outcome.Status.QUARANTINED.value, word) for word in fold_failures}
    for call in ast.walk(ast.parse(inspect.getsource(kidxlib.indexing.scan.why_not_read))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ScanEnd":
            status, word = call.args[:2]
            assert isinstance(word, ast.Constant)
            # Where the status is decided above, it is `gone` (no row is written) or, for a dangling link, `unreadable`.
            name = status.attr.lower() if isinstance(status, ast.Attribute) else "unreadable"
            in_code.add((name, str(word.value)))
    page = read(CATALOG_PAGE)
    section = page[page.index("## How a segment stands") : page.index("## Timestamps")]
    assert set(_REASON_ROW.findall(section)) == in_code
    assert set(_STATUS_ROW.findall(section)) == {status.value for status in outcome.Status}


def test_every_reason_and_warning_of_retention_is_explained() -> None:
    page = read("docs/retention.md")
    reasons = page[page.index("## Reasons") : page.index("## Warnings")]
    assert _RETENTION_REASON_ROW.findall(reasons) == [
        (retention_reasons.decision_of(reason).value, reason.value) for reason in retention_reasons.Reason
    ]
    warnings = page[page.index("## Warnings") : page.index("## Policies")]
    assert _WARNING_ROW.findall(warnings) == [warning.value for warning in retention_reasons.PlanWarning]


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
    assert _WARNING_ROW.findall(section) == [verdict.value for verdict in copies.CopyVerdict]
    assert f"has {client.AT_ONCE} requests on their way" in section


def test_every_reason_of_compaction_is_explained() -> None:
    page = read("docs/compaction.md")
    removed = page[page.index("## Files that nothing needs") : page.index("## Tables")]
    assert _WARNING_ROW.findall(removed) == [reason.value for reason in orphans.OrphanReason]
    kept = page[page.index("## What stays, and why") :]
    assert {
        task.LOG_CHANGED,
        task.UNREADABLE,
        task.UNFINISHED,
        task.NOT_LOCKED,
    } <= set(_WARNING_ROW.findall(kept))
    assert f"`{task.NOT_OURS}`" in page


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_to_what_is_there(page: str) -> None:
    """Files of the repository, and headings in pages."""
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
