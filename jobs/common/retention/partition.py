"""One partition as it is planned: its segments in the catalog and, where that is asked for, its files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from kidxlib.errors import KidxError
from kidxlib.log.segment import LogSegment
from kidxlib.records import header_walk, reader
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.retention.decide import Decisions
from kidxlib.retention.partition import Bounds, Longs, Segments
from kidxlib.retention.time_index_files import OnDisk, max_timestamp_on_disk
from kidxlib.retention.topic_policy import Cleanup, TopicPolicy
from kidxlib.storage.location import location
from kidxlib.times import NS_PER_MS

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Partition:
    table: pa.Table
    segments: Segments
    log_end_offset: int

    @classmethod
    def of(cls, table: pa.Table) -> Partition:
        status = table["status"].to_numpy()
        last = table.slice(len(table) - 1).to_pylist()[0]
        segments = Segments(
            base_offsets=table["base_offset"].to_numpy(),
            # What is left of a truncated one once a broker has truncated it.
            sizes=np.where(status == Status.TRUNCATED.value, _longs(table, "valid_bytes"), _longs(table, "log_bytes")),
            max_timestamps=_longs(table, "max_timestamp_ms"),
            mtimes_ms=_longs(table, "log_mtime_ns") // NS_PER_MS,
            fully_read=np.isin(status, [status.value for status in USABLE]),
        )
        return cls(table, segments, last["base_offset"] if last["next_offset"] is None else last["next_offset"])

    def of_first_row(self, column: str) -> Any:
        return self.table[column][0].as_py()

    def bounds(self, policy: TopicPolicy) -> Bounds:
        bounds = Bounds.at_start(
            int(self.segments.base_offsets[0]),
            self.log_end_offset,
            log_start_offset=self.of_first_row("log_start_offset"),
            high_watermark=self.of_first_row("high_watermark"),
        )
        asked = policy.log_start_asked_for(self.of_first_row("partition"))
        return bounds if asked is None else bounds.deleted_up_to(asked)

    def on_disk(self) -> list[OnDisk | None]:
        """What the time index of each segment says; None where a broker would not go by it."""
        places = zip(
            *(self.table[name].to_pylist() for name in ("log_path", "index_directory", "base_offset")),
            self.segments.max_timestamps.tolist(),
            strict=True,
        )
        return [
            _or_none(max_timestamp_on_disk, [os.path.dirname(log), directory], base_offset, known)
            for log, directory, base_offset, known in places
        ]

    def open(self, number: int) -> LogSegment:
        row = self.table.slice(number, 1).to_pylist()[0]
        return LogSegment.open(location(row["log_path"]).parent, row["base_offset"], location(row["index_directory"]))


def first_unexpired_offset(
    partition: Partition, bounds: Bounds, policy: TopicPolicy, decisions: Decisions, now_ms: int
) -> tuple[int, int | None] | None:
    """The segment that holds the first record which is not too old, and that record's offset.

    As `UnifiedLog.searchOffsetInLocalLog` finds it, in the first segment that has so large a timestamp; where all are
    older it is the log end offset.
    """
    if policy.retention_ms < 0 or Cleanup.DELETE not in policy.cleanup:
        return None
    unexpired = decisions.largest_timestamps >= now_ms - policy.retention_ms
    if not unexpired.any():
        return len(unexpired) - 1, partition.log_end_offset
    number = int(unexpired.argmax())

    def search() -> int | None:
        limit_ms = now_ms - policy.retention_ms
        found = partition.open(number).find_offset_by_timestamp(limit_ms, bounds.log_start_offset)
        return None if found is None else found.offset

    return number, _or_none(search)


def first_timestamp(partition: Partition, decisions: Decisions) -> tuple[int, int | None] | None:
    """The first segment that stays, and the timestamp of its first record."""
    if decisions.whole_partition:
        return None

    def first() -> int | None:
        log = partition.open(decisions.deleted).log
        return next(
            (record.timestamp for batch in header_walk.batches(log) for record in reader.records(log, batch)),
            None,
        )

    return decisions.deleted, _or_none(first)


def _longs(table: pa.Table, column: str) -> Longs:
    """A column of numbers, 0 where they are not known."""
    values: Longs = table[column].fill_null(pa.scalar(0, pa.int64())).to_numpy()
    return values


def _or_none(look: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T | None:
    """What is found in files; None where they are not at hand, or not as they should be: the plan is the catalog's."""
    try:
        return look(*arguments, **named)
    except (KidxError, OSError):
        return None
