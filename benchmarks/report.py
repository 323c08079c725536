"""The report of the sample and of a generated fleet of a million segments: seconds, bytes, and in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from playwright.sync_api import Page, sync_playwright

from benchmarks.catalog_rows import HOUR_MS, NOW_MS, OF_PARTITIONS, OF_SEGMENTS, append, joined
from benchmarks.figures import Target, beside, record
from benchmarks.submit import PROJECT, JobRun, run_kidx
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.console import note
from tests.browser.conftest import chromium

_SOURCES: Final = 3
_TOPICS: Final = 200
_SEED: Final = 29
_IN_ONE_PARTITION: Final = 100_000
#: Seconds that a report takes, and megabytes that its page has; None where nothing is required.
_MOST: Final = {"sample": (2, 2), "fleet": (30, 15), "partition": (None, None)}
_PAGES: Final = ("health", "timeline", "retention", "shape", "growth", "replicas", "builds")
#: Milliseconds until the browser has drawn what the script just made it show.
_SHOWN: Final = """name => new Promise(resolve => {
  const began = performance.now();
  const drawn = () => document.body.dataset.page === name
    ? requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)))
    : requestAnimationFrame(drawn);
  location.hash = name;
  requestAnimationFrame(drawn);
})"""
#: Milliseconds until the browser has drawn what turning the wheel over a chart zooms to.
_ZOOMED: Final = """() => new Promise(resolve => {
  const canvas = document.querySelector('[data-chart="timeline"] canvas'), place = canvas.getBoundingClientRect();
  const began = performance.now();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -240, ctrlKey: true, bubbles: true,
    clientX: place.x + place.width / 2, clientY: place.y + 40 }));
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
})"""
_FIRST_PAINT: Final = 'performance.getEntriesByName("first-contentful-paint")[0].startTime'


@click.command()
@click.option("--segments", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def report(segments: int, partitions: int, rounds: int, directory: Path) -> None:
    """Make the report of the sample and of generated catalogs, and look at them in Chromium.

    A generated fleet has segments of three brokers, of any size up to 1 GiB, with timestamps that go back now and then;
    another catalog has 100,000 segments in one partition. No files exist for them.
    """
    place = directory.resolve() / f"report-{segments}-{partitions}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    note(f"a catalog of {segments:,} segments in {partitions:,} partitions, seed {_SEED} …")
    _generate(DeltaTables(str(place / "fleet")), segments, partitions)
    _generate(DeltaTables(str(place / "partition")), _IN_ONE_PARTITION, 1)
    run_kidx("build", PROJECT / "samples" / "kafka-logs", "--index-dir", place / "index", "--catalog", place / "sample")
    targets: list[Target] = []
    for name in ("sample", "fleet", "partition"):
        page = place / f"{name}.html"
        runs: list[JobRun] = []
        for number in range(rounds):
            note(f"round {number + 1} of {rounds}: the report of the {name} …")
            runs.append(run_kidx("report", "--catalog", place / name, "--output", page, "--now", str(NOW_MS), "-v"))
        targets += _targets(name, runs, page, rounds)
    record(directory, "report", targets, [beside("pages", targets, across=True)])


def _targets(name: str, runs: list[JobRun], page: Path, rounds: int) -> Iterator[Target]:
    seconds_most, megabytes_most = _MOST[name]
    yield Target(name=f"{name}: the report", unit="s", values=[run.seconds for run in runs], at_most=seconds_most)
    yield Target(name=f"{name}: the page", unit="MB", values=[page.stat().st_size / 1e6], at_most=megabytes_most)
    yield Target(name=f"{name}: memory", unit="GiB", values=[run.all_bytes / 2**30 for run in runs])
    shown = [_looked_at(page) for _ in range(rounds)]
    for what in shown[0]:
        most = 1_000 if what == "first paint" else 200
        yield Target(name=f"{name}: {what}", unit="ms", values=[each[what] for each in shown], at_most=most)


def _looked_at(path: Path) -> dict[str, float]:
    """Milliseconds from opening the file to the first paint, and from choosing each page until it is drawn."""
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        page: Page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector('body[data-page="overview"]')
        found: dict[str, float] = {"first paint": page.evaluate(_FIRST_PAINT)}
        for name in (*_PAGES, "overview"):
            found[f"page {name}"] = page.evaluate(_SHOWN, name)
        page.evaluate(_SHOWN, "timeline")
        page.wait_for_selector('[data-chart="timeline"] canvas')
        found["zoom of the timeline"] = page.evaluate(_ZOOMED)
        browser.close()
    return found


def _generate(tables: DeltaTables, segments: int, partitions: int) -> None:
    rng = np.random.default_rng(_SEED)
    each = -(-segments // partitions)
    numbers = np.arange(segments)
    place, number = numbers // each, numbers % each
    records = rng.integers(1_000, 1_000_000, segments)
    first = np.arange(0, segments, each)
    ends = np.cumsum(records)
    base_offset = ends - records - np.repeat((ends - records)[first], each)[:segments]
    sizes = np.minimum(rng.lognormal(18, 1.5, segments).astype(np.int64) + 100, 2**30)
    ages = (each - 1 - number) * 6 * HOUR_MS + rng.integers(0, 6 * HOUR_MS, segments)
    timestamps = NOW_MS - ages - np.where(rng.random(segments) < 0.01, 72 * HOUR_MS, 0)
    statuses = np.where(rng.random(segments) < 0.0001, "truncated", "ok")
    columns = {
        **_key(place),
        "base_offset": base_offset,
        "next_offset": base_offset + records,
        "active": number == each - 1,
        "status": pa.array(statuses),
        "reason": pc.if_else(pa.array(statuses == "truncated"), "crc-mismatch", None),
        "log_bytes": sizes,
        "valid_bytes": sizes,
        "records": records,
        "batches": records // rng.integers(1, 200, segments) + 1,
        "max_timestamp_ms": timestamps,
        "codecs": _lists(pa.array(["none", "lz4", "zstd"]).take(place % 3), segments),
        "magics": _lists(pa.array(np.full(segments, 2, np.int32)), segments),
        "records_by_hour": _hours(records, timestamps),
        "log_path": pa.repeat("/nowhere/00000000000000000000.log", segments),
        "index_directory": pa.repeat("/nowhere", segments),
    }
    append(tables, SEGMENTS, columns, OF_SEGMENTS, segments)
    of_partitions = {**_key(np.arange(partitions)), "directory": pa.repeat("/nowhere", partitions)}
    append(tables, PARTITIONS, of_partitions, OF_PARTITIONS, partitions)


def _key(place: Values) -> dict[str, Any]:
    """Source, topic and partition by a partition's place among all: each is on all brokers."""
    of_topic = place // _SOURCES
    topic = joined("topic-", pa.array(of_topic % _TOPICS).cast(pa.string()))
    source = joined("broker-", pa.array(place % _SOURCES).cast(pa.string()))
    return {"source": source, "topic": topic, "partition": pa.array(of_topic // _TOPICS).cast(pa.int32())}


def _hours(records: Values, timestamps: Values) -> Values:
    """Six hours of each segment."""
    count = len(records)
    hours = (timestamps // HOUR_MS)[:, None] - np.arange(5, -1, -1)
    of_hour = np.repeat(records // 6, 6)
    fields = {"hour_ms": hours.ravel() * HOUR_MS, "records": of_hour, "certain_records": of_hour}
    structs = pa.StructArray.from_arrays([pa.array(values) for values in fields.values()], list(fields))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * 6, pa.int32()), structs)


def _lists(values: Values, count: int) -> Values:
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), values)
