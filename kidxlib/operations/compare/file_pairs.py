"""Compares a log, and the files beside logs, on both sides byte for byte. Each file is read once, in large pieces. For
a log, the result says up to where both sides are the same, and what each has after that.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.catalog.results import FilePairRow, LogPairRow
from kidxlib.errors import CheckpointError, KidxError, LogChangedError, MalformedRecordsError, describe_error
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, EpochEntry, parse_epoch_entries
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from kidxlib.index.transaction import first_abort
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import Location, location
from kidxlib.storage.log_bytes import Access, LogBytes, zeros_from
from kidxlib.storage.opened_log import OpenedLog, opened_log
from kidxlib.storage.small_files import filled_file, is_preallocated, small_file
from kidxlib.text.words import counted

#: How many bytes are compared at once: they stay in the processor's cache while differing bytes are counted.
_BLOCK_BYTES: Final = 256 * 1024
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

#: Index files that a broker preallocates, and the bytes of an entry.
_ENTRIES = {
    OFFSET_INDEX_SUFFIX: layouts.OFFSET_INDEX_ENTRY.itemsize,
    TIME_INDEX_SUFFIX: layouts.TIME_INDEX_ENTRY.itemsize,
}


class _PairedLog:
    """A log as `LogBytes` for a walk over its batches; while it is read, it is compared with another log.

    Attributes:
        differing: how many bytes differ of those that both have, up to the end of the last window.
        first: the position of the first of these; −1 for none.
    """

    def __init__(self, one: LogBytes, other: LogBytes) -> None:
        self._one, self._other = one, other
        self._common = min(one.size, other.size)
        self._compared_to = 0
        self.differing, self.first = 0, -1

    @property
    def size(self) -> int:
        return self._one.size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        self._compare_to(position)
        start, window = self._one.window(position)
        self._compare(start, window)
        return start, window

    def read(self, position: int, size: int) -> bytes:
        self._compare_to(position + size)
        return self._one.read(position, size)

    def compare_rest(self) -> None:
        """Compare the bytes that were in no window."""
        self._compare_to(self._common)

    def _compare_to(self, end: int) -> None:
        while self._compared_to < min(end, self._common):
            self._compare(*self._one.window(self._compared_to))

    def _compare(self, start: int, window: NDArray[np.uint8]) -> None:
        end = min(start + len(window), self._common)
        while start <= self._compared_to < end:
            at = self._compared_to
            other_start, other = self._other.window(at)
            size = min(end, other_start + len(other)) - at
            left = window[at - start : at - start + size]
            self._note(at, left, other[at - other_start : at - other_start + size])
            self._compared_to = at + size

    def _note(self, position: int, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> None:
        """Compare two pieces of the same length that begin at a position."""
        if _memcmp(left.ctypes.data, right.ctypes.data, len(left)) == 0:
            return
        for start in range(0, len(left), _BLOCK_BYTES):
            one, other = left[start : start + _BLOCK_BYTES], right[start : start + _BLOCK_BYTES]
            differing = np.flatnonzero(one != other)
            if len(differing):
                if not self.differing:
                    self.first = position + start + int(differing[0])
                self.differing += len(differing)


class FileVerdict(StrEnum):
    """How a file of B compares with that of A.

    Attributes:
        SHORTER: A begins with all that B has.
        LONGER: B begins with all that A has.
    """

    SAME = "same"
    SHORTER = "shorter"
    LONGER = "longer"
    DIFFERS = "differs"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePairs:
    """Files of one directory that both sides have; `one` and `other` are the directory's paths."""

    directory: str
    one: str
    other: str
    names: Sequence[str]
    log_bytes: int


def compare_files(pairs: FilePairs) -> Iterator[FilePairRow]:
    """Compare the files. Only files that differ or cannot be read give a row."""
    for name in pairs.names:
        try:
            verdict, detail, same_to = _compare_file(location(pairs.one) / name, location(pairs.other) / name)
        except (OSError, KidxError) as error:
            verdict, detail, same_to = FileVerdict.UNREADABLE, describe_error(error), None
        if verdict is not FileVerdict.SAME:
            yield FilePairRow(
                directory=pairs.directory, name=name, verdict=verdict.value, detail=detail, same_to_offset=same_to
            )


