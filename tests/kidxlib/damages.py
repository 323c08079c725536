"""Side files as they may be found: as older releases wrote them, after restarts and crashes, damaged; and what is to be
said of each.

They are made from the sample's partition `txn-mixed-0`, whose segments begin at 0, 84, 5797 and 5891 (the active one);
84 has 214 entries in its offset index, 67 in its time index and 22 aborted transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np

from kidxlib import formats, names
from kidxlib.producers import Producers, read_snapshot
from kidxlib.records import Batch, batches
from kidxlib.recover import MAX_INDEX_BYTES_DEFAULT, RecoverOptions, recover
from kidxlib.storage import LogFile

FIRST, LARGE, SMALL, ACTIVE = 0, 84, 5797, 5891
END: Final = 10333

INDEX, TIMES, ABORTED, SNAPSHOT = names.SIDE_FILE_SUFFIXES
EPOCHS: Final = names.LEADER_EPOCH_CHECKPOINT

#: Entries of an index, with the fields of `formats`, changed in place or made anew.
Entries = np.ndarray[Any, np.dtype[np.void]]


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that is not as recovery writes it.

    Attributes:
        name: what is special about it.
        file: its name in the partition's folder.
        content: of the file now, from what it was and the partition's folder; None removes it.
        verdict, reason: what is to be said of it, and of no other file anything.
    """

    name: str
    file: str
    content: Callable[[bytes, Path], bytes | None]
    verdict: str
    reason: str


