"""Partitions over executors: each is planned by itself, from the catalog and, where that is asked for, its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from jobs.common.tables import PARTITIONS, PLANNED_ARROW_SCHEMA, PLANNED_SCHEMA
from kidxlib import records
from kidxlib.errors import KidxError, UsageError
from kidxlib.largest_timestamp import OnDisk, max_timestamp_on_disk
from kidxlib.log_segment import LogSegment
from kidxlib.objects import location
from kidxlib.policy import TopicConfig, kept_for_its_topic
from kidxlib.recover import USABLE, Status
from kidxlib.retention import (
    REASONS,
    Bounds,
    Cleanup,
    Decisions,
    Longs,
    Segments,
    Surprise,
    TopicPolicy,
    decide,
    decision_of,
    keep_all,
)
from kidxlib.times import NS_PER_MS

_WORDS: Final = np.array([reason.value for reason in REASONS], object)
_DECISIONS: Final = np.array([decision_of(reason).value for reason in REASONS], object)

_ORIGINS: Final = pa.map_(pa.string(), pa.string())
#: Columns of a plan that are those of the catalog.
_AS_IN_CATALOG: Final = (
    *(*PARTITIONS.key, "base_offset", "topic_id", "log_mtime_ns", "log_inode", "log_path", "index_folder"),
    *("log_start_offset", "high_watermark"),
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: By topic, what its configuration says by each policy's name.
Configs = Mapping[str, Mapping[str, TopicConfig]]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan is made for.

    Attributes:
        high_watermark: of every partition; None takes what the catalog says of each.
        from_files: look at each time index, too.
        what_if: take Kafka's own defaults where nobody said anything; nothing is deleted by such a plan.
        compacted_topics: those that look so.
    """

    now_ms: int
    high_watermark: int | None
    from_files: bool
    include_internal: bool
    what_if: bool
    compacted_topics: frozenset[str] = frozenset()


def topics_that_look_compacted(rows: DataFrame) -> frozenset[str]:
    """Topics with segments that lack offsets, which nothing but compaction takes out of a log.

    A broker gives offsets without a hole, markers of transactions included; so a segment has as many records as
    offsets, and one begins where the one before it ends. Segments that are `ok` tell. Where messages of magic 0 or 1
    are compressed, how many there are is not known: such a topic may be compacted, and counts as if it were. A segment
    that is missing looks like compaction, too.

    Args:
        rows: of `Catalog.to_plan`.
    """
    following = F.lead("base_offset").over(Window.partitionBy(*PARTITIONS.key).orderBy("base_offset"))
    records, end = F.col("records"), F.col("next_offset")
    lacks = records.isNull() | (records < end - F.col("base_offset")) | F.coalesce(following > end, F.lit(False))
    looks_so = rows.withColumn("lacks", (F.col("status") == Status.OK.value) & lacks).where("lacks")
    return frozenset(row["topic"] for row in looks_so.select("topic").distinct().collect())


def refuse_topics_of_several_clusters(rows: DataFrame, policy_file: Path) -> None:
    """What Kafka's tools print of a topic holds for the cluster that they asked. A topic that was made again has
    another id, too.

    Args:
        rows: of `Catalog.to_plan`.
        policy_file: what they printed.

    Raises:
        UsageError: a topic has several topic ids in the sources; one without an id could be any.
    """
    ids = (
        rows.where("topic_id IS NOT NULL")
        .groupBy("topic")
        .agg(
            F.count_distinct("topic_id").alias("ids"),
            F.min("topic_id").alias("one"),
            F.min_by("source", "topic_id").alias("of_one"),
            F.max("topic_id").alias("other"),
            F.max_by("source", "topic_id").alias("of_other"),
        )
    )
    row = ids.where("ids > 1").orderBy("topic").head()
    if row is not None:
        of = f"{row['one']} in source {row['of_one']} and {row['other']} in source {row['of_other']}"
        raise UsageError(
            f"--policy {policy_file}: it tells of one cluster's topics, and {row['topic']} has the topic id {of}; "
            "choose the sources of that cluster with --source"
        )


