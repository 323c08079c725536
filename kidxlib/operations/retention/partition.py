"""One partition as it is planned: its segments in the catalog and, where that is asked for, its files."""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values, differing
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.log.segment import LogSegment
from kidxlib.operations.retention.plan_options import IS_ONLY_REPLICA, PlanOptions
from kidxlib.records import batch_headers, reader
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.retention.decide import Decisions, decide, keep_all
from kidxlib.retention.partition import Bounds, Flags, Longs, Segments
from kidxlib.retention.policy import TopicConfig, kept_for_its_topic
from kidxlib.retention.reasons import Reason
from kidxlib.retention.time_index_files import OnDisk, max_timestamp_on_disk
from kidxlib.retention.topic_policy import Cleanup, TopicPolicy
from kidxlib.storage.location import location
from kidxlib.text.times import NS_PER_MS

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's segments by base offset.

    Attributes:
        rows: as `PartitionsToPlan.rows`.
        segments: the same as arrays.
    """

    rows: pa.Table
    segments: Segments

    @property
    def log_end_offset(self) -> int:
        last = self.rows["next_offset"][-1].as_py()
        return int(self.segments.base_offsets[-1]) if last is None else int(last)

    def of_first_row(self, column: str) -> Any:
        return self.rows[column][0].as_py()

    @property
    def is_only_replica(self) -> bool:
        """Whether all in its log counts, whatever the checkpoint says: see `OnlyReplicas`."""
        return bool(self.of_first_row(IS_ONLY_REPLICA))

    def bounds(self, policy: TopicPolicy) -> Bounds:
        bounds = Bounds.at_start(
            int(self.segments.base_offsets[0]),
            self.log_end_offset,
            log_start_offset=self.of_first_row("log_start_offset"),
            high_watermark=None if self.is_only_replica else self.of_first_row("high_watermark"),
        )
        asked = policy.log_start_asked_for(self.of_first_row("partition"))
        return bounds if asked is None else bounds.deleted_up_to(asked)

    def on_disk(self) -> list[OnDisk | None]:
        """What the time index of each segment says; None where a broker would not go by it."""
        places = zip(
            *(self.rows[name].to_pylist() for name in ("log_path", "index_directory", "base_offset")),
            self.segments.max_timestamps.tolist(),
            strict=True,
        )
        return [
            _or_none(max_timestamp_on_disk, [os.path.dirname(log), directory], base_offset, known)
            for log, directory, base_offset, known in places
        ]

    def open(self, number: int) -> LogSegment:
        log_path, index_directory = (self.rows[name][number].as_py() for name in ("log_path", "index_directory"))
        base_offset = int(self.segments.base_offsets[number])
        return LogSegment.open(location(log_path).parent, base_offset, location(index_directory))


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """What a partition's segments are decided by.

    Attributes:
        kept: why all of them stay; None where the policy decides.
    """

    bounds: Bounds
    policy: TopicPolicy
    kept: Reason | None
    now_ms: int
    looks_compacted: bool

    @classmethod
    def of(
        cls, partition: Partition, config: TopicConfig, options: PlanOptions, compacted: Collection[str]
    ) -> PartitionRule:
        """The rule of a partition.

        Args:
            compacted: topics that look so.
        """
        topic = partition.of_first_row("topic")
        kept = kept_for_its_topic(
            topic,
            config,
            include_internal=options.include_internal,
            what_if=options.what_if,
            looks_compacted=topic in compacted,
        )
        if parse_segment_log(posixpath.basename(partition.of_first_row("log_path"))) is None:
            kept = Reason.NOT_MODELLED  # a copy in a bucket of tiered storage: RemoteLogManager decides of it otherwise
        return cls(partition.bounds(config.policy), config.policy, kept, options.now_ms, topic in compacted)

    def decide(self, segments: Segments) -> Decisions:
        """What becomes of its segments."""
        if self.kept is not None:
            return keep_all(segments, self.kept)
        return decide(segments, self.bounds, self.policy, self.now_ms)


def partitions_of(rows: pa.Table) -> list[Partition]:
    """The partitions in some rows, in order. Columns become arrays once for all of them.

    Args:
        rows: as `PartitionsToPlan.rows`, one at least.
    """
    changes = differing(rows.slice(1), rows.slice(0, rows.num_rows - 1), PARTITIONS.key)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), rows.num_rows]
    whole = _segments(rows)
    return [
        Partition(rows.slice(start, end - start), whole.part(start, end)) for start, end in itertools.pairwise(starts)
    ]


def _segments(rows: pa.Table) -> Segments:
    # What is left of a truncated one once a broker has truncated it.
    is_truncated = _among(rows["status"], (Status.TRUNCATED,))
    return Segments(
        base_offsets=_longs(rows["base_offset"]),
        sizes=np.where(is_truncated, _longs(rows["valid_bytes"]), _longs(rows["log_bytes"])),
        max_timestamps=_longs(rows["max_timestamp_ms"]),
        mtimes_ms=_longs(rows["log_mtime_ns"]) // NS_PER_MS,
        fully_read=_among(rows["status"], USABLE),
    )


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


def first_timestamp(partition: Partition, decisions: Decisions, log_start_offset: int) -> tuple[int, int | None] | None:
    """The first segment that stays, and the timestamp of the first record that a consumer gets from there on: no marker
    of a transaction, and none below the log start offset.
    """
    if decisions.whole_partition:
        return None

    def first() -> int | None:
        for number in range(decisions.deleted, len(partition.segments)):
            log = partition.open(number).log
            for batch in batch_headers.batches(log):
                if not batch.is_control and batch.last_offset >= log_start_offset:
                    for record in reader.records(log, batch):
                        if record.offset >= log_start_offset:
                            return record.timestamp
        return None

    return decisions.deleted, _or_none(first)


def _longs(column: Values) -> Longs:
    """A column of numbers, 0 where they are not known."""
    values: Longs = column.fill_null(pa.scalar(0, pa.int64())).to_numpy()
    return values


def _among(column: Values, statuses: Sequence[Status]) -> Flags:
    found: Values = pc.is_in(column, value_set=pa.array([status.value for status in statuses]))
    flags: Flags = found.to_numpy().astype(np.bool_)
    return flags


def _or_none(look: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T | None:
    """What is found in files; None where they are not at hand, or not as they should be: the plan is the catalog's."""
    try:
        return look(*arguments, **named)
    except (KidxError, OSError):
        return None
