"""Segments to which a broker writes while they are audited."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kidxlib.audit.finding import IN_USE
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from tests.support.audits import audited, problems_of
from tests.support.damages.damage import ACTIVE, END, LARGE
from tests.support.logs.batches import Batch

#: Bytes that are appended at a time, which end amid batches and amid headers.
_PIECE: Final = 9_997


@contextmanager
def _growing(log: Path, rest: bytes, next_offset: int) -> Iterator[None]:
    """Let another thread append the rest of a log, and then batch after batch, each in two pieces, until the block
    ends, which begins with the first of them.
    """
    begun, ended = threading.Event(), threading.Event()

    def run() -> None:
        with log.open("ab", buffering=0) as file:
            for at in range(0, len(rest), _PIECE):
                file.write(rest[at : at + _PIECE])
                begun.set()
            for offset in itertools.count(next_offset):
                batch = Batch(leader_epoch=0, timestamp=1).encode(offset)
                file.write(batch[:30])
                if ended.is_set():
                    break
                file.write(batch[30:])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        begun.wait()
        yield
    finally:
        ended.set()
        thread.join()


def _preallocated(directory: Path, base_offset: int) -> None:
    for suffix, size in ((OFFSET_INDEX_SUFFIX, 10_485_760), (TIME_INDEX_SUFFIX, 10_485_756)):
        os.truncate(directory / segment_file(base_offset, suffix), size)


@pytest.mark.parametrize("damaged", [False, True], ids=["sound", "damaged-before"])
def test_all_before_the_first_look_at_a_growing_log_is_judged(tree: Path, damaged: bool) -> None:
    """What is appended meanwhile is in use, whatever part of it was seen; indexes, which have entries for it already,
    are judged up to there. Damage before that is found.
    """
    directory = tree / "txn-mixed-0"
    log = directory / segment_file(ACTIVE, LOG_SUFFIX)
    content = bytearray(log.read_bytes())
    _preallocated(directory, ACTIVE)
    if damaged:
        content[5_000] ^= 1
    log.write_bytes(content[: len(content) // 4])
    with _growing(log, bytes(content[len(content) // 4 :]), END):
        found = audited(tree)
    problems = problems_of(found.files)
    [row] = [file for file in found.files if file.path == str(log)]
    if damaged:
        assert (row.verdict, row.reason) == ("broken", "crc-mismatch")
        return
    assert (row.verdict, row.reason) == ("safe", IN_USE), row
    assert row.position is not None and row.file_bytes is not None and row.position < row.file_bytes
    assert {reason for verdict, reason in problems.values() if verdict != "safe"} == set(), problems
    assert found.partitions[0].failure is None


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