def plan_on_executors(rows: DataFrame, configs: Configs, options: PlanOptions) -> DataFrame:
    """Rows of `PLANNED_SCHEMA`, a row for each segment and policy.

    Args:
        rows: of `Catalog.to_plan`.
    """
    known_configs = rows.sparkSession.sparkContext.broadcast(configs)

    def plan_all(key: tuple[Any, ...], segments: pa.Table) -> pa.Table:
        named = known_configs.value[key[1].as_py()]
        return pa.concat_tables(plan_partition(segments.sort_by("base_offset"), named, options))

    return rows.groupBy(*PARTITIONS.key).applyInArrow(plan_all, PLANNED_SCHEMA)


def plan_partition(table: pa.Table, configs: Mapping[str, TopicConfig], options: PlanOptions) -> Iterable[pa.Table]:
    """The rows of one partition, for one policy after the other.

    Args:
        table: its segments, by base offset.
    """
    partition = _Partition.of(table)
    on_disk = partition.on_disk() if options.from_files else None
    for name, config in configs.items():
        yield _planned(partition, name, config, options, on_disk)


@dataclass(frozen=True, slots=True)
class _Partition:
    table: pa.Table
    segments: Segments
    log_end_offset: int

    @classmethod
    def of(cls, table: pa.Table) -> _Partition:
        status = table["status"].to_numpy()
        last = table.slice(len(table) - 1).to_pylist()[0]
        segments = Segments(
            base_offsets=table["base_offset"].to_numpy(),
            # What is left of a truncated one once a broker has cut it.
            sizes=np.where(status == Status.TRUNCATED.value, _longs(table, "valid_bytes"), _longs(table, "log_bytes")),
            max_timestamps=_longs(table, "max_timestamp_ms"),
            mtimes_ms=_longs(table, "log_mtime_ns") // NS_PER_MS,
            well=np.isin(status, [status.value for status in USABLE]),
        )
        return cls(table, segments, last["base_offset"] if last["next_offset"] is None else last["next_offset"])

    def of_first_row(self, column: str) -> Any:
        return self.table[column][0].as_py()

    def bounds(self, policy: TopicPolicy, high_watermark: int | None) -> Bounds:
        bounds = Bounds.at_start(
            int(self.segments.base_offsets[0]),
            self.log_end_offset,
            log_start_offset=self.of_first_row("log_start_offset"),
            high_watermark=self.of_first_row("high_watermark") if high_watermark is None else high_watermark,
        )
        asked = policy.log_start_asked_for(self.of_first_row("partition"))
        return bounds if asked is None else bounds.deleted_up_to(asked)

    def on_disk(self) -> list[OnDisk | None]:
        """What the time index of each segment says; None where a broker would not go by it."""
        places = zip(
            *(self.table[name].to_pylist() for name in ("log_path", "index_folder", "base_offset")),
            self.segments.max_timestamps.tolist(),
            strict=True,
        )
        return [
            _or_none(max_timestamp_on_disk, [os.path.dirname(log), folder], base_offset, known)
            for log, folder, base_offset, known in places
        ]

    def open(self, number: int) -> LogSegment:
        row = self.table.slice(number, 1).to_pylist()[0]
        return LogSegment.open(location(row["log_path"]).parent, row["base_offset"], location(row["index_folder"]))


