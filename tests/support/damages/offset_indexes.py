"""Offset indexes as older releases wrote them, after restarts and crashes, and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from kidxlib.format import layouts, segment_files
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.storage.opened_log import LogFile
from tests.support.damages.damage import ACTIVE, INDEX, LARGE, LARGE_INDEX, SMALL, Damage, Entries, file_name
from tests.support.damages.edits import (
    add_to_field,
    changed_entries,
    content_of,
    exactly,
    followed_by,
    preallocated,
    removed,
    set_field,
    twice,
    with_interval,
    without,
)


def _offsets(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return changed_entries(layouts.OFFSET_INDEX_ENTRY, change)


def _by_batch(offset_of: Callable[[list[Batch], int], int]) -> Callable[[bytes, Path], bytes]:
    """Entries at the same positions with other offsets; `offset_of` gets all batches and the number of one."""

    def changed(content: bytes, directory: Path) -> bytes:
        entries = np.frombuffer(content, layouts.OFFSET_INDEX_ENTRY).copy()
        in_log = list(batches(LogFile(str(directory / segment_files.segment_file(LARGE, segment_files.LOG_SUFFIX)))))
        numbers = {batch.position: number for number, batch in enumerate(in_log)}
        for entry in entries:
            entry["relative_offset"] = offset_of(in_log, numbers[int(entry["position"])]) - LARGE
        return entries.tobytes()

    return changed


def _past_the_end(base_offset: int, relative_offset: int) -> Callable[[bytes, Path], bytes]:
    def changed(content: bytes, directory: Path) -> bytes:
        log = directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        return content + np.array([(relative_offset, log.stat().st_size)], layouts.OFFSET_INDEX_ENTRY).tobytes()

    return changed


def _shifted(entries: Entries) -> None:
    """Give each entry the position of the next one."""
    entries["position"][:-1] = entries["position"][1:]


OFFSET_INDEXES: Final = [
    Damage("missing", LARGE_INDEX, removed, "broken", "missing"),
    Damage("without entries", LARGE_INDEX, exactly(b""), "safe", "other-spacing"),
    Damage("truncated to one entry", LARGE_INDEX, _offsets(lambda entries: entries[:1]), "safe", "other-spacing"),
    Damage("first entry missing", LARGE_INDEX, _offsets(without(0)), "safe", "other-spacing"),
    Damage("an entry missing", LARGE_INDEX, _offsets(without(100)), "safe", "other-spacing"),
    Damage("last entry missing", LARGE_INDEX, _offsets(without(-1)), "safe", "other-spacing"),
    Damage("restart amid the segment", LARGE_INDEX, _offsets(without(40, 41)), "safe", "other-spacing"),
    Damage("every batch", LARGE_INDEX, with_interval(0), "safe", "other-spacing"),
    Damage(
        "two bytes of a position flipped",
        LARGE_INDEX,
        _offsets(set_field(12, "position", lambda at: at | -65536)),
        "broken",
        "negative-position",
    ),
    Damage("interval of 64 KiB", LARGE_INDEX, with_interval(65536), "safe", "other-spacing"),
    Damage(
        "recovered by Kafka 1.1",
        LARGE_INDEX,
        _by_batch(lambda all_, number: all_[number].offset_field),
        "safe",
        "base-offsets",
    ),
    Damage(
        "appended by Kafka 3.9.0, two batches at a time",
        LARGE_INDEX,
        _by_batch(lambda all_, number: all_[min(number + 1, len(all_) - 1)].last_offset),
        "safe",
        "entries-by-append",
    ),
    Damage(
        "offsets amid batches",
        LARGE_INDEX,
        _by_batch(lambda all_, number: (all_[number].offset_field + all_[number].last_offset) // 2),
        "safe",
        "other-offsets",
    ),
    Damage("padded with zeros", LARGE_INDEX, followed_by(bytes(24)), "safe", "zero-padded"),
    Damage("preallocated", file_name(ACTIVE, INDEX), preallocated(8), "safe", "preallocated"),
    Damage("an entry twice", LARGE_INDEX, _offsets(twice(7)), "safe", "not-increasing"),
    Damage("an entry past the end", LARGE_INDEX, _past_the_end(LARGE, 10**6), "safe", "entries-behind-the-end"),
    Damage(
        "an entry past the end of the log",
        file_name(ACTIVE, INDEX),
        _past_the_end(ACTIVE, 10**6),
        "broken",
        "wrong-log-end-offset",
        log=("torn", "shorter-than-its-index"),  # one of the two is wrong
    ),
    Damage("position amid a batch", LARGE_INDEX, _offsets(add_to_field(50, "position", 1)), "broken", "misses-batches"),
    Damage(
        "position below zero",
        LARGE_INDEX,
        _offsets(set_field(-1, "position", lambda _: -5)),
        "broken",
        "negative-position",
    ),
    Damage(
        "position beyond the end",
        LARGE_INDEX,
        _offsets(add_to_field(-1, "position", 10**7)),
        "broken",
        "misses-batches",
    ),
    Damage("a whole entry too far", LARGE_INDEX, _offsets(_shifted), "broken", "misses-batches"),
    Damage(
        "offset too low", LARGE_INDEX, _offsets(add_to_field(50, "relative_offset", -30)), "broken", "misses-batches"
    ),
    Damage(
        "of another segment",
        LARGE_INDEX,
        lambda _, directory: content_of(directory, SMALL, INDEX),
        "broken",
        "misses-batches",
    ),
    Damage("3 bytes more", LARGE_INDEX, followed_by(b"abc"), "broken", "fails-sanity-check"),
    Damage(
        "last offset below the base",
        LARGE_INDEX,
        _offsets(set_field(-1, "relative_offset", lambda _: -1)),
        "broken",
        "fails-sanity-check",
    ),
]