def _compare_file(one: Location, other: Location) -> tuple[FileVerdict, str, int | None]:
    """How two files compare, and the offset up to which their contents agree; None if this was not determined."""
    parsed = parse_segment_file(one.name)
    if one.name == LEADER_EPOCH_CHECKPOINT:
        return _compare_epochs(one, other)
    if parsed is not None and (entry_bytes := _ENTRIES.get(parsed[1])) is not None:
        verdict, detail = _compare_contents(_without_room(one, entry_bytes), _without_room(other, entry_bytes))
        return verdict, detail, None
    verdict, detail = _compare_bytes(one, other)
    is_shorter = verdict is FileVerdict.SHORTER and parsed is not None and parsed[1] == TRANSACTION_INDEX_SUFFIX
    return verdict, detail, first_abort(one, len(small_file(other))) if is_shorter else None


def _compare_bytes(one: Location, other: Location) -> tuple[FileVerdict, str]:
    with opened_log(str(one)) as opened, opened_log(str(other)) as opened_other:
        paired = _PairedLog(opened.log(use_mmap=False), opened_other.log(use_mmap=False))
        paired.compare_rest()
        return _verdict(opened.version.size, opened_other.version.size, paired.first, paired.differing)


def _without_room(path: Location, entry_bytes: int) -> bytes:
    """An index file without preallocated room; the whole file if other bytes than zeros follow its entries."""
    entries = filled_file(path, entry_bytes)
    return entries if not isinstance(path, Path) or is_preallocated(path, len(entries)) else small_file(path)


def _compare_contents(one: bytes, other: bytes) -> tuple[FileVerdict, str]:
    if one == other:
        return FileVerdict.SAME, ""
    shared = min(len(one), len(other))
    differing = np.flatnonzero(np.frombuffer(one, np.uint8, shared) != np.frombuffer(other, np.uint8, shared))
    return _verdict(len(one), len(other), int(differing[0]) if len(differing) else -1, len(differing))


def _verdict(one_bytes: int, other_bytes: int, first: int, count: int) -> tuple[FileVerdict, str]:
    if first >= 0:
        return FileVerdict.DIFFERS, f"{counted(count, 'byte')} not the same, the first at byte {first:,}"
    if one_bytes == other_bytes:
        return FileVerdict.SAME, ""
    verdict = FileVerdict.SHORTER if other_bytes < one_bytes else FileVerdict.LONGER
    return verdict, f"{other_bytes:,} bytes of {one_bytes:,}"


def _compare_epochs(one: Location, other: Location) -> tuple[FileVerdict, str, int | None]:
    contents = small_file(one), small_file(other)
    if contents[0] == contents[1]:
        return FileVerdict.SAME, "", None
    try:
        entries, others = (
            parse_epoch_entries(content, str(path)) for content, path in zip(contents, (one, other), strict=True)
        )
    except CheckpointError as error:
        return FileVerdict.DIFFERS, str(error), None
    if entries:
        others = _from(others, entries[0].start_offset)
    shared = min(len(entries), len(others))
    same = next((at for at in range(shared) if entries[at] != others[at]), shared)
    differing = [side[same].start_offset for side in (entries, others) if len(side) > same]
    if not differing:
        return FileVerdict.SAME, "", None
    if same < shared:
        detail = f"other leader epochs: {_epochs(others)}, expected {_epochs(entries)}"
        return FileVerdict.DIFFERS, detail, min(differing)
    verdict = FileVerdict.SHORTER if len(others) < len(entries) else FileVerdict.LONGER
    return verdict, f"{counted(len(others), 'leader epoch')} of {len(entries):,}", min(differing)


def _from(entries: Sequence[EpochEntry], start: int) -> list[EpochEntry]:
    """The entries that a broker keeps when it deletes offsets below `start`
    (`LeaderEpochFileCache.truncateFromStartAsyncFlush`).
    """
    below = [entry for entry in entries if entry.start_offset <= start]
    above = [entry for entry in entries if entry.start_offset > start]
    return [EpochEntry(below[-1].epoch, start), *above] if below else above


