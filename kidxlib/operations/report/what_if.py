"""Tries the ladder of limits (`try_ladder`, whose workers call `try_limits`): sums for each topic, and the end of each
of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.matching import runs
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.rows import Int32, PartitionOfSource, column, kinds_of, row
from kidxlib.engine.work import ItemRows, Work
from kidxlib.operations.backend import Backend
from kidxlib.operations.retention.plan_work import (
    PartitionPlanRule,
    PartitionToPlan,
    PlanOptions,
    ShareToPlan,
    split_into_partitions,
)
from kidxlib.operations.retention.segments_to_plan import (
    FACTS_OF_OFFSETS,
    SegmentsToPlan,
    partitions_to_plan,
    topics_that_look_compacted,
    topics_to_plan,
)
from kidxlib.retention.decide import NONE_STAYS, Candidates, Ladder, Longs, decide_for_limits, reasons_of_first
from kidxlib.retention.policy import DECIDING_CONFIGS, REASONS, UNLIMITED, Origin, Policy, TopicConfig
from kidxlib.run.retention_configs import RetentionConfigs
from kidxlib.tables.protocol import counts_of
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn_of_first
from kidxlib.terminal.options import MetadataOptions

_FOR_EACH_CELL: Final = "for each time of the ladder with each size, times first"

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30

#: `retention.ms` from short to long, `retention.bytes` of a partition from small to large; no limit comes last.
LADDER: Final = Ladder(
    times_ms=(
        *(_HOUR_MS, 6 * _HOUR_MS, _DAY_MS, 2 * _DAY_MS, 3 * _DAY_MS, 5 * _DAY_MS, 7 * _DAY_MS, 14 * _DAY_MS),
        *(30 * _DAY_MS, 90 * _DAY_MS, 365 * _DAY_MS, UNLIMITED),
    ),
    sizes=(_MIB, 10 * _MIB, 100 * _MIB, _GIB, 10 * _GIB, 50 * _GIB, 100 * _GIB, UNLIMITED),
)
#: After the report's own time: now, and a week later if nothing is written until then.
LATER_MS: Final = (0, 7 * _DAY_MS)
#: A topic's own configuration; and the same but for the limits, which the ladder replaces.
_CONFIGURED_POLICY: Final = "configured"
_LADDER_POLICY: Final = "ladder"

#: Segments whose limits are tried sooner than workers start.
_FEW_SEGMENTS: Final = 16_000

_SUMMED_COLUMNS: Final = ("deleted", "freed", "deleted_later", "freed_later")
_LIMITS_BY_OPTION: Final = {"retention.ms": Origin.OPTION, "retention.bytes": Origin.OPTION}


@row
class WhatIfRow(PartitionOfSource):
    """One partition with all limits, now and a week later."""

    segments: int = column("segments that are present")
    bytes: int = column("bytes of their logs, as a broker counts them")
    kept: str | None = column("why all of them stay whatever the limits are; null: the limits decide")
    deleted: Sequence[Int32] = column(f"segments that go now, from the first on, {_FOR_EACH_CELL}")
    freed: Sequence[int] = column(f"bytes of these, {_FOR_EACH_CELL}")
    stays: Sequence[Int32] = column(
        f"why the first that stays does, by its number in REASONS; -1: none does; {_FOR_EACH_CELL}"
    )
    stays_from: Sequence[int] = column(f"first offset that stays, {_FOR_EACH_CELL}")
    configured_deleted: Int32 = column("segments that go now by the topic's own policy; 0 where not all of it is known")
    configured_freed: int = column("bytes of these")
    configured_deleted_later: Int32 = column("segments that go by that policy in a week")
    configured_freed_later: int = column("bytes of these")
    configured_due_ms: int = column(
        "when the first segment that stays now goes by that policy's time, ms since the epoch; -1: not by time"
    )
    deleted_later: Sequence[Int32] = column(f"segments that go in a week, {_FOR_EACH_CELL}")
    freed_later: Sequence[int] = column(f"bytes of these, {_FOR_EACH_CELL}")


WHAT_IF: Final = kinds_of(partition=WhatIfRow.columns())


def try_limits(shares: Iterable[ShareToPlan], *, options: PlanOptions) -> Iterator[ItemRows]:
    """Rows of `WHAT_IF`, one for each partition, from shares with both policies of each topic."""
    for share in shares:
        rows = pa.Table.from_batches(share.rows.batches()).combine_chunks()
        partitions = [_what_if_row(partition, share, options) for partition in split_into_partitions(rows)]
        struct = pa.array(partitions, WHAT_IF.field("partition").type)
        yield ItemRows(segments=rows.num_rows, batches=[pa.RecordBatch.from_arrays([struct], schema=WHAT_IF)])


def _what_if_row(partition: PartitionToPlan, share: ShareToPlan, options: PlanOptions) -> dict[str, object]:
    topic = partition.of_first_row("topic")
    configs = share.configs[topic]
    rule = PartitionPlanRule.of_partition(partition, configs[_LADDER_POLICY], options, share.compacted_topics)
    own = PartitionPlanRule.of_partition(
        partition, configs[_CONFIGURED_POLICY], replace(options, what_if=False), share.compacted_topics
    )
    segments = partition.segments
    ends = np.append(0, segments.sizes.cumsum())
    starts = np.append(segments.base_offsets, partition.log_end_offset)
    decided = own.decide(segments)
    configured, due = decided.deleted, decided.due_ms(own.policy.retention_ms)
    configured_later = replace(own, now_ms=options.now_ms + LATER_MS[1]).decide(segments).deleted
    (now, candidates), (later, _) = (
        _deleted_by_ladder(partition, rule, options.now_ms + later_ms) for later_ms in LATER_MS
    )
    if candidates is None:
        assert rule.kept is not None
        stays = np.full(now.shape, REASONS.index(rule.kept), np.int8)
    else:
        stays = reasons_of_first(candidates, rule.policy, LADDER, now)
    return {
        "source": partition.of_first_row("source"),
        "topic": topic,
        "partition": partition.of_first_row("partition"),
        "segments": len(segments),
        "bytes": int(ends[-1]),
        "kept": None if rule.kept is None else rule.kept.value,
        "deleted": now.ravel(),
        "freed": ends[now].ravel(),
        "stays": stays.ravel().astype(np.int32),
        "stays_from": starts[now].ravel(),
        "configured_deleted": configured,
        "configured_freed": int(ends[configured]),
        "configured_deleted_later": configured_later,
        "configured_freed_later": int(ends[configured_later]),
        "configured_due_ms": int(due[configured]) if own.kept is None and configured < len(segments) else -1,
        "deleted_later": later.ravel(),
        "freed_later": ends[later].ravel(),
    }


def _deleted_by_ladder(
    partition: PartitionToPlan, rule: PartitionPlanRule, now_ms: int
) -> tuple[Longs, Candidates | None]:
    """How many segments go at a time with each pair of limits; and the candidates, where limits decide."""
    if rule.kept is not None:
        return np.zeros((len(LADDER.times_ms), len(LADDER.sizes)), np.int64), None
    candidates = Candidates.of_partition(partition.segments, rule.bounds, now_ms)
    return decide_for_limits(candidates, rule.policy, LADDER), candidates


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The results of all limits.

    Attributes:
        rows: of `WhatIfRow`, sorted by topic, partition and source.
        configs: by topic.
        remedies: the option to give where not all of a topic's configuration is known, by topic.
    """

    rows: pa.Table
    configs: Mapping[str, TopicConfig]
    remedies: Mapping[str, str]


