"""Tries all limits of the report on partitions, in a worker, and gives rows with the result of each limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.rows import Int32, PartitionOfSource, column, kinds_of, row
from kidxlib.engine.work import ItemRows
from kidxlib.operations.retention.plan_options import PlanOptions
from kidxlib.operations.retention.planned import Partition, PartitionRule, partitions_of
from kidxlib.operations.retention.recorded import PartitionsToPlan
from kidxlib.retention.decide import Candidates, Ladder, Longs, deletions, reasons_of_first
from kidxlib.retention.policy import REASONS, UNLIMITED

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
CONFIGURED_POLICY: Final = "configured"
LADDER_POLICY: Final = "ladder"


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


def try_limits(shares: Iterable[PartitionsToPlan], *, options: PlanOptions) -> Iterator[ItemRows]:
    """Rows of `WHAT_IF`, one for each partition, from shares with both policies of each topic."""
    for share in shares:
        rows = pa.Table.from_batches(share.rows.batches()).combine_chunks()
        partitions = [_what_if_row(partition, share, options) for partition in partitions_of(rows)]
        struct = pa.array(partitions, WHAT_IF.field("partition").type)
        yield ItemRows(segments=rows.num_rows, batches=[pa.RecordBatch.from_arrays([struct], schema=WHAT_IF)])


def _what_if_row(partition: Partition, share: PartitionsToPlan, options: PlanOptions) -> dict[str, object]:
    topic = partition.of_first_row("topic")
    configs = share.configs[topic]
    rule = PartitionRule.of_partition(partition, configs[LADDER_POLICY], options, share.compacted_topics)
    own = PartitionRule.of_partition(
        partition, configs[CONFIGURED_POLICY], replace(options, what_if=False), share.compacted_topics
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


def _deleted_by_ladder(partition: Partition, rule: PartitionRule, now_ms: int) -> tuple[Longs, Candidates | None]:
    """How many segments go at a time with each pair of limits; and the candidates, where limits decide."""
    if rule.kept is not None:
        return np.zeros((len(LADDER.times_ms), len(LADDER.sizes)), np.int64), None
    candidates = Candidates.of_partition(partition.segments, rule.bounds, now_ms)
    return deletions(candidates, rule.policy, LADDER), candidates
