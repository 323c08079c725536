"""The work of a plan's workers (`plan_partitions`): a row for each segment under each policy, with the decision on it
and its reason, by the catalog and, if asked for, by the files.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values, is_any_of, runs
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import PLANNED
from kidxlib.catalog.retention_plans import PolicyInPlan
from kidxlib.catalog.rows import rows_of_columns
from kidxlib.engine.work import ItemRows, SharedRows
from kidxlib.errors import KidxError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, parse_segment_log, segment_file
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.log.segment import LogSegment
from kidxlib.records import batch_headers, reader
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.retention.decide import (
    Decisions,
    Flags,
    Longs,
    RetentionBounds,
    SegmentColumns,
    decide,
    decision_of,
    keep_all,
    kept_for_its_topic,
)
from kidxlib.retention.policy import (
    REASONS,
    Cleanup,
    PlanWarning,
    Reason,
    TopicConfig,
    TopicPolicy,
)
from kidxlib.storage.location import location
from kidxlib.text.times import NS_PER_MS, YEAR_2000_MS

_ROWS: Final = pa.schema(list(PLANNED.field("segment").type))

_REASONS: Final = pa.array([reason.value for reason in REASONS])

_DECISIONS: Final = pa.array([decision_of(reason).value for reason in REASONS])

#: Warnings; a warning's position is its number in columns, and its place in a row's list.
_WARNINGS: Final = (
    *(PlanWarning.LOOKS_COMPACTED, PlanWarning.WHOLE_PARTITION),
    *(PlanWarning.FUTURE_TIMESTAMP, PlanWarning.TIMESTAMPS_IN_SECONDS, PlanWarning.TIMESTAMPS_BACKWARDS),
    *(PlanWarning.ONLY_REPLICA, PlanWarning.LATE_HIGH_WATERMARK),
    *(PlanWarning.TIME_INDEX_PADDED, PlanWarning.TIME_INDEX_INCOMPLETE),
)

_WARNING_WORDS: Final = pa.array([warning.value for warning in _WARNINGS])

#: Columns of a plan that are those of the catalog.
_AS_IN_CATALOG: Final = (
    *(*PARTITIONS.key, "base_offset", "topic_id", "log_mtime_ns", "log_inode", "log_path", "index_directory"),
    *("log_start_offset", "high_watermark"),
)

_P = ParamSpec("_P")

_T = TypeVar("_T")

#: The column, besides the catalog's, that says whether a segment's partition is the only replica.
IS_ONLY_REPLICA: Final = "is_only_replica"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan decides.

    Attributes:
        from_files: also read the time index of each segment.
        what_if: take Kafka's defaults for settings that are not known. Such a plan cannot be applied.
    """

    now_ms: int
    from_files: bool
    include_internal: bool
    what_if: bool


@dataclass(frozen=True, slots=True)
class ShareToPlan:
    """Some partitions, with the rows of their segments.

    Attributes:
        rows: one for each segment: its key, the other columns of `SegmentToPlan`, the offsets that checkpoints gave for
            its partition, and whether this is the only replica. Rows of a partition follow one another, segments in
            order.
        configs: the configurations of their topics: by topic, then by the policy's name. Every topic has all policies.
        compacted_topics: those of their topics that look compacted.
    """

    rows: SharedRows
    configs: Mapping[str, Mapping[str, TopicConfig]]
    compacted_topics: Collection[str]


def plan_partitions(shares: Iterable[ShareToPlan], *, options: PlanOptions) -> Iterator[ItemRows]:
    """Rows of `PLANNED`: a row for each segment and policy."""
    for share in shares:
        rows = pa.Table.from_batches(share.rows.batches()).combine_chunks()
        partitions = split_into_partitions(rows)
        on_disk = [partition.on_disk() for partition in partitions] if options.from_files else None
        for name in next(iter(share.configs.values())):
            configs = {topic: of_topic[name] for topic, of_topic in share.configs.items()}
            planned = planned_rows(rows, partitions, name, configs, share.compacted_topics, options, on_disk)
            yield ItemRows(batches=_as_kind(planned))
        yield ItemRows(segments=rows.num_rows)


