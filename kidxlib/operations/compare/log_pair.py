"""A segment's log on both sides: what both have up to where, and what stands in each beyond it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Self

import numpy as np

from kidxlib.catalog.results.compare import LogPairRow
from kidxlib.errors import KidxError, LogChangedError, MalformedRecordsError, describe_error
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.operations.compare.byte_comparison import PairedLog, zeros_from
from kidxlib.records.bulk.batch_table import BatchTable, BatchWalk
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import OpenedLog, opened_log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPair:
    """A segment's log; the path of the side that has none is None.

    Attributes:
        one_bytes, other_bytes: how long each was when it was listed: no more is compared.
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
        """Bytes that are read."""
        return self.one_bytes + self.other_bytes

    def with_threads(self, threads: int) -> Self:
        """See `Packed`: one thread reads both."""
        return self


@dataclass(slots=True)
class _Batches:
    """What stands in some part of a log.

    Attributes:
        end_offset: the offset after its last batch; −1 where it has none.
        valid_end: the byte after its last whole batch.
        records: in all of them; None where a header does not tell.
        repeated: the first batch whose offsets a batch before has; −1 for none.
        damaged: the position of the first batch with a wrong checksum, or that no batch can be; −1 for none.
    """

    end_offset: int = -1
    valid_end: int = 0
    batches: int = 0
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
        self.batches += len(rows)
        counts = rows["records_count"]
        if self.records is not None:
            self.records = None if (counts < 0).any() else self.records + int(counts.sum(dtype=np.int64))

    @classmethod
    def of(cls, log: LogBytes, position: int, end_offset: int, *, checks: bool) -> Self:
        """Read the batches from a position on.

        Args:
            end_offset: the offset after the batch before; −1 where there is none.
            checks: also compute checksums, which takes all bytes.
        """
        found = cls(end_offset=end_offset, valid_end=position)
        walk = BatchWalk(log, position, Wanted(), whole=checks, checks=checks, last_offset=end_offset - 1)
        try:
            for table in walk.tables():
                found.add(table)
        except MalformedRecordsError as error:
            if zeros_from(log, error.position) < log.size - error.position:
                found.damaged = error.position if found.damaged < 0 else found.damaged
        return found


def compared_pair(pair: LogPair, use_mmap: bool) -> LogPairRow:
    """Compare a segment's log on both sides; a log that is on one side only is walked over, header by header.

    What cannot be read or changes meanwhile is data: `problem` says so.
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
            values |= _compared(pair.one, pair.one_bytes, pair.other, pair.other_bytes, use_mmap)
        else:
            side, path, size = ("one", pair.one, pair.one_bytes) if pair.one is not None else _other(pair)
            with opened_log(path) as opened:
                log, grew = _log_of(opened, size, use_mmap=False, access=Access.NORMAL)
                found = _Batches.of(log, 0, -1, checks=False)
            values |= {**_end(side, found), f"{side}_beyond_records": found.records, f"{side}_grew": grew}
    except (OSError, KidxError) as error:
        text = describe_error(error)
        name = segment_file(pair.base_offset, LOG_SUFFIX)
        values["problem"] = text if name in text else f"{name}: {text}"
    return LogPairRow.of(values)


def _other(pair: LogPair) -> tuple[str, str, int]:
    assert pair.other is not None  # one of the two is there
    return "other", pair.other, pair.other_bytes


def _log_of(opened: OpenedLog, size: int, *, use_mmap: bool, access: Access) -> tuple[LogBytes, int]:
    """Give as much of a log as was listed, and by how many bytes it has grown since.

    Raises:
        LogChangedError: it is shorter.
    """
    if opened.version.size < size:
        raise LogChangedError(f"{opened.version.size:,} bytes, it had {size:,} when it was listed; compare again")
    return opened.log(size, use_mmap=use_mmap, access=access), opened.version.size - size


def _compared(one: str, one_bytes: int, other: str, other_bytes: int, use_mmap: bool) -> dict[str, object]:
    """Both logs, as columns of `LogPairRow`."""
    with opened_log(one) as opened, opened_log(other) as opened_other:
        first, grew = _log_of(opened, one_bytes, use_mmap=use_mmap, access=Access.SEQUENTIAL)
        second, other_grew = _log_of(opened_other, other_bytes, use_mmap=use_mmap, access=Access.SEQUENTIAL)
        paired = PairedLog(first, second)
        same, batch_end = _same_batches(paired, second.size)
        found = paired.differences
        columns: dict[str, object] = {
            "differing_bytes": found.count,
            "first_difference": None if found.first < 0 else found.first,
            "last_difference": None if found.last < 0 else found.last,
            "same_end_offset": None if same.end_offset < 0 else same.end_offset,
            "same_bytes": same.valid_end,
            "same_records": same.records,
            "batch_end_offset": batch_end,
            "one_grew": grew,
            "other_grew": other_grew,
        }
        return columns | _beyond(first, second, same, found.first)


def _same_batches(paired: PairedLog, limit: int) -> tuple[_Batches, int | None]:
    """The first batches, as far as they are the same in both logs, and the offset after the one that is not; None where
    there is none. All that both have was compared then.

    Args:
        limit: so many bytes the other log has.
    """
    same, batch_end = _Batches(), None
    with contextlib.suppress(MalformedRecordsError):  # what stands there is looked at once more
        for table in BatchWalk(paired, 0, Wanted()).tables():
            first = paired.differences.first
            ends = table.rows["position"] + table.rows["size"]
            count = int(np.searchsorted(ends, limit if first < 0 else min(limit, first), "right"))
            same.add(table.first(count))
            if count < len(ends):
                batch_end = int(table.rows["last_offset"][count]) + 1
                break
    paired.compare_rest()
    return same, batch_end


def _beyond(one: LogBytes, other: LogBytes, same: _Batches, difference: int) -> dict[str, object]:
    """What stands in each log after the batches that both have, which is nothing where the logs are the same."""
    columns: dict[str, object] = {}
    for side, log in (("one", one), ("other", other)):
        found = _Batches(end_offset=same.end_offset, valid_end=same.valid_end)
        if same.valid_end < log.size:
            found = _Batches.of(log, same.valid_end, same.end_offset, checks=True)
        columns |= _end(side, found)
        columns[f"{side}_beyond_records"] = found.records
        columns[f"{side}_zeros"] = 0 < zeros_from(log, found.valid_end) == log.size - found.valid_end
        columns[f"{side}_damaged"] = None if found.damaged < 0 else found.damaged
        columns[f"{side}_repeated"] = None if found.repeated < 0 else found.repeated
        columns[f"{side}_zeros_there"] = None if difference < 0 else zeros_from(log, difference)
    return columns


def _end(side: str, found: _Batches) -> dict[str, object]:
    return {
        f"{side}_end_offset": None if found.end_offset < 0 else found.end_offset,
        f"{side}_valid_bytes": found.valid_end,
    }
