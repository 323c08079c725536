"""Partitions of which a worker tries all limits, each by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kidxlib.engine.work import ItemRows
from kidxlib.operations.report.what_if.partition_row import WHAT_IF
from kidxlib.operations.report.what_if.steps import CONFIGURED_POLICY, LADDER, LADDER_POLICY, LATER_MS
from kidxlib.operations.retention.partition import Partition, PartitionRule, partitions_of
from kidxlib.operations.retention.plan_options import PlanOptions
from kidxlib.operations.retention.to_plan import PartitionsToPlan
from kidxlib.retention.decide import Candidates
from kidxlib.retention.ladder import deletions, reasons_of_first
from kidxlib.retention.partition import Longs
from kidxlib.retention.reasons import REASONS


def try_limits(shares: Iterable[PartitionsToPlan], use_mmap: bool, *, options: PlanOptions) -> Iterator[ItemRows]:
    """Rows of `WHAT_IF`: a row for each partition.

    Args:
        shares: with the two policies of `steps`.
        use_mmap: no file is read.
    """
    for share in shares:
        rows = pa.Table.from_batches(share.rows.batches()).combine_chunks()
        found = [_row(partition, share, options) for partition in partitions_of(rows)]
        struct = pa.array(found, WHAT_IF.field("partition").type)
        yield ItemRows(segments=rows.num_rows, batches=[pa.RecordBatch.from_arrays([struct], schema=WHAT_IF)])


def _row(partition: Partition, share: PartitionsToPlan, options: PlanOptions) -> dict[str, object]:
    topic = partition.of_first_row("topic")
    configs = share.configs[topic]
    rule = PartitionRule.of(partition, configs[LADDER_POLICY], options, share.compacted_topics)
    own = PartitionRule.of(
        partition, configs[CONFIGURED_POLICY], replace(options, what_if=False), share.compacted_topics
    )
    segments = partition.segments
    ends = np.append(0, segments.sizes.cumsum())
    starts = np.append(segments.base_offsets, partition.log_end_offset)
    configured = own.decide(segments).deleted
    (now, candidates), (later, _) = (_deleted(partition, rule, options.now_ms + later_ms) for later_ms in LATER_MS)
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
        "deleted_later": later.ravel(),
        "freed_later": ends[later].ravel(),
    }


def _deleted(partition: Partition, rule: PartitionRule, now_ms: int) -> tuple[Longs, Candidates | None]:
    """How many segments go at a time with each pair of limits; and what decided that, where limits did."""
    if rule.kept is not None:
        return np.zeros((len(LADDER.times_ms), len(LADDER.sizes)), np.int64), None
    candidates = Candidates.of(partition.segments, rule.bounds, now_ms)
    return deletions(candidates, rule.policy, LADDER), candidates
