"""Segments to which a broker writes while they are audited."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.audit import segment
from kidxlib.audit.finding import IN_USE
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.indexing.plan import ScanTask
from kidxlib.indexing.segments import recover_task
from kidxlib.recovery.recover import RecoveredSegment, ScannedLogs, scan_logs
from kidxlib.storage.log_bytes import LogBytes
from tests.support.audits import audited, problems_of
from tests.support.damages.damage import ACTIVE, END, LARGE
from tests.support.logs.batches import Batch

#: Bytes that are appended at a time, which end amid batches and amid headers.
_PIECE: Final = 9_997


def _growing(patch: pytest.MonkeyPatch, log: Path, rest: bytes) -> None:
    """Let the rest of a log be appended, a piece each time that an audit has opened it, and another once the audit has
    read it: no thread has to get its turn meanwhile. The log is read alone, as a large one.
    """
    patch.setattr(segment, "SMALL_BYTES", -1)
    pieces = (rest[at : at + _PIECE] for at in range(0, len(rest), _PIECE))

    def append() -> None:
        with log.open("ab") as file:
            file.write(next(pieces))

    def appended_to(content: LogBytes, task: ScanTask) -> RecoveredSegment:
        if str(task.segment.path) != str(log):
            return recover_task(content, task)
        append()
        recovered = recover_task(content, task)
        append()
        return recovered

    patch.setattr(segment, "recover_task", appended_to)


def _batch_at(content: bytearray, position: int) -> int:
    """Where the first batch begins that begins at a byte or behind it."""
    at = 0
    while at < position:
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    return at


def _preallocated(directory: Path, base_offset: int) -> None:
    for suffix, size in ((OFFSET_INDEX_SUFFIX, 10_485_760), (TIME_INDEX_SUFFIX, 10_485_756)):
        os.truncate(directory / segment_file(base_offset, suffix), size)


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged-before"])
@pytest.mark.parametrize("seen", [0, 11, 30, 75], ids=["whole", "amid-length", "amid-header", "amid-records"])
def test_all_before_the_first_look_at_a_growing_log_is_judged(
    tree: Path, monkeypatch: pytest.MonkeyPatch, seen: int, damaged: bool
) -> None:
    """What is appended meanwhile is in use, whatever part of a batch was seen of it; indexes, which have entries for it
    already, and for transactions aborted there, are judged up to there. Damage before that is found.
    """
    directory = tree / "txn-mixed-0"
    log = directory / segment_file(ACTIVE, LOG_SUFFIX)
    content = bytearray(log.read_bytes())
    _preallocated(directory, ACTIVE)
    whole = _batch_at(content, len(content) // 4)
    if damaged:
        content[5_000] ^= 1
    log.write_bytes(content[: whole + seen])
    _growing(monkeypatch, log, bytes(content[whole + seen :]))
    found = audited(tree)
    [row] = [file for file in found.files if file.path == str(log)]
    if damaged:
        assert (row.verdict, row.reason) == ("broken", "crc-mismatch")
        return
    assert (row.verdict, row.reason, row.position) == ("safe", IN_USE, whole), row
    assert row.file_bytes is not None and row.file_bytes > whole + seen
    problems = problems_of(found.files)
    assert {reason for verdict, reason in problems.values() if verdict != "safe"} == set(), problems
    assert found.partitions[0].failure is None


def test_a_log_that_grows_after_it_was_read_with_others_is_read_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found of it is not told: indexes that were read later may lead to what came later."""
    expected = audited(tree)
    log = tree / "txn-mixed-0" / segment_file(LARGE, LOG_SUFFIX)
    content = log.read_bytes()
    log.write_bytes(content[: _batch_at(bytearray(content), len(content) // 4)])
    short = log.stat().st_size

    def scanned(logs: Sequence[LogBytes], *arguments: Any) -> ScannedLogs:
        scans = scan_logs(logs, *arguments)
        if short in [each.size for each in logs]:
            log.write_bytes(content)
        return scans

    monkeypatch.setattr(segment, "scan_logs", scanned)
    found = audited(tree)
    assert short < log.stat().st_size
    assert [(row.file, row.verdict, row.reason) for row in found.files] == [
        (row.file, row.verdict, row.reason) for row in expected.files
    ]
    assert found.startup == expected.startup


def _retention(directory: Path) -> None:
    """The first segment goes, as `LocalLog.deleteSegmentFiles` renames it, and the epochs begin with the next."""
    for path in directory.glob(f"{0:020d}.*"):
        path.rename(f"{path}.deleted")
    (directory / LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n0 {LARGE}\n")


def _roll(directory: Path) -> None:
    """Another segment is begun, and the high watermark lies in it."""
    log = directory / segment_file(END, LOG_SUFFIX)
    log.write_bytes(Batch(leader_epoch=0, timestamp=1).encode(END))
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        log.with_suffix(suffix).touch()
    checkpoint = directory.parent / HIGH_WATERMARK_CHECKPOINT
    checkpoint.write_text(f"0\n1\ntxn-mixed 0 {END + 1}\n")


@pytest.mark.parametrize("happens", [_retention, _roll])
def test_what_a_broker_does_after_the_listing_is_no_damage(tree: Path, happens: Callable[[Path], None]) -> None:
    """Segments that retention deletes, and one that is rolled, between the listing and the look at the files."""
    found = audited(tree, meanwhile=lambda: happens(tree / "txn-mixed-0"))
    assert {row.path: row.reason for row in found.files if row.verdict not in ("identical", "whole", "safe")} == {}
    assert found.partitions[0].failure is None