def _entries(layout: np.dtype[np.void], change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    """A change of entries: in place, or by giving others."""

    def changed(content: bytes, _: Path) -> bytes:
        entries = np.frombuffer(content, layout).copy()
        made = change(entries)
        result: bytes = (entries if made is None else made).tobytes()
        return result

    return changed


def _offsets(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return _entries(formats.OFFSET_INDEX_ENTRY, change)


def _times(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return _entries(formats.TIME_INDEX_ENTRY, change)


def _aborted(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return _entries(formats.ABORTED_TRANSACTION, change)


def _set(number: int, field: str, value: Callable[[int], int]) -> Callable[[Entries], None]:
    def change(entries: Entries) -> None:
        entries[field][number] = value(int(entries[field][number]))

    return change


def _add(number: int, field: str, more: int) -> Callable[[Entries], None]:
    return _set(number, field, lambda value: value + more)


def _without(*numbers: int) -> Callable[[Entries], Entries]:
    return lambda entries: np.delete(entries, numbers)


def _twice(number: int) -> Callable[[Entries], Entries]:
    return lambda entries: np.insert(entries, number, entries[number])


def _with_interval(interval_bytes: int, *, times: bool = False) -> Callable[[bytes, Path], bytes]:
    """As recovery writes it with another `index.interval.bytes`."""

    def recovered(_: bytes, folder: Path) -> bytes:
        log = LogFile(str(folder / names.segment_file(LARGE, names.LOG_SUFFIX)))
        found = recover(log, LARGE, RecoverOptions(interval_bytes=interval_bytes))
        return found.time_index if times else found.offset_index

    return recovered


def _by_batch(offset_of: Callable[[list[Batch], int], int]) -> Callable[[bytes, Path], bytes]:
    """Entries at the same positions with other offsets; `offset_of` is given all batches and the number of one."""

    def changed(content: bytes, folder: Path) -> bytes:
        entries = np.frombuffer(content, formats.OFFSET_INDEX_ENTRY).copy()
        found = list(batches(LogFile(str(folder / names.segment_file(LARGE, names.LOG_SUFFIX)))))
        at = {batch.position: number for number, batch in enumerate(found)}
        for entry in entries:
            entry["relative_offset"] = offset_of(found, at[int(entry["position"])]) - LARGE
        return entries.tobytes()

    return changed


def _log_bytes(base_offset: int, folder: Path) -> int:
    return (folder / names.segment_file(base_offset, names.LOG_SUFFIX)).stat().st_size


def _behind_the_end(base_offset: int, relative_offset: int) -> Callable[[bytes, Path], bytes]:
    def changed(content: bytes, folder: Path) -> bytes:
        entry = (relative_offset, _log_bytes(base_offset, folder))
        return content + np.array([entry], formats.OFFSET_INDEX_ENTRY).tobytes()

    return changed


def _preallocated(entry_bytes: int) -> Callable[[bytes, Path], bytes]:
    room = MAX_INDEX_BYTES_DEFAULT // entry_bytes * entry_bytes
    return lambda content, _: content.ljust(room, b"\0")


def _producers(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    """Entries of a snapshot, with its checksum."""

    def changed(content: bytes, _: Path) -> bytes:
        entries = read_snapshot(content).copy()
        made = change(entries)
        return _snapshot(entries if made is None else made)

    return changed


def _snapshot(entries: Entries, version: int = 1) -> bytes:
    covered: bytes = len(entries).to_bytes(4) + entries.tobytes()
    checksum: int = google_crc32c.value(covered)
    return version.to_bytes(2) + checksum.to_bytes(4) + covered


def _transaction(producer_id: int, first: int, last: int, stable: int) -> bytes:
    return np.array([(0, producer_id, first, last, stable)], formats.ABORTED_TRANSACTION).tobytes()


def _file(base_offset: int, suffix: str) -> str:
    return names.segment_file(base_offset, suffix)


def _gone(_content: bytes, _folder: Path) -> None:
    return None


def _is(content: bytes) -> Callable[[bytes, Path], bytes]:
    return lambda _content, _folder: content


def _and(more: bytes) -> Callable[[bytes, Path], bytes]:
    return lambda content, _: content + more


_LARGE_INDEX, _LARGE_TIMES, _LARGE_ABORTED = (_file(LARGE, suffix) for suffix in (INDEX, TIMES, ABORTED))
_SMALL_SNAPSHOT: Final = _file(SMALL, SNAPSHOT)
_LARGEST: Final = 2**62

OFFSET_INDEXES: Final = [
    Damage("missing", _LARGE_INDEX, _gone, "broken", "missing"),
    Damage("without entries", _LARGE_INDEX, _is(b""), "safe", "other-spacing"),
    Damage("cut to one entry", _LARGE_INDEX, _offsets(lambda entries: entries[:1]), "safe", "other-spacing"),
    Damage("first entry missing", _LARGE_INDEX, _offsets(_without(0)), "safe", "other-spacing"),
    Damage("an entry missing", _LARGE_INDEX, _offsets(_without(100)), "safe", "other-spacing"),
    Damage("last entry missing", _LARGE_INDEX, _offsets(_without(-1)), "safe", "other-spacing"),
    Damage("restart amid the segment", _LARGE_INDEX, _offsets(_without(40, 41)), "safe", "other-spacing"),
    Damage("every batch", _LARGE_INDEX, _with_interval(0), "safe", "other-spacing"),
    Damage(
        "two bytes of a position flipped",
        _LARGE_INDEX,
        _offsets(_set(12, "position", lambda at: at | -65536)),
        "broken",
        "negative-position",
    ),
    Damage("interval of 64 KiB", _LARGE_INDEX, _with_interval(65536), "safe", "other-spacing"),
    Damage(
        "recovered by Kafka 1.1",
        _LARGE_INDEX,
        _by_batch(lambda all_, number: all_[number].first_field),
        "safe",
        "base-offsets",
    ),
    Damage(
        "appended by Kafka 3.9.0, two batches at a time",
        _LARGE_INDEX,
        _by_batch(lambda all_, number: all_[min(number + 1, len(all_) - 1)].last_offset),
        "safe",
        "entries-by-append",
    ),
    Damage(
        "offsets amid batches",
        _LARGE_INDEX,
        _by_batch(lambda all_, number: (all_[number].first_field + all_[number].last_offset) // 2),
        "safe",
        "other-offsets",
    ),
    Damage("padded with zeros", _LARGE_INDEX, _and(bytes(24)), "safe", "zero-padded"),
    Damage("preallocated", _file(ACTIVE, INDEX), _preallocated(8), "safe", "preallocated"),
    Damage("an entry twice", _LARGE_INDEX, _offsets(_twice(7)), "safe", "not-increasing"),
    Damage("an entry behind the end", _LARGE_INDEX, _behind_the_end(LARGE, 10**6), "safe", "entries-behind-the-end"),
    Damage(
        "an entry behind the end of the log",
        _file(ACTIVE, INDEX),
        _behind_the_end(ACTIVE, 10**6),
        "broken",
        "wrong-log-end-offset",
    ),
    Damage("position amid a batch", _LARGE_INDEX, _offsets(_add(50, "position", 1)), "broken", "misses-batches"),
    Damage(
        "position below zero",
        _LARGE_INDEX,
        _offsets(_set(-1, "position", lambda _: -5)),
        "broken",
        "negative-position",
    ),
    Damage("position beyond the end", _LARGE_INDEX, _offsets(_add(-1, "position", 10**7)), "broken", "misses-batches"),
    Damage(
        "a whole entry too far", _LARGE_INDEX, _offsets(lambda entries: _shifted(entries)), "broken", "misses-batches"
    ),
    Damage("offset too low", _LARGE_INDEX, _offsets(_add(50, "relative_offset", -30)), "broken", "misses-batches"),
    Damage(
        "of another segment", _LARGE_INDEX, lambda _, folder: _read(folder, SMALL, INDEX), "broken", "misses-batches"
    ),
    Damage("3 bytes more", _LARGE_INDEX, _and(b"abc"), "broken", "fails-sanity-check"),
    Damage(
        "last offset below the base",
        _LARGE_INDEX,
        _offsets(_set(-1, "relative_offset", lambda _: -1)),
        "broken",
        "fails-sanity-check",
    ),
]


def _shifted(entries: Entries) -> None:
    """Each entry with the position of the next."""
    entries["position"][:-1] = entries["position"][1:]


def _read(folder: Path, base_offset: int, suffix: str) -> bytes:
    return (folder / _file(base_offset, suffix)).read_bytes()


TIME_INDEXES: Final = [
    Damage("missing", _LARGE_TIMES, _gone, "broken", "missing"),
    Damage("without entries", _LARGE_TIMES, _is(b""), "broken", "wrong-largest-timestamp"),
    Damage("last entry missing", _LARGE_TIMES, _times(_without(-1)), "broken", "wrong-largest-timestamp"),
    Damage("first entry missing", _LARGE_TIMES, _times(_without(0)), "safe", "other-spacing"),
    Damage("an entry missing", _LARGE_TIMES, _times(_without(30)), "safe", "other-spacing"),
    Damage("every batch", _LARGE_TIMES, _with_interval(0, times=True), "safe", "other-spacing"),
    Damage("padded with zeros", _LARGE_TIMES, _and(bytes(24)), "broken", "fails-sanity-check"),
    Damage("nothing but zeros", _LARGE_TIMES, _is(bytes(24)), "broken", "wrong-largest-timestamp"),
    Damage("preallocated", _file(ACTIVE, TIMES), _preallocated(12), "safe", "preallocated"),
    Damage(
        "in a time to come",
        _LARGE_TIMES,
        _times(_set(-1, "timestamp", lambda _: _LARGEST)),
        "broken",
        "wrong-largest-timestamp",
    ),
    Damage("an entry too early", _LARGE_TIMES, _times(_add(30, "timestamp", -1)), "safe", "other-spacing"),
    Damage(
        "an entry before what is older",
        _LARGE_TIMES,
        _times(_set(30, "timestamp", lambda _: 1)),
        "broken",
        "misses-records",
    ),
    Damage("an entry too far", _LARGE_TIMES, _times(_add(30, "relative_offset", 3000)), "broken", "misses-records"),
    Damage(
        "offset amid a batch, as by a leader up to 3.7.0",
        _file(SMALL, TIMES),
        _times(_add(1, "relative_offset", -1)),
        "safe",
        "other-spacing",
    ),
    Damage("an entry twice", _LARGE_TIMES, _times(_twice(5)), "safe", "not-increasing"),
    Damage("5 bytes more", _LARGE_TIMES, _and(b"abcde"), "broken", "fails-sanity-check"),
    Damage(
        "last offset below the base",
        _LARGE_TIMES,
        _times(_set(-1, "relative_offset", lambda _: -1)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of another segment",
        _LARGE_TIMES,
        lambda _, folder: _read(folder, SMALL, TIMES),
        "broken",
        "misses-records",
    ),
]

TRANSACTION_INDEXES: Final = [
    Damage("missing", _LARGE_ABORTED, _gone, "broken", "missing"),
    Damage("without entries", _LARGE_ABORTED, _is(b""), "broken", "missing-transaction"),
    Damage("first one missing", _LARGE_ABORTED, _aborted(_without(0)), "broken", "missing-transaction"),
    Damage("last one missing", _LARGE_ABORTED, _aborted(_without(-1)), "broken", "missing-transaction"),
    Damage(
        "one that was committed",
        _LARGE_ABORTED,
        _and(_transaction(5, 5000, 5100, 5101)),
        "broken",
        "wrong-transaction",
    ),
    Damage(
        "in a segment without any",
        _file(SMALL, ABORTED),
        _is(_transaction(5, 5800, 5810, 5811)),
        "broken",
        "wrong-transaction",
    ),
    Damage("another producer's", _LARGE_ABORTED, _aborted(_add(3, "producer_id", 7)), "broken", "wrong-transaction"),
    Damage("begins later", _LARGE_ABORTED, _aborted(_add(1, "first_offset", 5)), "broken", "wrong-transaction"),
    Damage(
        "last stable offset too small",
        _LARGE_ABORTED,
        _aborted(_add(1, "last_stable_offset", -100)),
        "safe",
        "other-last-stable-offset",
    ),
    Damage(
        "last stable offset too large",
        _LARGE_ABORTED,
        _aborted(_add(1, "last_stable_offset", 3000)),
        "broken",
        "last-stable-offset-too-large",
    ),
    Damage("a part of an entry more", _LARGE_ABORTED, _and(bytes(20)), "safe", "partial-entry"),
    Damage(
        "of a version to come",
        _LARGE_ABORTED,
        _aborted(_set(2, "version", lambda _: 256)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of offsets below the base",
        _LARGE_ABORTED,
        _aborted(_set(2, "last_offset", lambda _: 5)),
        "broken",
        "fails-sanity-check",
    ),
]

SNAPSHOTS: Final = [
    Damage("a bit flipped", _SMALL_SNAPSHOT, lambda content, _: content[:-1] + b"\7", "broken", "unreadable"),
    Damage("empty", _SMALL_SNAPSHOT, _is(b""), "broken", "unreadable"),
    Damage(
        "of a version to come",
        _SMALL_SNAPSHOT,
        lambda content, _: _snapshot(read_snapshot(content), version=2),
        "broken",
        "unreadable",
    ),
    Damage("in another order", _SMALL_SNAPSHOT, _producers(lambda entries: entries[::-1]), "safe", "other-order"),
    Damage("without an idle producer", _SMALL_SNAPSHOT, _producers(_without(1)), "safe", "expired-producers"),
    Damage("without an open transaction", _SMALL_SNAPSHOT, _producers(_without(0)), "broken", "missing-transaction"),
    Damage(
        "another sequence number", _SMALL_SNAPSHOT, _producers(_add(0, "last_sequence", 1)), "broken", "wrong-producer"
    ),
    Damage(
        "an open transaction that has ended",
        _SMALL_SNAPSHOT,
        _producers(_set(1, "current_transaction_first_offset", lambda _: 5000)),
        "broken",
        "wrong-producer",
    ),
    Damage("of no segment", _file(4000, SNAPSHOT), _is(Producers().snapshot()), "safe", "stray"),
    Damage("nothing of the end", _file(END, SNAPSHOT), _is(Producers().snapshot()), "safe", "expired-producers"),
]

LEADER_EPOCHS: Final = [
    Damage("missing", EPOCHS, _gone, "broken", "missing-epoch"),
    Damage("without entries", EPOCHS, _is(b"0\n0\n"), "broken", "missing-epoch"),
    Damage("no numbers", EPOCHS, _is(b"0\n1\nzero 0\n"), "broken", "unreadable"),
    Damage("fewer than it says", EPOCHS, _is(b"0\n2\n0 0\n"), "broken", "unreadable"),
    Damage("begins too late", EPOCHS, _is(b"0\n1\n0 5\n"), "broken", "wrong-start-offset"),
    Damage(
        "a leader that wrote nothing", EPOCHS, _is(f"0\n2\n0 0\n3 {END}\n".encode()), "safe", "epochs-without-batches"
    ),
]

DAMAGES: Final = [*OFFSET_INDEXES, *TIME_INDEXES, *TRANSACTION_INDEXES, *SNAPSHOTS, *LEADER_EPOCHS]
