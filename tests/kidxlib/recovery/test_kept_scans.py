"""A scan that was kept is used in place of the log, as long as the log is what it was."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.catalog.segments import IntervalSource
from kidxlib.indexing.plan import BuildTask
from kidxlib.indexing.segments import build_segments
from kidxlib.recovery.kept_scans import KeptScans, KeptScansWriter
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, recover, scan_logs
from kidxlib.storage.location import Directory, FileVersion
from kidxlib.storage.log_bytes import WholeLog
from kidxlib.storage.opened_log import opened_log
from tests.support.logs.batches import Batch, encode
from tests.support.plans import listed_segment

_OPTIONS: Final = RecoverOptions()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(encode(0, [Batch(), Batch(body=b"x" * 9000), Batch()])))
    return path


def _scan(log: Path) -> tuple[FileVersion, RecoveredSegment]:
    with opened_log(str(log)) as opened:
        return opened.version, recover(opened.log(use_mmap=False), 0, _OPTIONS)


def _kept(log: Path, *, in_pass: bool = False) -> KeptScans:
    """The scan of a log, alone or as the second one of a pass over it twice."""
    writer = KeptScansWriter(log.parent / "scans")
    version, scanned = _scan(log)
    if in_pass:
        bytes_of_log = WholeLog(np.frombuffer(log.read_bytes(), np.uint8))
        scans = scan_logs([bytes_of_log] * 2, [0, 0], [_OPTIONS] * 2)
        place = writer.keep_pass([replace(version, inode=None), version], [_OPTIONS] * 2, scans)
        assert place is not None
        writer.keep_of_pass(0, place, 1)
    else:
        writer.keep(0, version, _OPTIONS, scanned)
    writer.close()
    return writer.of_partition()


def _is_same(found: RecoveredSegment | None, expected: RecoveredSegment) -> bool:
    assert found is not None
    return (
        (found.end, found.facts) == (expected.end, expected.facts)
        and (found.offset_index, found.time_index) == (expected.offset_index, expected.time_index)
        and np.array_equal(found.producer_events, expected.producer_events)
        and np.array_equal(found.leader_epochs, expected.leader_epochs)
    )


@pytest.mark.parametrize("in_pass", [False, True])
def test_a_scan_comes_back_as_it_was(log: Path, in_pass: bool) -> None:
    version, scanned = _scan(log)
    kept = _kept(log, in_pass=in_pass)
    assert _is_same(kept.of(0, version, _OPTIONS), scanned)
    assert kept.of(1, version, _OPTIONS) is None
    assert kept.of(0, replace(version, size=version.size + 1), _OPTIONS) is None
    assert kept.of(0, version, replace(_OPTIONS, interval_bytes=1)) is None


def test_each_partition_has_scans_of_its_own(log: Path) -> None:
    version, scanned = _scan(log)
    writer = KeptScansWriter(log.parent / "scans")
    writer.keep(0, version, _OPTIONS, scanned)
    first = writer.of_partition()
    writer.keep(7, version, _OPTIONS, scanned)
    second = writer.of_partition()
    writer.close()
    assert (set(first.places), set(second.places)) == ({0}, {7})
    assert _is_same(second.of(7, version, _OPTIONS), scanned)


def test_without_room_nothing_is_kept(log: Path) -> None:
    version, scanned = _scan(log)
    writer = KeptScansWriter(Path("/dev/full"))
    writer.keep(0, version, _OPTIONS, scanned)
    writer.close()
    assert writer.of_partition().places == {}


@pytest.mark.parametrize("in_pass", [False, True])
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_build_reads_only_logs_that_have_changed(log: Path, is_changed: bool, in_pass: bool) -> None:
    """All bytes of the log are others now. Where its time is the same, that shows only to who reads it: nobody does."""
    kept, (version, scanned) = _kept(log, in_pass=in_pass), _scan(log)
    log.write_bytes(bytes(version.size))
    if not is_changed:
        os.utime(log, ns=(version.mtime_ns, version.mtime_ns))
    task = BuildTask(
        segment=listed_segment(0, str(log), version),
        options=_OPTIONS,
        index_directory=Directory(str(log.parent), ""),
        topic_id=None,
        interval_source=IntervalSource.SETTINGS,
        in_place=True,
        publish_truncated=True,
        kept_scans=kept,
    )
    [built] = build_segments([task], use_mmap=False)
    assert built.recovered is not None
    assert _is_same(built.recovered, scanned) != is_changed
    assert log.with_suffix(".index").read_bytes() == (b"" if is_changed else scanned.offset_index)