def _planned(
    partition: _Partition,
    name: str,
    config: TopicConfig,
    options: PlanOptions,
    on_disk: Sequence[OnDisk | None] | None,
) -> pa.Table:
    policy, topic = config.policy, partition.of_first_row("topic")
    segments, bounds = partition.segments, partition.bounds(policy, options.high_watermark)
    looks_compacted = topic in options.compacted_topics
    kept = kept_for_its_topic(
        topic,
        config,
        include_internal=options.include_internal,
        what_if=options.what_if,
        looks_compacted=looks_compacted,
    )

    def decided(segments: Segments) -> Decisions:
        return decide(segments, bounds, policy, options.now_ms) if kept is None else keep_all(segments, kept)

    decisions = decided(segments)
    count = len(segments)
    columns: dict[str, Any] = {
        **{column: partition.table[column] for column in _AS_IN_CATALOG},
        "policy": pa.repeat(name, count),
        "decision": _DECISIONS[decisions.reasons],
        "reason": _WORDS[decisions.reasons],
        "warnings": pa.array(_warnings(decisions, on_disk, looks_compacted), pa.list_(pa.string())),
        "bytes": partition.table["log_bytes"],
        "largest_timestamp_ms": decisions.largest_timestamps,
        "of_mtime": decisions.of_mtime,
        "retention_ms": pa.repeat(policy.retention_ms, count),
        "retention_bytes": pa.repeat(policy.retention_bytes, count),
        "cleanup_policy": pa.repeat(policy.cleanup_text, count),
        "remote_storage": pa.repeat(policy.remote_storage, count),
        "policy_origins": pa.repeat(pa.scalar(list(config.origins.items()), _ORIGINS), count),
        "counted_bytes": segments.sizes,
        "future_ms": decisions.future_ms,
        "backwards_ms": decisions.backwards_ms,
        "rolls_first": (np.arange(count) == count - 1) & decisions.whole_partition,
        "next_offset": np.append(segments.base_offsets[1:], partition.log_end_offset),
        "cut_offset": _at(count, None if kept else _cut_offset(partition, bounds, policy, decisions, options.now_ms)),
        "first_timestamp_ms": _at(count, _first_timestamp(partition, decisions)),
    }
    if on_disk is not None:
        timestamps = np.array(
            [
                known if read is None else read.max_timestamp
                for known, read in zip(segments.max_timestamps, on_disk, strict=True)
            ],
            np.int64,
        )
        by_files = decided(replace(segments, max_timestamps=timestamps))
        columns["decision_on_disk"] = _DECISIONS[by_files.reasons]
        columns["reason_on_disk"] = _WORDS[by_files.reasons]
        columns["timestamp_on_disk_ms"] = timestamps
    nothing = pa.nulls(count)
    return pa.table(
        [_as_column(columns.get(field.name, nothing), field.type) for field in PLANNED_ARROW_SCHEMA],
        schema=PLANNED_ARROW_SCHEMA,
    )


def _cut_offset(
    partition: _Partition, bounds: Bounds, policy: TopicPolicy, decisions: Decisions, now_ms: int
) -> tuple[int, int | None] | None:
    """The segment that holds the first record which is not too old, and that record's offset.

    As `UnifiedLog.searchOffsetInLocalLog` finds it, in the first segment that has so large a timestamp; where all are
    older it is the log end offset.
    """
    if policy.retention_ms < 0 or Cleanup.DELETE not in policy.cleanup:
        return None
    young = decisions.largest_timestamps >= now_ms - policy.retention_ms
    if not young.any():
        return len(young) - 1, partition.log_end_offset
    number = int(young.argmax())

    def search() -> int | None:
        limit_ms = now_ms - policy.retention_ms
        found = partition.open(number).find_offset_by_timestamp(limit_ms, bounds.log_start_offset)
        return None if found is None else found.offset

    return number, _or_none(search)


def _first_timestamp(partition: _Partition, decisions: Decisions) -> tuple[int, int | None] | None:
    """The first segment that stays, and the timestamp of its first record."""
    if decisions.whole_partition:
        return None

    def first() -> int | None:
        log = partition.open(decisions.deleted).log
        return next(
            (record.timestamp for batch in records.batches(log) for record in records.records(log, batch)), None
        )

    return decisions.deleted, _or_none(first)


def _warnings(decisions: Decisions, on_disk: Sequence[OnDisk | None] | None, looks_compacted: bool) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in decisions.reasons]
    if looks_compacted:
        for words in found[: decisions.deleted]:
            words.append(Surprise.LOOKS_COMPACTED.value)
    if decisions.whole_partition:
        for words in found:
            words.append(Surprise.WHOLE_PARTITION.value)
    for column, surprise in (
        (decisions.future_ms, Surprise.FUTURE_TIMESTAMP),
        (decisions.backwards_ms, Surprise.TIMESTAMPS_BACKWARDS),
    ):
        for number in column.nonzero()[0].tolist():
            found[number].append(surprise.value)
    for words, read in zip(found, on_disk or (), strict=False):
        if read is not None and read.surprise is not None:
            words.append(read.surprise.value)
    return found


def _at(count: int, value: tuple[int, int | None] | None) -> Any:
    """A column that is null but in one place."""
    column: list[int | None] = [None] * count
    if value is not None:
        column[value[0]] = value[1]
    return pa.array(column, pa.int64())


def _as_column(values: Any, kind: pa.DataType) -> Any:
    if isinstance(values, np.ndarray):
        return pa.array(values, kind)
    return values.cast(kind)


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
