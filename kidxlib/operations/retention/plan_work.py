"""The work of retention's workers: they plan partitions, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kidxlib.catalog.results import PLANNED
from kidxlib.engine.work import ItemRows
from kidxlib.operations.retention.plan_options import PlanOptions
from kidxlib.operations.retention.planned import partitions_of, planned_rows
from kidxlib.operations.retention.recorded import PartitionsToPlan


def plan_partitions(shares: Iterable[PartitionsToPlan], *, options: PlanOptions) -> Iterator[ItemRows]:
    """Rows of `PLANNED`: a row for each segment and policy."""
    for share in shares:
        rows = pa.Table.from_batches(share.rows.batches()).combine_chunks()
        partitions = partitions_of(rows)
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
