"""The report in a real browser: it runs under its own policy, says what the catalog says, and anybody can use it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from kidxlib.catalog.findings import ACCEPTED as ACCEPTED_TABLE
from kidxlib.catalog.findings import REMOTE_SEGMENTS
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, TABLES
from kidxlib.operations.report.questions import DAMAGED as DAMAGED_SEGMENTS
from kidxlib.operations.report.what_if import LADDER, LATER_MS
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.protocol import SqlQuestion
from tests.browser.conftest import Opened, Reported, open_page
from tests.support.catalog import append_rows
from tests.support.report_fleet import ACCEPTED, BUILT_MS, DAMAGED, DIVERGED, FUTURE, NOW_MS, SMALL, run_kidx

_PAGES: Final = ("overview", "health", "timeline", "retention", "shape", "growth", "replicas", "builds")
_HOSTILE: Final = "</script><img src=x onerror=alert(1)>\"'`${x}&amp;<!--"
#: The contrast of each colour in a legend with the page.
_CONTRASTS: Final = """() => {
  const light = (text) => {
    const [red, green, blue] = text.match(/[\\d.]+/g).map(Number).map((value) => value / 255)
      .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  return Object.fromEntries([...document.querySelectorAll(".swatch")].map((swatch) => {
    const own = light(getComputedStyle(swatch).backgroundColor);
    return [swatch.classList[1], (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05)];
  }));
}"""
#: All characters that a topic's name may have.
_TOPIC: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"


@pytest.fixture(autouse=True)
def _windows_are_closed(browser: Browser) -> Iterator[None]:
    yield
    for window in browser.contexts:
        window.close()


@pytest.fixture
def opened(browser: Browser, reported: Reported) -> Opened:
    return open_page(browser, reported.page)


def _report(browser: Browser, catalog: Path, code: int = 0) -> Opened:
    page = catalog.with_name("report.html")
    run_kidx("report", "--catalog", str(catalog), "--output", str(page), "--now", str(NOW_MS), codes=(code,))
    return open_page(browser, page)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_each_page_runs_and_is_accessible(browser: Browser, reported: Reported, theme: str, width: int) -> None:
    opened = open_page(browser, reported.page, theme=theme, width=width)
    for name in _PAGES:
        opened.go(name)
        for row in opened.page.locator("button.unfold").all():
            row.click()
        found = Axe().run(opened.page)
        assert not found.violations_count, f"{name}: {found.generate_report()}"
        sideways = opened.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert sideways <= 0, f"{name} is wider than the window by {sideways}"
    assert not opened.errors
    assert opened.requests == [reported.page.as_uri()], "a page asks for nothing but itself"


def test_five_things_are_told_at_once(opened: Opened) -> None:
    told = opened.page.locator(".attention").inner_text()
    for topic in (FUTURE, DIVERGED, DAMAGED, SMALL):
        assert topic in told
    assert ".txnindex" in told and "1 file broken" in told, "and not the one that is accepted"
    assert len(opened.page.locator(".attention li.bad").all()) == 4


def test_four_questions_are_answered_at_a_glance(opened: Opened, reported: Reported) -> None:
    numbers, answers = reported.numbers, opened.page.locator(".card").all_inner_texts()
    well, urgent, next_, cost = answers
    states = [state for row in numbers["fleet"]["sources"] for state in row["states"]]
    assert "No" in well.splitlines()
    for state, words in ((3, "partitions are bad"), (1, "not looked at since their last build")):
        assert f"{states.count(state)} {words}" in well
    assert all(row["title"] in urgent for row in numbers["attention"] if row["severity"] == "bad")
    (disk,) = numbers["outlook"]["disks"]
    assert disk["sources"] == sorted(reported.fleet.log_dirs) and disk["free_bytes"] <= disk["total_bytes"]
    assert numbers["outlook"]["bytes_a_day"] == round(_written_in_seven_days(reported.fleet.catalog) / 7) > 0
    assert "Room for" in next_ and "What retention deletes is not known" in next_
    assert numbers["outlook"]["stored"]["log_bytes"] == numbers["overview"]["log_bytes"] and "Indexes take" in cost


def test_the_map_has_each_partition_of_each_source(opened: Opened, reported: Reported) -> None:
    fleet = reported.numbers["fleet"]
    names = [f"{row['topic']}-{row['partition']}" for row in fleet["partitions"]]
    for row in fleet["sources"]:
        on_disk = {path.name for path in reported.fleet.log_dirs[row["source"]].iterdir() if path.is_dir()}
        assert {name for name, state in zip(names, row["states"], strict=True) if state >= 0} == on_disk
    bad = {(row["source"], row["topic"]): row["reasons"] for row in fleet["reasons"] if row["state"] == 3}
    assert set(bad) == {("broker-1", DAMAGED), ("broker-2", DIVERGED), ("broker-3", FUTURE)}, "and not the accepted one"
    assert bad["broker-1", DAMAGED] == ["1 file broken or torn"]
    assert len(_rows(opened, "fleet")) == len(fleet["reasons"])
    # The place of a bad one in the picture leads to its timeline.
    chart = opened.page.locator('[data-chart="fleet"] canvas').first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    column, row_number = names.index(f"{DAMAGED}-0"), 0
    left, right, top, bottom = 140, 24, 8, 76  # the grid of the chart
    width, height = box["width"] - left - right, box["height"] - top - bottom
    x = box["x"] + left + width * (column + 0.5) / len(names)
    y = box["y"] + top + height * (row_number + 0.5) / len(fleet["sources"])
    opened.page.mouse.move(x, y)
    opened.page.mouse.click(x, y)
    opened.page.wait_for_selector(f'[data-chart="timeline"]:has-text("{DAMAGED}-0")')


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_that_mean_something_stand_out(browser: Browser, reported: Reported, theme: str) -> None:
    """Against the page, three to one, as WCAG 2.2 has it for graphics (1.4.11). What is absent need not."""
    opened = open_page(browser, reported.page, theme=theme)
    for name in ("overview", "timeline"):
        opened.go(name)
        contrasts: dict[str, float] = opened.page.evaluate(_CONTRASTS)
        for kind, contrast in contrasts.items():
            assert contrast >= 3 or kind in ("hole", "absent"), f"{kind} of {name}: {contrast:.2f}"
        assert {"bad", "warning", "unknown"} <= contrasts.keys()


def test_an_empty_catalog_says_what_to_run(browser: Browser, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    for table in TABLES:
        DeltaTables(str(catalog)).make(table)
    opened = _report(browser, catalog)
    for name in _PAGES:
        opened.go(name)
        assert "kidx " in opened.page.locator("main").inner_text(), name
    opened.go("overview")
    assert opened.page.locator(".card .verdict").all_inner_texts() == ["Not known"] * 4, "no zero, nothing green"
    assert not opened.errors


def test_what_is_to_look_at_leads_to_its_rows(opened: Opened) -> None:
    """Each line to the table that has more, whose rows lead to the timeline of their partition."""
    for line in range(opened.page.locator(".attention a").count()):
        opened.go("overview")
        place = str(opened.page.locator(".attention a").nth(line).get_attribute("href"))
        opened.page.locator(".attention a").nth(line).click()
        page, _, table = place.removeprefix("#").partition("/")
        opened.page.wait_for_selector(f'body[data-page="{page}"]')
        expected = opened.page.locator(f'[data-table="{table}"] tbody tr' if table else "main h1")
        assert expected.first.is_visible()
    opened.go("health")
    opened.page.locator('[data-table="files"] button.unfold').first.click()
    opened.page.locator('[data-table="files"] .unfolded a').first.click()
    opened.page.wait_for_selector(f'[data-chart="timeline"]:has-text("{DAMAGED}-0")')
    assert opened.page.url.endswith(f"#timeline/{DAMAGED}-0"), "the address may be passed on"


def test_numbers_on_the_page_are_those_of_the_catalog(opened: Opened, reported: Reported) -> None:
    tables = DeltaTables(str(reported.fleet.catalog))
    segments = tables.read(SEGMENTS, ["source", "topic", "log_bytes", "batches", "records"]).to_pylist()
    remote = tables.read(REMOTE_SEGMENTS, ["log_bytes"]).to_pylist()
    assert _tiles(opened) == {
        "log_bytes": sum(row["log_bytes"] for row in segments),
        "segments": len(segments),
        "partitions": tables.read(PARTITIONS, ["topic"]).num_rows,
        "sources": 3,
        "topics": len({row["topic"] for row in segments}),
        "remote_bytes": sum(row["log_bytes"] for row in remote),
        "remote_segments": len(remote),
    }
    for column, name in (("topic", "topics"), ("source", "sources")):
        by = {key: [row for row in segments if row[column] == key] for key in {row[column] for row in segments}}
        expected = {key: (len(rows), sum(row["log_bytes"] for row in rows)) for key, rows in by.items()}
        assert {row[0]: (int(row[2]), int(row[3])) for row in _rows(opened, name)} == expected
    opened.go("shape")
    for row in _rows(opened, "shape"):
        of_topic = [each for each in segments if each["topic"] == row[0].removesuffix("small batches").strip()]
        assert int(row[2]) == sum(each["batches"] for each in of_topic)
    opened.go("growth")
    assert sum(int(row[1]) for row in _rows(opened, "days")) == sum(row["records"] for row in segments)


def test_what_is_shown_is_what_the_json_says(opened: Opened, reported: Reported) -> None:
    numbers = reported.numbers
    opened.go("retention")
    topics = [
        row["topic"] for row in numbers["retention"]["topics"] if row["configured"]["unknown"] and not row["kept"]
    ]
    assert [row[0] for row in _rows(opened, "configured") if "not given" in row] == topics, (
        "as the overview counts them"
    )
    opened.go("health")
    shown = _rows(opened, "files")
    assert len(shown) == 2 and f"{DAMAGED}-0/" in shown[0][0] and f"{ACCEPTED}-1/" in shown[1][0]
    for row in opened.page.locator('[data-table="files"] button.unfold').all():
        row.click()
    unfolded = opened.page.locator('[data-table="files"] .unfolded').all_inner_texts()
    for found, text in zip(numbers["health"]["files"], unfolded, strict=True):
        assert f"byte {found['position']}" in text and "kidx build --repair --in-place" in text
        assert ("Accepted by ops: the broker is replaced today" in text) == found["is_accepted"]
    opened.go("shape")
    savings = {row["topic"]: row for row in numbers["shape"]["savings"]}
    shown_savings = _rows(opened, "savings")
    assert {row[0]: float(row[1]) for row in shown_savings} == {
        name: row["best"]["saved"] for name, row in savings.items()
    }
    assert savings[SMALL]["best"]["saved"] > 0.5
    opened.go("replicas")
    assert f"{DIVERGED}-0" in _rows(opened, "replicas")[0][0]
    opened.go("timeline")
    for name in (f"{DAMAGED}-0", f"{FUTURE}-0", f"{DIVERGED}-0"):
        opened.page.select_option("#timeline-partition", name)
        opened.page.wait_for_selector(f'[data-chart="timeline"]:has-text("{name}")')
        lanes = next(row for row in numbers["timelines"] if f"{row['topic']}-{row['partition']}" == name)["lanes"]
        assert [int(row[1]) for row in _rows(opened, "lanes")] == [at for lane in lanes for at in lane["base_offset"]]


def test_a_gap_that_compaction_leaves_is_not_among_what_is_to_be_looked_at(browser: Browser, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    append_rows(catalog, BUILDS, {"build_id": "b", "sources": [("disk", "/logs")]})
    for topic, records in (("cleaned", 5), ("holes", 10)):
        of_topic = {"source": "disk", "topic": topic, "partition": 0, "status": "ok", "records": records}
        rows = [{**of_topic, "base_offset": start, "next_offset": start + 10} for start in (0, 20)]
        append_rows(catalog, SEGMENTS, *rows)
    opened = _report(browser, catalog, 3)
    opened.go("timeline")
    listed = opened.page.locator("#timeline-partition option").all_inner_texts()
    assert listed == ["holes-0 · 2 segments · gap", "cleaned-0 · 2 segments"]


def test_a_list_that_ends_early_says_so(browser: Browser, tmp_path: Path) -> None:
    """So many segments are damaged that not all are listed; the SQL below the list gives them all."""
    catalog = tmp_path / "catalog"
    keys = {"source": "disk", "topic": "orders"}
    facts = {"status": "corrupt", "reason": "bad-crc", "log_bytes": 5, "valid_bytes": 0, "log_path": "/logs/0.log"}
    rows = [{**keys, **facts, "partition": number, "base_offset": 0} for number in range(1_003)]
    append_rows(catalog, SEGMENTS, *rows)
    append_rows(catalog, ACCEPTED_TABLE, {**keys, "partition": 2_000, "base_offset": 0, "file": ".log", "reason": "x"})
    opened = _report(browser, catalog, 3)
    assert "1,003 segments damaged" in opened.page.locator(".attention").inner_text()
    opened.go("health")
    section = opened.page.locator("section:has(> h2:text-is('Damaged segments'))")
    assert "1,000 of 1,003 damaged segments are shown; the SQL below gives all." in section.inner_text()
    sql = section.locator("pre").first.text_content()
    asked = SqlQuestion("all", sql or "", (SEGMENTS, ACCEPTED_TABLE), DAMAGED_SEGMENTS.schema)
    assert DeltaTables(str(catalog)).ask(asked).num_rows == 1_003
    assert opened.page.get_by_text("are shown; the SQL below").count() == 1, "other lists are whole"


def test_sliders_give_what_a_plan_gives(opened: Opened, reported: Reported, rng: random.Random) -> None:
    """Twenty pairs of limits: the page's numbers are those of `kidx retention` for the same time and limits, now and a
    week later, and so is the first offset that stays of each partition.
    """
    opened.go("retention")
    opened.page.locator(f'[data-table="retention"] button.link:text-is("{FUTURE}")').click()
    for _ in range(20):
        time, size = rng.randrange(len(LADDER.times_ms)), rng.randrange(len(LADDER.sizes))
        for name, step in (("retention-ms", time), ("retention-bytes", size)):
            opened.page.locator(f"#{name}").fill(str(step))
        plans = [_plan(reported.fleet.catalog, time, size, NOW_MS + later) for later in LATER_MS]
        now, later = ([row for row in plan["segments"] if row["decision"] == "delete"] for plan in plans)
        assert _tiles(opened) == {
            "freed": sum(row["bytes"] for row in now),
            "deleted": len(now),
            "freed_later": sum(row["bytes"] for row in later),
            "deleted_later": len(later),
        }, f"{LADDER.times_ms[time]} ms, {LADDER.sizes[size]} bytes"
        of_topic = [row for row in plans[0]["segments"] if row["topic"] == FUTURE]
        stays = next((row for row in of_topic if row["decision"] == "keep"), None)
        opened.page.wait_for_function("() => document.querySelector('[data-table=\"retention-partitions\"]') !== null")
        (row,) = _rows(opened, "retention-partitions")
        assert int(row[2]) == sum(each["decision"] == "delete" for each in of_topic)
        if stays is not None:
            assert (int(row[4]), row[5]) == (stays["base_offset"], stays["reason"])


def test_everything_is_reached_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.locator('nav a[href="#retention"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_selector('body[data-page="retention"]')
    assert page.evaluate("document.activeElement.tagName") == "H1", "the page's heading is read out next"
    page.locator("#retention-ms").focus()
    before = page.locator("#retention-ms-shown").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#retention-ms-shown").inner_text() != before


def test_names_are_text_whatever_they_are(browser: Browser, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    keys = {"source": _HOSTILE, "topic": _TOPIC, "partition": 0}
    facts = {"status": "ok", "log_bytes": 5, "valid_bytes": 5, "batches": 1, "records": 1, "next_offset": 1}
    times = {"max_timestamp_ms": 2**63 - 1, "log_mtime_ns": 0, "log_path": f"/{_HOSTILE}/{0:020}.log"}
    append_rows(catalog, SEGMENTS, {**keys, **facts, **times, "base_offset": 0})
    append_rows(catalog, PARTITIONS, {**keys, "present": True, "directory": _HOSTILE})
    opened = _report(browser, catalog)
    dialogs: list[str] = []
    opened.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    for name in _PAGES:
        opened.go(name)
        assert opened.page.locator("img").count() == 0
    opened.go("overview")
    assert [row[0] for row in _rows(opened, "sources")] == [_HOSTILE]
    assert [row[0] for row in _rows(opened, "topics")] == [_TOPIC]
    assert not dialogs and not opened.errors
    # Nothing that got into the page after all would run.
    opened.page.evaluate("""() => { const script = document.createElement("script");
      script.textContent = "document.body.dataset.ran = 'yes'"; document.body.append(script); }""")
    assert opened.page.evaluate("document.body.dataset.ran") is None


def _plan(catalog: Path, time: int, size: int, now_ms: int) -> dict[str, Any]:
    limits = ("--retention-ms", str(LADDER.times_ms[time]), "--retention-bytes", str(LADDER.sizes[size]))
    plan = run_kidx("retention", "--catalog", str(catalog), *limits, "--what-if", "--now", str(now_ms), "--json")
    found: dict[str, Any] = json.loads(plan)
    return found


def _written_in_seven_days(catalog: Path) -> float:
    """The bytes of records of the seven days before the build, by the hours of each segment."""
    rows = DeltaTables(str(catalog)).read(SEGMENTS, ["valid_bytes", "records", "records_by_hour"]).to_pylist()
    hours = range(BUILT_MS - 7 * 24 * 3_600_000, BUILT_MS)
    shares = (
        row["valid_bytes"] / row["records"] * hour["records"]
        for row in rows
        for hour in row["records_by_hour"]
        if hour["hour_ms"] in hours
    )
    return float(sum(shares))


def _tiles(opened: Opened) -> dict[str, int]:
    tiles = opened.page.locator("dd[data-name]").all()
    return {str(tile.get_attribute("data-name")): int(tile.get_attribute("data-value") or "-1") for tile in tiles}


def _rows(opened: Opened, name: str) -> list[list[str]]:
    """The rows of a table that are shown: of numbers the exact values."""
    found: list[list[str]] = opened.page.evaluate(
        """name => [...document.querySelectorAll(`[data-table="${name}"] tbody tr:not(.unfolded)`)].map(row =>
          [...row.cells].map(cell => cell.dataset.value ?? cell.textContent.replace(/^[+−] /, "")))""",
        name,
    )
    return found