def try_ladder(
    backend: Backend, policy: Policy, metadata: MetadataOptions, paths: Mapping[str, str], now_ms: int
) -> WhatIf:
    """Decide on all segments that are present, with each pair of limits, now and a week later. The user's policy is
    completed from the clusters' metadata; `paths` are those of sources, by name.
    """
    tables = backend.catalog.tables
    known = topics_to_plan(tables)
    topics = sorted(set().union(*known.values()))
    segments = SegmentsToPlan(tables, None, list(known), topics)
    configured = RetentionConfigs.from_metadata(
        metadata, paths, segments.sources, lambda: segments.read_columns(["topic_id"])
    )
    warn_of_first(configured.known.warnings)
    configs = _configs_by_topic(configured, topics, policy)
    remedies = {topic: configured.remedy(topic) for topic, config in configs.items() if config.unknown}
    both = {topic: {_CONFIGURED_POLICY: own, _LADDER_POLICY: _without_limits(own)} for topic, own in configs.items()}
    rows = segments.read_columns(FACTS_OF_OFFSETS)
    if not rows.num_rows:
        return WhatIf(_sorted_rows([]), configs, remedies)
    compacted = topics_that_look_compacted(rows, what_if=True)
    partitions = counts_of(rows, PARTITIONS.key)
    units = [[share] for share in partitions_to_plan(segments, partitions, backend.engine, both, compacted)]
    options = PlanOptions(now_ms=now_ms, from_files=False, include_internal=False, what_if=True)
    work = Work("report", units, partial(try_limits, options=options), WHAT_IF, is_small=rows.num_rows <= _FEW_SEGMENTS)
    if not work.is_small:
        backend.engine.start()
    with backend.engine.stopping():
        staged = backend.engine.run(work)
        interrupts.raise_if_requested()
        return WhatIf(_sorted_rows([staged.rows("partition")]), configs, remedies)


