"""Plans partitions in a worker: lists them and compares them with the catalog's rows of them. Gives rows of what is to
be done, and sums by partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import rows_of_keys
from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.segments import SEGMENTS, FillableFacts
from kidxlib.engine.work import ItemRows
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import RELISTED, Changes, all_new, compare
from kidxlib.indexing.discover import add_segments
from kidxlib.indexing.known_segments import KEYS, KNOWN
from kidxlib.indexing.listed import TO_READ, numbers_in
from kidxlib.indexing.plan import AuxiliaryFiles, ListedPartition, Plan
from kidxlib.storage.publisher import sweep
from kidxlib.tables.protocol import TablesToRead, scope_of

PARTITION: Final = pa.schema(
    [
        TO_READ.field("listed_partition"),
        pa.field("topic_id", pa.string()),
        pa.field("why_unlistable", pa.string()),  # null where it was listed
        pa.field("segments", pa.int64()),
        pa.field("log_bytes", pa.int64()),
        pa.field("is_to_finish", pa.bool_()),
        # As in `PartitionChange`; null where it is not to be finished.
        pa.field("first_present", pa.int64()),
        pa.field("changed_from", pa.int64()),
    ]
)
#: Of some partitions together: unchanged segments, and of how many of these each fact is not known.
SUMS: Final = pa.schema(
    [pa.field(name, pa.int64()) for name in ("unchanged", "unchanged_bytes", *FillableFacts.names())]
)
#: Partitions without a segment left, and how many are missing.
EMPTIED: Final = SEGMENTS.schema(PARTITION_KEY).append(pa.field("segments", pa.int64()))
#: Entries that are no segments: those that nobody expects by their paths, and how many of each kind.
UNEXPECTED: Final = pa.schema([pa.field("path", pa.string()), pa.field("reason", pa.string())])
SKIPPED: Final = pa.schema([pa.field("reason", pa.string())]).append(pa.field("entries", pa.int64()))
WARNING: Final = pa.schema([pa.field("text", pa.string())])

_KINDS: Final = {
    "to_read": TO_READ,
    "relisted": RELISTED,
    "gone": KEYS,
    "missing_at_end": KEYS,
    "emptied": EMPTIED,
    "partition": PARTITION,
    "sums": SUMS,
    "skipped": SKIPPED,
    "unexpected": UNEXPECTED,
    "warning": WARNING,
}
#: Each row is of one kind, whose column is filled.
PLANNED_PARTITIONS: Final = pa.schema(
    [
        pa.field(kind, pa.struct([pa.field(field.name, field.type) for field in schema]))
        for kind, schema in _KINDS.items()
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsToPlan:
    """A share of the partitions.

    Attributes:
        first: the position of the first one in the whole plan; the others follow it there.
        unlisted: partitions of the catalog that no source lists any more.
        log_dirs: as in `Plan`.
        tables: None where there is nothing to compare with.
        version: of `segments`.
        swept_before_ns: files that killed runs staged before then are removed; nanoseconds since the epoch.
        auxiliary_files, publish_truncated, explicit_interval, rebuild: as for `compare`.
    """

    first: int
    partitions: Sequence[ListedPartition]
    unlisted: Sequence[PartitionKey]
    log_dirs: frozenset[str]
    tables: TablesToRead | None
    version: int | None
    swept_before_ns: int
    auxiliary_files: AuxiliaryFiles
    publish_truncated: bool
    explicit_interval: bool
    rebuild: bool


def plan_partitions(shares: Iterable[PartitionsToPlan]) -> Iterator[ItemRows]:
    """Rows of `PLANNED_PARTITIONS`."""
    for share in shares:
        for partition in share.partitions:
            sweep(partition.index_directory, share.swept_before_ns)
        plan = Plan(is_listed=False, partitions=list(share.partitions), log_dirs=set(share.log_dirs))
        add_segments(plan)
        changes = all_new(plan) if share.tables is None else _compared_with_catalog(share, share.tables, plan)
        yield ItemRows(segments=plan.segments.num_rows, batches=_planned_rows(share, plan, changes))


def _compared_with_catalog(share: PartitionsToPlan, tables: TablesToRead, plan: Plan) -> Changes:
    keys = rows_of_keys([*(partition.key for partition in share.partitions), *share.unlisted])
    known = tables.read(SEGMENTS, KNOWN.names, scope_of({"asked": keys}, PARTITION_KEY), share.version)
    return compare(
        plan,
        known.filter(pa.array(positions_in(known, keys, PARTITION_KEY) >= 0)),
        share.auxiliary_files,
        publish_truncated=share.publish_truncated,
        explicit_interval=share.explicit_interval,
        rebuild=share.rebuild,
    )


def _rows_of(kind: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of a kind's own schema as rows of `PLANNED_PARTITIONS`."""
    fields = list(PLANNED_PARTITIONS.field(kind).type)
    for batch in rows.combine_chunks().to_batches():
        struct = pa.StructArray.from_arrays(batch.columns, fields=fields)
        filled = [struct if field.name == kind else pa.nulls(len(batch), field.type) for field in PLANNED_PARTITIONS]
        yield pa.RecordBatch.from_arrays(filled, schema=PLANNED_PARTITIONS)


def _planned_rows(share: PartitionsToPlan, plan: Plan, changes: Changes) -> Iterator[pa.RecordBatch]:
    numbers = pc.add(changes.to_read["listed_partition"], pa.scalar(share.first, pa.int32()))
    yield from _rows_of("to_read", changes.to_read.set_column(0, TO_READ.field(0), numbers))
    yield from _rows_of("relisted", changes.relisted)
    yield from _rows_of("gone", changes.gone)
    missing = [(*key, offset) for key, offsets in changes.missing_at_end.items() for offset in offsets]
    yield from _rows_of("missing_at_end", _table(missing, KEYS))
    yield from _rows_of("emptied", _table([(*key, count) for key, count in changes.emptied.items()], EMPTIED))
    yield from _rows_of("partition", _planned_partitions(share, plan, changes))
    sums = {"unchanged": changes.unchanged, "unchanged_bytes": changes.unchanged_bytes, **changes.unknown_facts}
    yield from _rows_of("sums", _table([tuple(map(sums.get, SUMS.names))], SUMS))
    skipped = [(reason.value, count) for reason, count in plan.skipped.counts.items()]
    yield from _rows_of("skipped", _table(skipped, SKIPPED))
    unexpected = [(path, reason.value) for path, reason in plan.skipped.unexpected]
    yield from _rows_of("unexpected", _table(unexpected, UNEXPECTED))
    yield from _rows_of("warning", _table([(text,) for text in plan.warnings], WARNING))


def _planned_partitions(share: PartitionsToPlan, plan: Plan, changes: Changes) -> pa.Table:
    bounds, (log_bytes, _) = plan.bounds(), numbers_in(plan.segments["log_bytes"])
    bytes_before = np.concatenate([[0], np.cumsum(log_bytes)])
    rows = []
    for number, partition in enumerate(plan.partitions):
        start, end = int(bounds[number]), int(bounds[number + 1])
        change = changes.to_finish.get(partition.key)
        to_finish = (True, change.first_present, change.changed_from) if change else (False, None, None)
        partition_bytes = int(bytes_before[end] - bytes_before[start])
        unlistable = plan.unlistable.get(partition.key)
        why_unlistable = None if unlistable is None else unlistable.reason
        sizes = end - start, partition_bytes
        rows.append((share.first + number, partition.topic_id, why_unlistable, *sizes, *to_finish))
    return _table(rows, PARTITION)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table(
        [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )
