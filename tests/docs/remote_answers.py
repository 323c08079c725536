"""A bucket of remote segments that is damaged, and what the questions on the page on SQL say of it."""

from __future__ import annotations

import shutil
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from tests.docs.log_dirs import BEHIND
from tests.docs.pages import PROJECT
from tests.support.spark.jobs import run_here
from tests.support.tiered_sites import RemoteSegment, Site

Rows = list[tuple[Any, ...]]

SOURCE: Final = "archive"
FIRST_AT: Final = "2026-11-26T10:00:00Z"
SECOND_AT: Final = "2026-11-26T11:00:00Z"
_ORPHAN: Final = "kidx-" * 4 + "nA"


def audit(directory: Path, catalog: Path) -> None:
    """Audit a bucket, damage it, and audit it again."""
    site = site_of(directory)
    shutil.copytree(PROJECT / "samples" / "tiered", directory)
    options = (f"{SOURCE}={directory}", "--tiered-metadata", site.log_dir, "--catalog", catalog)
    first = run_here(kidx, "verify-tiered", *options, "--now", FIRST_AT)
    assert first.code == 0, first.err
    _lost(site).object(TRANSACTION_INDEX_SUFFIX).unlink()
    cut = _cut(site).object(OFFSET_INDEX_SUFFIX)
    cut.write_bytes(cut.read_bytes()[:-3])
    _lost(site).copy_objects(_ORPHAN, 1_000)
    second = run_here(kidx, "verify-tiered", *options, "--now", SECOND_AT)
    assert second.code == 3, second.err


def site_of(directory: Path) -> Site:
    """The bucket and its metadata."""
    return Site(directory / STORAGE_DIRECTORY, directory / "log-dir")


def _lost(site: Site) -> RemoteSegment:
    return next(each for each in site.segments("payments") if not each.row["transaction_index_empty"])


def _cut(site: Site) -> RemoteSegment:
    return site.segments("readings")[1]


def damaged(directory: Path) -> Rows:
    """One that is lost and one that is cut; the rest is not broken."""
    site = site_of(directory)
    lost, cut = _lost(site), _cut(site)
    silent = (
        "consumers of committed records get those of transactions that were aborted in offsets {} to {}, and no broker "
        "says so"
    )
    fails = (
        "a broker loads the three indexes of a segment together: fetches of offsets {} to {} fail, and consumers stop "
        "there"
    )
    return [
        (
            *(SOURCE, "payments", 0, lost.offsets[0], lost.id),
            *(TRANSACTION_INDEX_SUFFIX, "missing", silent.format(*lost.offsets)),
        ),
        (
            *(SOURCE, "readings", 0, cut.offsets[0], cut.id),
            *(OFFSET_INDEX_SUFFIX, "fails-sanity-check", fails.format(*cut.offsets)),
        ),
    ]


def bytes_by_topic(directory: Path) -> Rows:
    """By the files that are there; those that nobody knows are read by nobody."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in site_of(directory).bucket.glob("*/*-*.*"):
        found[path.parent.name.split("-")[0]].append(path)
    rows = [
        (
            *(SOURCE, topic, sum(path.suffix == LOG_SUFFIX and _ORPHAN not in path.name for path in paths)),
            sum(path.stat().st_size for path in paths),
            sum(path.stat().st_size for path in paths if _ORPHAN in path.name),
        )
        for topic, paths in found.items()
    ]
    assert sum(row[4] for row in rows) > 0
    return sorted(rows, key=lambda row: (-row[3], row))


def behind(directory: Path) -> Rows:
    """The partition of which the log dir has two full segments more."""
    copied_to = max(each.offsets[1] for each in site_of(directory).segments("payments"))
    later = [directory.parent / "broker" / "payments-0" / f"{base_offset:020d}.log" for base_offset in BEHIND[1:3]]
    since = datetime.fromtimestamp(1_790_000_100_001 / 1000, UTC)
    return [("broker", "payments", 0, copied_to, 2, sum(path.stat().st_size for path in later), since)]


def changed(directory: Path) -> Rows:
    """The index that was cut."""
    cut = _cut(site_of(directory)).object(OFFSET_INDEX_SUFFIX)
    at = [datetime.fromisoformat(text) for text in (FIRST_AT, SECOND_AT)]
    return [(SOURCE, "readings", 0, cut.name, *at, cut.stat().st_size + 3, cut.stat().st_size)]