def _as_kind(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    kind = PLANNED.field("segment").type
    for batch in rows.to_batches():
        struct = pa.StructArray.from_arrays(batch.columns, fields=list(kind))
        yield pa.RecordBatch.from_arrays([struct], schema=PLANNED)


def planned_rows(
    rows: pa.Table,
    partitions: Sequence[PartitionToPlan],
    name: str,
    configs: Mapping[str, TopicConfig],
    compacted_topics: Collection[str],
    options: PlanOptions,
    on_disk: Sequence[Sequence[OnDisk | None]] | None,
) -> pa.Table:
    """Rows of `PLANNED` under the policy `name`, one for each segment. `rows` are `ShareToPlan.rows`, and
    `partitions` those in them, in order. `on_disk` has for each partition the largest timestamps in its time indexes;
    None if only the catalog was asked.
    """
    decided = []
    for number, partition in enumerate(partitions):
        rule = PartitionPlanRule.of_partition(
            partition, configs[partition.of_first_row("topic")], options, compacted_topics
        )
        decisions = rule.decide(partition.segments)
        decided.append(_Decided(partition, rule, decisions, None if on_disk is None else on_disk[number]))
    columns: dict[str, Any] = {
        **{column: rows[column] for column in _AS_IN_CATALOG},
        "bytes": rows["log_bytes"],
        **_policy_columns(name, configs, rows["topic"]),
        **_decision_columns(decided),
        **_columns_from_logs(decided),
        "warnings": _warnings(decided),
    }
    if on_disk is not None:
        columns |= _columns_from_time_indexes(decided)
    # Values stay in columns all the way from the catalog: a Python row for each of a million segments would take
    # minutes.
    return rows_of_columns(columns, rows.num_rows, _ROWS)


@dataclass(frozen=True, slots=True)
class PartitionToPlan:
    """A partition that a worker plans, with its segments by base offset.

    Attributes:
        rows: as `ShareToPlan.rows`.
        segments: the same segments as arrays.
    """

    rows: pa.Table
    segments: SegmentColumns

    @property
    def log_end_offset(self) -> int:
        """The end offset of the log to plan, by its segments' rows."""
        last = self.rows["next_offset"][-1].as_py()
        return int(self.segments.base_offsets[-1]) if last is None else int(last)

    def of_first_row(self, column: str) -> Any:
        """A value that the rows of the partition to plan have in common."""
        return self.rows[column][0].as_py()

    @property
    def is_only_replica(self) -> bool:
        """Whether the partition to plan is the only replica, so that its whole log counts whatever the checkpoint says:
        see `OnlyReplicas`.
        """
        return bool(self.of_first_row(IS_ONLY_REPLICA))

    def bounds(self, policy: TopicPolicy) -> RetentionBounds:
        """Between which offsets the partition is planned, by the checkpoints in its rows."""
        bounds = RetentionBounds.at_start(
            int(self.segments.base_offsets[0]),
            self.log_end_offset,
            log_start_offset=self.of_first_row("log_start_offset"),
            high_watermark=None if self.is_only_replica else self.of_first_row("high_watermark"),
        )
        asked = policy.log_start_asked_for(self.of_first_row("partition"))
        return bounds if asked is None else bounds.deleted_up_to(asked)

    def on_disk(self) -> list[OnDisk | None]:
        """Largest timestamps in the time indexes of the partition to plan; None for one that no broker would use."""
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
        """Open a segment of the partition to plan, by the paths in its row."""
        log_path, index_directory = (self.rows[name][number].as_py() for name in ("log_path", "index_directory"))
        base_offset = int(self.segments.base_offsets[number])
        return LogSegment.open(location(log_path).parent, base_offset, location(index_directory))


@dataclass(frozen=True, slots=True)
class PartitionPlanRule:
    """The rule by which a worker plans a partition. `kept` says why all segments stay; None: the policy decides."""

    bounds: RetentionBounds
    policy: TopicPolicy
    kept: Reason | None
    now_ms: int
    looks_compacted: bool

    @classmethod
    def of_partition(
        cls, partition: PartitionToPlan, config: TopicConfig, options: PlanOptions, compacted: Collection[str]
    ) -> PartitionPlanRule:
        """The rule by which a worker plans this partition."""
        topic = partition.of_first_row("topic")
        kept = kept_for_its_topic(
            topic,
            config,
            include_internal=options.include_internal,
            what_if=options.what_if,
            looks_compacted=topic in compacted,
        )
        if parse_segment_log(posixpath.basename(partition.of_first_row("log_path"))) is None:
            kept = Reason.NOT_MODELLED  # a copy in tiered storage: RemoteLogManager has other rules
        return cls(partition.bounds(config.policy), config.policy, kept, options.now_ms, topic in compacted)

    def decide(self, segments: SegmentColumns) -> Decisions:
        """What a worker decides on the partition's segments."""
        if self.kept is not None:
            return keep_all(segments, self.kept)
        return decide(segments, self.bounds, self.policy, self.now_ms)


def split_into_partitions(rows: pa.Table) -> list[PartitionToPlan]:
    """Split the rows that a worker plans (`ShareToPlan.rows`, one at least) into partitions, in order. Each column
    becomes an array once, for all partitions together.
    """
    whole = _segments(rows)
    return [
        PartitionToPlan(rows.slice(start, end - start), whole.part(start, end))
        for start, end in runs([rows[name].combine_chunks() for name in PARTITIONS.key])
    ]


def _segments(rows: pa.Table) -> SegmentColumns:
    # A truncated segment counts with the bytes that are left once a broker has truncated it.
    is_truncated = is_any_of(rows["status"], (Status.TRUNCATED,))
    return SegmentColumns(
        base_offsets=_longs(rows["base_offset"]),
        sizes=np.where(is_truncated, _longs(rows["valid_bytes"]), _longs(rows["log_bytes"])),
        max_timestamps=_longs(rows["max_timestamp_ms"]),
        mtimes_ms=_longs(rows["log_mtime_ns"]) // NS_PER_MS,
        fully_read=is_any_of(rows["status"], USABLE),
    )


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The largest timestamp in a segment's `.timeindex`.

    Attributes:
        max_timestamp: ms since the epoch; −1 if the index has no entry, or is missing: a broker makes an empty one.
        warning: what is wrong with the index, if the segment is known to have larger timestamps.
    """

    max_timestamp: int
    warning: PlanWarning | None


def max_timestamp_on_disk(directories: Sequence[str], base_offset: int, known: int) -> OnDisk | None:
    """Read for a plan which largest timestamp a broker would take from a segment's time index: that of the first
    directory with an index file of the segment. None if there is no `.index`: a broker then rebuilds the indexes, and
    finds `known`, the largest timestamp in the log.
    """
    for directory in directories:
        time_index = os.path.join(directory, segment_file(base_offset, TIME_INDEX_SUFFIX))
        if (location(directory) / segment_file(base_offset, OFFSET_INDEX_SUFFIX)).exists():
            return _read(time_index, base_offset, known)
        if location(time_index).exists():
            return None
    return None


def _read(path: str, base_offset: int, known: int) -> OnDisk:
    try:
        last = TimeIndex.open(path, base_offset).last_entry
    except FileNotFoundError:
        last = TimestampOffset(layouts.NO_TIMESTAMP, base_offset)
    warning = None
    if last.timestamp < known:
        padded = last == TimestampOffset(0, base_offset)
        warning = PlanWarning.TIME_INDEX_PADDED if padded else PlanWarning.TIME_INDEX_INCOMPLETE
    return OnDisk(last.timestamp, warning)


def _longs(column: Values) -> Longs:
    """A column of numbers as an array, with 0 for null."""
    values: Longs = column.fill_null(pa.scalar(0, pa.int64())).to_numpy()
    return values


def _or_none(look: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T | None:
    """The result of reading files; None if they are not here or damaged: the plan then goes by the catalog alone."""
    try:
        return look(*arguments, **named)
    except (KidxError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class _Decided:
    """The decisions on a partition's segments. `on_disk` has the largest timestamps in the time indexes; None if only
    the catalog was asked.
    """

    partition: PartitionToPlan
    rule: PartitionPlanRule
    decisions: Decisions
    on_disk: Sequence[OnDisk | None] | None

    def __len__(self) -> int:
        return len(self.partition.segments)

    def cut(self) -> tuple[int, int | None] | None:
        """The number of the segment with the first record that is not too old, and this record's offset; None if the
        policy does not delete by time, or does not decide.

        The record is looked for as in `UnifiedLog.searchOffsetInLocalLog`: in the first segment whose largest timestamp
        is large enough. If all records are older, the offset is the log end offset.
        """
        policy, bounds = self.rule.policy, self.rule.bounds
        if self.rule.kept is not None or policy.retention_ms < 0 or Cleanup.DELETE not in policy.cleanup:
            return None
        limit_ms = self.rule.now_ms - policy.retention_ms
        unexpired = self.decisions.largest_timestamps >= limit_ms
        if not unexpired.any():
            return len(unexpired) - 1, self.partition.log_end_offset
        number = int(unexpired.argmax())

        def search() -> int | None:
            found = self.partition.open(number).find_offset_by_timestamp(limit_ms, bounds.log_start_offset)
            return None if found is None else found.offset

        return number, _or_none(search)

    def first_timestamp(self) -> tuple[int, int | None] | None:
        """The number of the first segment that stays, and the timestamp of the first record that a consumer gets from
        it on. Markers of transactions and records below the log start offset do not count.
        """
        if self.decisions.whole_partition:
            return None
        log_start_offset = self.rule.bounds.log_start_offset

        def first() -> int | None:
            for number in range(self.decisions.deleted, len(self)):
                log = self.partition.open(number).log
                for batch in batch_headers.batches(log):
                    if not batch.is_control and batch.last_offset >= log_start_offset:
                        for record in reader.records(log, batch):
                            if record.offset >= log_start_offset:
                                return record.timestamp
            return None

        return self.decisions.deleted, _or_none(first)

    def flags_of(self, warning: PlanWarning) -> Flags:
        count = len(self)
        if warning is PlanWarning.LOOKS_COMPACTED:
            return (np.arange(count) < self.decisions.deleted) & self.rule.looks_compacted
        if warning is PlanWarning.WHOLE_PARTITION:
            return np.full(count, self.decisions.whole_partition)
        if warning is PlanWarning.FUTURE_TIMESTAMP:
            return self.decisions.future_ms.astype(np.bool_)
        if warning is PlanWarning.TIMESTAMPS_IN_SECONDS:
            return self._in_seconds()
        if warning is PlanWarning.TIMESTAMPS_BACKWARDS:
            return self.decisions.backwards_ms.astype(np.bool_)
        if warning is PlanWarning.ONLY_REPLICA:
            return self._goes_above_checkpoint()
        if warning is PlanWarning.LATE_HIGH_WATERMARK:
            return self._goes_with_later_high_watermark()
        if self.on_disk is None:
            return np.zeros(count, np.bool_)
        return np.array([read is not None and read.warning is warning for read in self.on_disk], np.bool_)

    def _goes_above_checkpoint(self) -> Flags:
        """Which segments go although they reach above the checkpoint's high watermark."""
        count, checkpointed = len(self), self.partition.of_first_row("high_watermark")
        if not self.partition.is_only_replica or checkpointed is None:
            return np.zeros(count, np.bool_)
        next_offsets = np.append(self.partition.segments.base_offsets[1:], self.partition.log_end_offset)
        flags: Flags = (np.arange(count) < self.decisions.deleted) & (next_offsets > checkpointed)
        return flags

    def _goes_with_later_high_watermark(self) -> Flags:
        """Which segments are kept by the high watermark alone."""
        flags: Flags = self.decisions.reasons == REASONS.index(Reason.HIGH_WATERMARK)
        if not flags.any():
            return flags
        bounds = replace(self.rule.bounds, high_watermark=self.rule.bounds.log_end_offset)
        later = decide(self.partition.segments, bounds, self.rule.policy, self.rule.now_ms)
        return flags & (np.arange(len(self)) < later.deleted)

    def _in_seconds(self) -> Flags:
        """Which segments go by time although their largest timestamp, taken for seconds, is one of this century."""
        largest = self.decisions.largest_timestamps
        by_time: Flags = self.decisions.reasons == REASONS.index(Reason.TIME)
        return by_time & (largest >= YEAR_2000_MS // 1000) & (largest <= self.rule.now_ms // 1000)


def policy_in_plan(name: str, config: TopicConfig) -> PolicyInPlan:
    """A topic's policy as a worker writes it into the rows of a plan."""
    policy = config.policy
    return PolicyInPlan(
        policy=name,
        retention_ms=policy.retention_ms,
        retention_bytes=policy.retention_bytes,
        cleanup_policy=policy.cleanup_text,
        remote_storage=policy.remote_storage,
        policy_origins=config.origins,
    )


def _policy_columns(name: str, configs: Mapping[str, TopicConfig], topics: Values) -> dict[str, Any]:
    policies = [policy_in_plan(name, config).values() for config in configs.values()]
    for row in policies:
        row["policy_origins"] = list(row["policy_origins"].items())  # Arrow wants a map's entries
    schema = pa.schema([column.field for column in PolicyInPlan.columns()])
    of_topics = pa.Table.from_pylist(policies, schema)
    numbers: Values = pc.index_in(topics, value_set=pa.array(list(configs), pa.string()))
    return {column: of_topics[column].combine_chunks().take(numbers) for column in schema.names}


def _decision_columns(decided: Sequence[_Decided]) -> dict[str, Any]:
    def joined(column: str) -> Any:
        return np.concatenate([getattr(part.decisions, column) for part in decided])

    reasons: Values = pa.array(joined("reasons"))
    last = np.cumsum([len(part) for part in decided]) - 1
    rolls_first = np.zeros(last[-1] + 1, np.bool_)
    rolls_first[last] = [part.decisions.whole_partition for part in decided]
    base_offsets = np.concatenate([part.partition.segments.base_offsets for part in decided])
    next_offsets = np.append(base_offsets[1:], 0)
    next_offsets[last] = [part.partition.log_end_offset for part in decided]
    due = np.concatenate([part.decisions.due_ms(part.rule.policy.retention_ms) for part in decided])
    return {
        "decision": _DECISIONS.take(reasons),
        "reason": _REASONS.take(reasons),
        "largest_timestamp_ms": joined("largest_timestamps"),
        "age_from_mtime": joined("age_from_mtime"),
        "counted_bytes": np.concatenate([part.partition.segments.sizes for part in decided]),
        "future_ms": joined("future_ms"),
        "backwards_ms": joined("backwards_ms"),
        "due_ms": pa.array(due, mask=due < 0),
        "rolls_first": rolls_first,
        "next_offset": next_offsets,
    }


def _columns_from_logs(decided: Sequence[_Decided]) -> dict[str, Any]:
    """Columns with a value for one segment of each partition, which is read from that segment's log."""
    cuts: dict[int, int] = {}
    firsts: dict[int, int] = {}
    start = 0
    for part in decided:
        for numbered, values in ((part.cut(), cuts), (part.first_timestamp(), firsts)):
            if numbered is not None and numbered[1] is not None:
                values[start + numbered[0]] = numbered[1]
        start += len(part)
    return {"cut_offset": _sparse(start, cuts), "first_timestamp_ms": _sparse(start, firsts)}


def _sparse(count: int, values: Mapping[int, int]) -> Any:
    """A column that has values at some positions, and null elsewhere."""
    column, is_null = np.zeros(count, np.int64), np.ones(count, np.bool_)
    places = list(values)
    column[places] = list(values.values())
    is_null[places] = False
    return pa.array(column, mask=is_null)


def _columns_from_time_indexes(decided: Sequence[_Decided]) -> dict[str, Any]:
    """The decisions that follow from the time indexes as they are now."""
    timestamps, reasons = [], []
    for part in decided:
        segments = part.partition.segments
        pairs = zip(segments.max_timestamps, part.on_disk or (), strict=True)
        largest = np.array([known if read is None else read.max_timestamp for known, read in pairs], np.int64)
        timestamps.append(largest)
        reasons.append(part.rule.decide(replace(segments, max_timestamps=largest)).reasons)
    numbers: Values = pa.array(np.concatenate(reasons))
    return {
        "decision_on_disk": _DECISIONS.take(numbers),
        "reason_on_disk": _REASONS.take(numbers),
        "timestamp_on_disk_ms": np.concatenate(timestamps),
    }


def _warnings(decided: Sequence[_Decided]) -> Any:
    """A column with the list of each segment's warnings."""
    flags = np.column_stack([np.concatenate([part.flags_of(warning) for part in decided]) for warning in _WARNINGS])
    offsets = np.append(0, np.cumsum(flags.sum(axis=1)))
    words: Values = _WARNING_WORDS.take(flags.nonzero()[1])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), words)
