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
from kidxlib.retention.ladder import LadderDecisions, decide_ladder
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
    now, later = (_decided(partition, rule, options.now_ms + later_ms) for later_ms in LATER_MS)
    return {
        "source": partition.of_first_row("source"),
        "topic": topic,
        "partition": partition.of_first_row("partition"),
        "segments": len(segments),
        "bytes": int(ends[-1]),
        "kept": None if rule.kept is None else rule.kept.value,
        "deleted": _cells(now.deleted),
        "freed": _cells(ends[now.deleted]),
        "stays": now.stays.ravel().astype(np.int32),
        "stays_from": _cells(starts[now.deleted]),
        "configured_deleted": configured,
        "configured_freed": int(ends[configured]),
        "deleted_later": _cells(later.deleted),
        "freed_later": _cells(ends[later.deleted]),
    }


def _decided(partition: Partition, rule: PartitionRule, now_ms: int) -> LadderDecisions:
    if rule.kept is None:
        return decide_ladder(partition.segments, rule.bounds, rule.policy, LADDER, now_ms)
    shape = len(LADDER.times_ms), len(LADDER.sizes)
    return LadderDecisions(np.zeros(shape, np.int64), np.full(shape, REASONS.index(rule.kept), np.int8))


def _cells(values: Longs) -> Longs:
    return values.ravel()
