"""Damaged or unusual index and auxiliary files of all kinds, and the verdict that an audit must give on each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np

from kidxlib.format import layouts, segment_files
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.recovery.options import MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from kidxlib.recovery.partition_fold import Producers
from kidxlib.recovery.recover import recover
from kidxlib.storage.opened_log import LogFile
from tests.support.damages.damage import (
    ABORTED,
    ACTIVE,
    END,
    EPOCHS,
    INDEX,
    LARGE,
    LARGE_ABORTED,
    LARGE_INDEX,
    LARGE_TIMES,
    SMALL,
    SNAPSHOT,
    TIMES,
    Damage,
    Entries,
    file_name,
)


def changed_entries(
    layout: np.dtype[np.void], change: Callable[[Entries], Entries | None]
) -> Callable[[bytes, Path], bytes]:
    """A change of entries: `change` does it in place, or returns others."""

    def changed(content: bytes, _: Path) -> bytes:
        entries = np.frombuffer(content, layout).copy()
        others = change(entries)
        result: bytes = (entries if others is None else others).tobytes()
        return result

    return changed


def set_field(number: int, field: str, value: Callable[[int], int]) -> Callable[[Entries], None]:
    def change(entries: Entries) -> None:
        entries[field][number] = value(int(entries[field][number]))

    return change


def add_to_field(number: int, field: str, more: int) -> Callable[[Entries], None]:
    return set_field(number, field, lambda value: value + more)


def without(*numbers: int) -> Callable[[Entries], Entries]:
    return lambda entries: np.delete(entries, numbers)


def twice(number: int) -> Callable[[Entries], Entries]:
    return lambda entries: np.insert(entries, number, entries[number])


def with_interval(interval_bytes: int, *, times: bool = False) -> Callable[[bytes, Path], bytes]:
    """The index that recovery writes with another `index.interval.bytes`."""

    def recovered(_: bytes, directory: Path) -> bytes:
        log = LogFile(str(directory / segment_files.segment_file(LARGE, segment_files.LOG_SUFFIX)))
        segment = recover(log, LARGE, RecoverOptions(interval_bytes=interval_bytes))
        return segment.time_index if times else segment.offset_index

    return recovered


def preallocated(entry_bytes: int) -> Callable[[bytes, Path], bytes]:
    room = MAX_INDEX_BYTES_DEFAULT // entry_bytes * entry_bytes
    return lambda content, _: content.ljust(room, b"\0")


def removed(_content: bytes, _directory: Path) -> None:
    return None


def exactly(content: bytes) -> Callable[[bytes, Path], bytes]:
    return lambda _content, _directory: content


def followed_by(more: bytes) -> Callable[[bytes, Path], bytes]:
    return lambda content, _: content + more


def content_of(directory: Path, base_offset: int, suffix: str) -> bytes:
    return (directory / file_name(base_offset, suffix)).read_bytes()


def _offsets(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return changed_entries(layouts.OFFSET_INDEX_ENTRY, change)


def _by_batch(offset_of: Callable[[list[BatchHeader], int], int]) -> Callable[[bytes, Path], bytes]:
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


def _times(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return changed_entries(layouts.TIME_INDEX_ENTRY, change)


_LARGEST: Final = 2**62


TIME_INDEXES: Final = [
    Damage("missing", LARGE_TIMES, removed, "broken", "missing"),
    Damage("without entries", LARGE_TIMES, exactly(b""), "broken", "wrong-largest-timestamp"),
    Damage("last entry missing", LARGE_TIMES, _times(without(-1)), "broken", "wrong-largest-timestamp"),
    Damage("first entry missing", LARGE_TIMES, _times(without(0)), "safe", "other-spacing"),
    Damage("an entry missing", LARGE_TIMES, _times(without(30)), "safe", "other-spacing"),
    Damage("every batch", LARGE_TIMES, with_interval(0, times=True), "safe", "other-spacing"),
    Damage("padded with zeros", LARGE_TIMES, followed_by(bytes(24)), "broken", "fails-sanity-check"),
    Damage("nothing but zeros", LARGE_TIMES, exactly(bytes(24)), "broken", "wrong-largest-timestamp"),
    Damage("preallocated", file_name(ACTIVE, TIMES), preallocated(12), "safe", "preallocated"),
    Damage(
        "in a time to come",
        LARGE_TIMES,
        _times(set_field(-1, "timestamp", lambda _: _LARGEST)),
        "broken",
        "wrong-largest-timestamp",
    ),
    Damage("an entry too early", LARGE_TIMES, _times(add_to_field(30, "timestamp", -1)), "safe", "other-spacing"),
    Damage(
        "an entry before what is older",
        LARGE_TIMES,
        _times(set_field(30, "timestamp", lambda _: 1)),
        "broken",
        "misses-records",
    ),
    Damage(
        "an entry too far", LARGE_TIMES, _times(add_to_field(30, "relative_offset", 3000)), "broken", "misses-records"
    ),
    Damage(
        "offset amid a batch, as by a leader up to 3.7.0",
        file_name(SMALL, TIMES),
        _times(add_to_field(1, "relative_offset", -1)),
        "safe",
        "other-spacing",
    ),
    Damage("an entry twice", LARGE_TIMES, _times(twice(5)), "safe", "not-increasing"),
    Damage("5 bytes more", LARGE_TIMES, followed_by(b"abcde"), "broken", "fails-sanity-check"),
    Damage(
        "last offset below the base",
        LARGE_TIMES,
        _times(set_field(-1, "relative_offset", lambda _: -1)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of another segment",
        LARGE_TIMES,
        lambda _, directory: content_of(directory, SMALL, TIMES),
        "broken",
        "misses-records",
    ),
]


def _aborted(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return changed_entries(layouts.ABORTED_TRANSACTION, change)


def _transaction(producer_id: int, first: int, last: int, stable: int) -> bytes:
    return np.array([(0, producer_id, first, last, stable)], layouts.ABORTED_TRANSACTION).tobytes()


TRANSACTION_INDEXES: Final = [
    Damage("missing", LARGE_ABORTED, removed, "broken", "missing"),
    Damage("without entries", LARGE_ABORTED, exactly(b""), "broken", "missing-transaction"),
    Damage("first one missing", LARGE_ABORTED, _aborted(without(0)), "broken", "missing-transaction"),
    Damage("last one missing", LARGE_ABORTED, _aborted(without(-1)), "broken", "missing-transaction"),
    Damage(
        "one that was committed",
        LARGE_ABORTED,
        followed_by(_transaction(5, 5000, 5100, 5101)),
        "broken",
        "wrong-transaction",
    ),
    Damage(
        "in a segment without any",
        file_name(SMALL, ABORTED),
        exactly(_transaction(5, 5800, 5810, 5811)),
        "broken",
        "wrong-transaction",
    ),
    Damage(
        "another producer's", LARGE_ABORTED, _aborted(add_to_field(3, "producer_id", 7)), "broken", "wrong-transaction"
    ),
    Damage("begins later", LARGE_ABORTED, _aborted(add_to_field(1, "first_offset", 5)), "broken", "wrong-transaction"),
    Damage(
        "last stable offset too small",
        LARGE_ABORTED,
        _aborted(add_to_field(1, "last_stable_offset", -100)),
        "safe",
        "other-last-stable-offset",
    ),
    Damage(
        "last stable offset too large",
        LARGE_ABORTED,
        _aborted(add_to_field(1, "last_stable_offset", 3000)),
        "broken",
        "last-stable-offset-too-large",
    ),
    Damage("a part of an entry more", LARGE_ABORTED, followed_by(bytes(20)), "safe", "partial-entry"),
    Damage(
        "of a version to come",
        LARGE_ABORTED,
        _aborted(set_field(2, "version", lambda _: 256)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of a version that Kafka 4.3 takes for 0",
        LARGE_ABORTED,
        _aborted(set_field(2, "version", lambda _: 1)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of offsets below the base",
        LARGE_ABORTED,
        _aborted(set_field(2, "last_offset", lambda _: 5)),
        "broken",
        "fails-sanity-check",
    ),
]


def _producers(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    def changed(content: bytes, _: Path) -> bytes:
        entries = read_snapshot(content).copy()
        others = change(entries)
        return _snapshot(entries if others is None else others)

    return changed


def _snapshot(entries: Entries, version: int = 1) -> bytes:
    covered: bytes = len(entries).to_bytes(4) + entries.tobytes()
    checksum: int = google_crc32c.value(covered)
    return version.to_bytes(2) + checksum.to_bytes(4) + covered


_SMALL_SNAPSHOT: Final = file_name(SMALL, SNAPSHOT)

SNAPSHOTS: Final = [
    Damage("a bit flipped", _SMALL_SNAPSHOT, lambda content, _: content[:-1] + b"\7", "broken", "unreadable"),
    Damage("empty", _SMALL_SNAPSHOT, exactly(b""), "broken", "unreadable"),
    Damage(
        "of a version to come",
        _SMALL_SNAPSHOT,
        lambda content, _: _snapshot(read_snapshot(content), version=2),
        "broken",
        "unreadable",
    ),
    Damage("in another order", _SMALL_SNAPSHOT, _producers(lambda entries: entries[::-1]), "safe", "other-order"),
    Damage("without an idle producer", _SMALL_SNAPSHOT, _producers(without(1)), "safe", "expired-producers"),
    Damage("without an open transaction", _SMALL_SNAPSHOT, _producers(without(0)), "broken", "missing-transaction"),
    Damage(
        "another sequence number",
        _SMALL_SNAPSHOT,
        _producers(add_to_field(0, "last_sequence", 1)),
        "broken",
        "wrong-producer",
    ),
    Damage(
        "an open transaction that has ended",
        _SMALL_SNAPSHOT,
        _producers(set_field(1, "current_transaction_first_offset", lambda _: 5000)),
        "broken",
        "wrong-producer",
    ),
    Damage("of no segment", file_name(4000, SNAPSHOT), exactly(Producers().snapshot()), "safe", "stray"),
    Damage(
        "nothing of the end", file_name(END, SNAPSHOT), exactly(Producers().snapshot()), "safe", "expired-producers"
    ),
]


LEADER_EPOCHS: Final = [
    Damage("missing", EPOCHS, removed, "broken", "missing-epoch"),
    Damage("without entries", EPOCHS, exactly(b"0\n0\n"), "broken", "missing-epoch"),
    Damage("no numbers", EPOCHS, exactly(b"0\n1\nzero 0\n"), "broken", "unreadable"),
    Damage("fewer than it says", EPOCHS, exactly(b"0\n2\n0 0\n"), "broken", "unreadable"),
    Damage("begins amid an epoch", EPOCHS, exactly(b"0\n1\n0 5\n"), "safe", "later-log-start"),
    Damage("begins anew, amid an epoch", EPOCHS, exactly(b"0\n1\n1 5\n"), "broken", "missing-epoch"),
    Damage("begins behind the end", EPOCHS, exactly(f"0\n1\n0 {END + 1}\n".encode()), "broken", "wrong-start-offset"),
    Damage(
        "a leader that wrote nothing",
        EPOCHS,
        exactly(f"0\n2\n0 0\n3 {END}\n".encode()),
        "safe",
        "epochs-without-batches",
    ),
]


DAMAGES: Final = [*OFFSET_INDEXES, *TIME_INDEXES, *TRANSACTION_INDEXES, *SNAPSHOTS, *LEADER_EPOCHS]