def what_if_section(what_if: WhatIf) -> dict[str, Any]:
    """The ladder, and a row for each topic: sums for each cell, times first, and the reasons why partitions stop."""
    return {
        "times_ms": list(LADDER.times_ms),
        "sizes": list(LADDER.sizes),
        "later_ms": LATER_MS[1],
        "reasons": [reason.value for reason in REASONS],
        "topics": [
            _topic_as_json(topic, rows, what_if.configs[topic], what_if.remedies.get(topic))
            for topic, rows in _rows_by_topic(what_if.rows)
        ],
    }


def what_if_partitions(what_if: WhatIf) -> dict[str, list[dict[str, Any]]]:
    """Each partition of each topic, by cell."""
    names = ["source", "partition", "segments", "bytes", "kept", "deleted", "stays", "stays_from"]
    return {topic: rows.select(names).to_pylist() for topic, rows in _rows_by_topic(what_if.rows)}


def _configs_by_topic(configured: RetentionConfigs, topics: list[str], policy: Policy) -> dict[str, TopicConfig]:
    own = {topic: {_CONFIGURED_POLICY: policy.of_topic(topic)} for topic in topics}
    completed = configured.complete(own, deletes=False)
    return {topic: of_topic[_CONFIGURED_POLICY] for topic, of_topic in completed.items()}


def _without_limits(config: TopicConfig) -> TopicConfig:
    """A topic's configuration without limits, which count as options."""
    unlimited = replace(config.policy, retention_ms=UNLIMITED, retention_bytes=UNLIMITED)
    return TopicConfig(unlimited, {**config.origins, **_LIMITS_BY_OPTION})


def _sorted_rows(tables: list[pa.Table]) -> pa.Table:
    kind = WHAT_IF.field("partition").type
    rows = pa.concat_tables([pa.schema(list(kind)).empty_table(), *tables])
    return rows.sort_by([(name, "ascending") for name in ("topic", "partition", "source")])


def _rows_by_topic(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    topics = rows["topic"].combine_chunks()
    return [(str(topics[start].as_py()), rows.slice(start, end - start)) for start, end in runs([topics])]


def _topic_as_json(topic: str, rows: pa.Table, config: TopicConfig, remedy: str | None) -> dict[str, Any]:
    stays = _cells_by_partition(rows, "stays")
    stopped = {
        REASONS[number].value if number != NONE_STAYS else "": (stays == number).sum(axis=0).tolist()
        for number in np.unique(stays).tolist()
    }
    return {
        "topic": topic,
        "partitions": rows.num_rows,
        "segments": sum(rows["segments"].to_pylist()),
        "bytes": sum(rows["bytes"].to_pylist()),
        "kept": sorted({reason for reason in rows["kept"].to_pylist() if reason is not None}),
        "configured": {
            "cleanup_policy": config.policy.cleanup_text,
            "retention_ms": config.policy.retention_ms,
            "retention_bytes": config.policy.retention_bytes,
            "remote_storage": config.policy.remote_storage,
            "origins": {name: config.origins[name].value for name in DECIDING_CONFIGS},
            "unknown": list(config.unknown),
            "remedy": remedy,
            "deleted": sum(rows["configured_deleted"].to_pylist()),
            "freed": sum(rows["configured_freed"].to_pylist()),
            "deleted_later": sum(rows["configured_deleted_later"].to_pylist()),
            "freed_later": sum(rows["configured_freed_later"].to_pylist()),
            "due_ms": min((int(due) for due in rows["configured_due_ms"].to_numpy() if due >= 0), default=None),
        },
        **{name: _cells_by_partition(rows, name).sum(axis=0).tolist() for name in _SUMMED_COLUMNS},
        "stopped_by": stopped,
    }


def _cells_by_partition(rows: pa.Table, name: str) -> Any:
    """A column of lists, as a row for each partition."""
    column: Any = rows[name].combine_chunks()
    return column.flatten().to_numpy().astype(np.int64).reshape(rows.num_rows, -1)