def _epochs(entries: Sequence[EpochEntry]) -> str:
    shown = ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in entries[:3])
    return (shown or "none") + (" …" if len(entries) > 3 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPair:
    """A segment's log on both sides; the path is None where a side lacks it.

    Attributes:
        one_bytes, other_bytes: the sizes when the logs were listed: no more is compared.
        is_same_file: both names are of one file.
    """

    directory: str
    base_offset: int
    one: str | None
    other: str | None
    one_bytes: int
    other_bytes: int
    is_same_file: bool = False

    @property
    def log_bytes(self) -> int:
        return self.one_bytes + self.other_bytes


@dataclass(slots=True)
class _ComparedBatches:
    """The batches in a part of a log.

    Attributes:
        end_offset: the offset after the last batch; −1 without one.
        valid_end: the byte after the last whole batch.
        records: in all batches; None where a header does not tell.
        repeated: the position of the first batch with offsets of an earlier one; −1 for none.
        damaged: the position of the first batch with a wrong checksum, or of bytes that can be no batch; −1 for none.
    """

    end_offset: int = -1
    valid_end: int = 0
    records: int | None = 0
    repeated: int = -1
    damaged: int = -1

    def add(self, table: BatchTable) -> None:
        rows = table.rows
        if not len(rows):
            return
        before = np.concatenate([[self.end_offset - 1], rows["last_offset"][:-1]])
        first = rows["offset_field"]
        backwards = np.flatnonzero((rows["last_offset"] <= before) | ((rows["magic"] >= 2) & (first <= before)))
        if len(backwards) and self.repeated < 0:
            self.repeated = int(rows["position"][backwards[0]])
        wrong = np.flatnonzero(rows["crc_is_right"] == 0)
        if len(wrong) and self.damaged < 0:
            self.damaged = int(rows["position"][wrong[0]])
        self.end_offset = max(self.end_offset, int(rows["last_offset"].max()) + 1)
        self.valid_end = int(rows["position"][-1] + rows["size"][-1])
        counts = rows["records_count"]
        if self.records is not None:
            self.records = None if (counts < 0).any() else self.records + int(counts.sum(dtype=np.int64))

    @classmethod
    def of(cls, log: LogBytes, position: int, end_offset: int, *, checks: bool) -> Self:
        """Read the batches from a position on, where the batch before ends at `end_offset` (−1 without one).

        `checks` computes checksums, which reads all bytes.
        """
        batches = cls(end_offset=end_offset, valid_end=position)
        walk = BatchWalk(log, position, WantedRecords(), whole=checks, checks=checks, last_offset=end_offset - 1)
        try:
            for table in walk.tables():
                batches.add(table)
        except MalformedRecordsError as error:
            if zeros_from(log, error.position) < log.size - error.position and batches.damaged < 0:
                batches.damaged = error.position
        return batches

    def end_columns(self, side: str) -> dict[str, object]:
        """The columns of `LogPairRow` that say where the log of a side ends."""
        return {
            f"{side}_end_offset": None if self.end_offset < 0 else self.end_offset,
            f"{side}_valid_bytes": self.valid_end,
            f"{side}_beyond_records": self.records,
        }


def compare_log_pair(pair: LogPair, use_mmap: bool) -> LogPairRow:
    """Compare a segment's log on both sides; a log that is on one side only is walked over, header by header.

    A log that cannot be read or changes meanwhile is data: `problem` says so.
    """
    values = dict[str, object](
        directory=pair.directory,
        base_offset=pair.base_offset,
        one_bytes=None if pair.one is None else pair.one_bytes,
        other_bytes=None if pair.other is None else pair.other_bytes,
        is_same_file=pair.is_same_file,
    )
    try:
        if pair.one is not None and pair.other is not None:
            values |= _compare_logs(pair.one, pair.one_bytes, pair.other, pair.other_bytes, use_mmap)
        elif pair.one is not None:
            values |= _walk_log("one", pair.one, pair.one_bytes)
        elif pair.other is not None:
            values |= _walk_log("other", pair.other, pair.other_bytes)
    except (OSError, KidxError) as error:
        text = describe_error(error)
        name = segment_file(pair.base_offset, LOG_SUFFIX)
        values["problem"] = text if name in text else f"{name}: {text}"
    return LogPairRow.of(values)


def _walk_log(side: str, path: str, size: int) -> dict[str, object]:
    with opened_log(path) as opened:
        log, grew = _log_of(opened, size, use_mmap=False, access=Access.NORMAL)
        return {**_ComparedBatches.of(log, 0, -1, checks=False).end_columns(side), f"{side}_grew": grew}


def _log_of(opened: OpenedLog, size: int, *, use_mmap: bool, access: Access) -> tuple[LogBytes, int]:
    """The log up to its listed size, and the bytes by which it has grown since."""
    if opened.version.size < size:
        raise LogChangedError(f"{opened.version.size:,} bytes, it had {size:,} when it was listed; compare again")
    return opened.log(size, use_mmap=use_mmap, access=access), opened.version.size - size


def _compare_logs(one: str, one_bytes: int, other: str, other_bytes: int, use_mmap: bool) -> dict[str, object]:
    """Columns of `LogPairRow`."""
    with opened_log(one) as opened, opened_log(other) as opened_other:
        first, grew = _log_of(opened, one_bytes, use_mmap=use_mmap, access=Access.SEQUENTIAL)
        second, other_grew = _log_of(opened_other, other_bytes, use_mmap=use_mmap, access=Access.SEQUENTIAL)
        paired = _PairedLog(first, second)
        same, batch_end = _same_batches(paired, second.size)
        columns: dict[str, object] = {
            "differing_bytes": paired.differing,
            "first_difference": None if paired.first < 0 else paired.first,
            "same_end_offset": None if same.end_offset < 0 else same.end_offset,
            "same_bytes": same.valid_end,
            "same_records": same.records,
            "batch_end_offset": batch_end,
            "one_grew": grew,
            "other_grew": other_grew,
        }
        return columns | _beyond(first, second, same, paired.first)


def _same_batches(paired: _PairedLog, limit: int) -> tuple[_ComparedBatches, int | None]:
    """The first batches, as far as they are the same in both logs, and the offset after the first that is not, if any.
    After this all bytes that both have are compared. `limit` is the size of the other log.
    """
    same, batch_end = _ComparedBatches(), None
    with contextlib.suppress(MalformedRecordsError):  # `_beyond` reads these bytes once more
        for table in BatchWalk(paired, 0, WantedRecords()).tables():
            ends = table.rows["position"] + table.rows["size"]
            count = int(np.searchsorted(ends, limit if paired.first < 0 else min(limit, paired.first), "right"))
            same.add(table.first(count))
            if count < len(ends):
                batch_end = int(table.rows["last_offset"][count]) + 1
                break
    paired.compare_rest()
    return same, batch_end


def _beyond(one: LogBytes, other: LogBytes, same: _ComparedBatches, difference: int) -> dict[str, object]:
    """The columns on each log after the batches that both have. Nothing is read where the logs are the same."""
    columns: dict[str, object] = {}
    for side, log in (("one", one), ("other", other)):
        beyond = _ComparedBatches(end_offset=same.end_offset, valid_end=same.valid_end)
        if same.valid_end < log.size:
            beyond = _ComparedBatches.of(log, same.valid_end, same.end_offset, checks=True)
        columns |= beyond.end_columns(side)
        columns[f"{side}_zeros"] = 0 < zeros_from(log, beyond.valid_end) == log.size - beyond.valid_end
        columns[f"{side}_damaged"] = None if beyond.damaged < 0 else beyond.damaged
        columns[f"{side}_repeated"] = None if beyond.repeated < 0 else beyond.repeated
        columns[f"{side}_zeros_there"] = None if difference < 0 else zeros_from(log, difference)
    return columns
