"""Pictures of the report for the pages: of a fleet that is well, of one in trouble, and of an empty catalog.

python -m tests.browser.pictures
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from kidxlib.catalog.tables import TABLES
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kidxlib.tables.delta_tables import DeltaTables
from tests.browser.conftest import chromium, open_page
from tests.docs.pages import PROJECT
from tests.support.cluster_metadata import config, data, leader_change, of_broker, partition, topic_id, write_copy
from tests.support.cluster_metadata import topic as of_topic
from tests.support.logs import encoded
from tests.support.report_fleet import NOW_MS, checkpoint, damage_index, run_kidx, some_json

_HOUR_MS: Final = 3_600_000
_DAYS: Final = 9
_BROKERS: Final = (1, 2, 3, 4)
_REPLICAS: Final = 2
_LZ4: Final = 3
#: Of each topic, so that nothing depends on what a broker was started with.
_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * _HOUR_MS),
    "retention.bytes": "-1",
    "remote.storage.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and what is written to each partition.

    Attributes:
        batches: of a segment.
        records: of a batch.
    """

    name: str
    partitions: int
    segments: int
    batches: int
    records: int
    value_bytes: int


_TOPICS: Final = (
    Topic("orders", 12, 6, 14, 20, 300),
    Topic("payments", 8, 5, 12, 12, 240),
    Topic("clicks", 16, 7, 20, 24, 160),
    Topic("inventory", 6, 4, 10, 16, 200),
    Topic("emails", 4, 4, 8, 8, 420),
    Topic("sensors", 10, 6, 16, 20, 120),
)


def build_shop(directory: Path, rng: random.Random, *, in_trouble: bool) -> Path:
    """Write logs, build and audit them. Returns the catalog. In trouble, a log dir has lost
    a partition and a segment, a log and an index are damaged, two replicas differ, and a broker was not audited.
    """
    log_dirs = {f"broker-{number}": directory / f"broker-{number}" for number in _BROKERS}
    for log_dir in log_dirs.values():
        log_dir.mkdir(parents=True)
    records = [of_broker("RegisterBrokerRecord", number, [_directory_id(number)]) for number in _BROKERS]
    for topic in _TOPICS:
        records.append(of_topic(topic.name, topic_id(topic.name[0])))
        records += [config(topic.name, name, value) for name, value in _CONFIGS.items()]
        for number in range(topic.partitions):
            seed, first = rng.randrange(1 << 30), rng.randrange(len(_BROKERS))
            replicas = [_BROKERS[(first + replica) % len(_BROKERS)] for replica in range(_REPLICAS)]
            for broker in replicas:
                altered = in_trouble and broker == replicas[1] and topic.name == "payments" and number in (2, 5)
                place = log_dirs[f"broker-{broker}"] / f"{topic.name}-{number}"
                _write(place, topic, random.Random(seed), altered=altered)
            directories = [_directory_id(broker) for broker in replicas]
            records.append(partition(topic_id(topic.name[0]), number, replicas, directories))
    metadata = leader_change(0, [9]) + data(1, records, NOW_MS - 10 * 24 * _HOUR_MS)
    for broker, log_dir in zip(_BROKERS, log_dirs.values(), strict=True):
        properties = f"version=1\nnode.id={broker}\ncluster.id=shop\ndirectory.id={_directory_id(broker)}\n"
        (log_dir / META_PROPERTIES).write_text(properties)
        write_copy(log_dir / METADATA_DIRECTORY, {0: metadata})
        (log_dir / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":1}')
        run_kidx("build", str(log_dir), "--in-place", "--epochs", "--snapshots")
    if in_trouble:
        _make_trouble(log_dirs, rng)
    catalog = directory / "catalog"
    sources = [option for name, place in log_dirs.items() for option in ("--source", f"{name}={place}")]
    at = ("--catalog", str(catalog))
    for age in (26, 2):
        now = ("--now", str(NOW_MS - age * _HOUR_MS))
        run_kidx("build", *sources, *at, "--index-dir", str(directory / "index"), *now, codes=(0, 3))
    for name, place in list(log_dirs.items())[: -1 if in_trouble else None]:
        audit = ("--source", f"{name}={place}", *at, "--index-dir", str(place), "--now", str(NOW_MS - _HOUR_MS))
        run_kidx("verify", *audit, codes=(0, 3))
    return catalog


def _directory_id(broker: int) -> str:
    return topic_id("ABCDE"[broker])


def _write(place: Path, topic: Topic, rng: random.Random, *, altered: bool) -> None:
    """A partition's segments, in which days are busier than nights."""
    place.mkdir()
    (place / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id(topic.name[0])}\n")
    count = topic.segments * topic.batches
    times = sorted(rng.choices(range(_DAYS * 24), [_busy(hour) for hour in range(_DAYS * 24)], k=count))
    begin_ms, offset = NOW_MS - _DAYS * 24 * _HOUR_MS - 3 * _HOUR_MS, 0
    for segment in range(topic.segments):
        parts, base = [], offset
        for batch in range(topic.batches):
            at_ms = begin_ms + times[segment * topic.batches + batch] * _HOUR_MS
            values = [some_json(rng, topic.value_bytes) for _ in range(topic.records)]
            if altered and segment == 2 and batch == 3:
                values[0] = values[0][::-1]
            inside = [Record(offset + at, at_ms, b"%d" % (offset + at), value, ()) for at, value in enumerate(values)]
            parts.append(encoded.batch_v2(inside, _LZ4, encoded.lz4, leader_epoch=segment // 3))
            offset += topic.records
        (place / segment_file(base, LOG_SUFFIX)).write_bytes(b"".join(parts))
    name, _, partition = place.name.rpartition("-")
    checkpoint(place.parent, name, int(partition), offset)


def _busy(hour: int) -> float:
    """How much is written in an hour: most in the afternoon, and a little more each day."""
    return (1.2 + math.sin((hour % 24 - 9) * math.pi / 12)) * (1 + hour / 400)


def _make_trouble(log_dirs: dict[str, Path], rng: random.Random) -> None:
    def partitions(broker: str, topic: str) -> Iterator[Path]:
        return iter(sorted(log_dirs[broker].glob(f"{topic}-*")))

    shutil.rmtree(next(partitions("broker-2", "orders")))
    logs = sorted(next(partitions("broker-3", "clicks")).glob(f"*{LOG_SUFFIX}"))
    for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, ".timeindex"):
        logs[3].with_suffix(suffix).unlink()
    damage_index(sorted(next(partitions("broker-1", "inventory")).glob(f"*{OFFSET_INDEX_SUFFIX}"))[1], rng)
    log = sorted(next(partitions("broker-3", "sensors")).glob(f"*{LOG_SUFFIX}"))[2]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)


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
