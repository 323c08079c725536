"""What partitions are audited from: the rows of their segments, shared with workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.plan import PartitionAudit
from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results.audit import TO_AUDIT
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.engine.staged import Staged
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.audit.partition_work import PartitionsToAudit
from kidxlib.operations.events import event_rows, segment_rows
from kidxlib.tables.scope import scope_of

#: Rows of segments and events that are held at a time, where a partition has no more of them.
_ROWS_MAX: Final = 2_000_000
_ORDER: Final = [(name, "ascending") for name in (*SEGMENTS.key, "position")]


def partitions_to_audit(
    staged: Staged, engine: Engine, audits: Mapping[PartitionKey, PartitionAudit], rows_max: int = _ROWS_MAX
) -> Iterator[PartitionsToAudit]:
    """The partitions in shares, each with the rows of its segments.

    Args:
        staged: rows of `AUDITED`.
        engine: shares the rows.
        audits: what there is to audit of each partition, with or without segments.
        rows_max: of segments and events, to be held at a time.
    """
    counts = _counts(staged)
    shares = _shares(sorted(audits), counts, engine.cores, rows_max)
    row_counts = [sum(counts.get(key, 0) for key in share) for share in shares]
    # Shares that are read together: their rows are sought once.
    together = (np.cumsum(row_counts) // rows_max).tolist()
    for _, numbers in groupby(range(len(shares)), key=together.__getitem__):
        at_once = list(numbers)
        rows = _rows(staged, [key for number in at_once for key in shares[number]], is_all=len(set(together)) == 1)
        order: Values = pc.sort_indices(rows, sort_keys=_ORDER)
        begin = 0
        for number in at_once:
            # A copy: a slice would go to its worker with all that it is a slice of.
            of_share = rows.take(order.slice(begin, row_counts[number]))
            begin += row_counts[number]
            of_partitions = {key: audits[key] for key in shares[number]}
            yield PartitionsToAudit(engine.share(of_share), of_share.nbytes, of_partitions)


def _counts(staged: Staged) -> dict[PartitionKey, int]:
    """How many rows of segments and events each partition has."""
    key = list(PARTITIONS.key)
    counted = staged.rows("segment", [*key, "events"]).group_by(key).aggregate([([], "count_all"), ("events", "sum")])
    return {
        (row["source"], row["topic"], row["partition"]): row["count_all"] + row["events_sum"]
        for row in counted.to_pylist()
    }


def _shares(
    keys: Sequence[PartitionKey], counts: Mapping[PartitionKey, int], cores: int, rows_max: int
) -> list[list[PartitionKey]]:
    """The partitions in some shares for each core, with about as many rows each."""
    weights = np.cumsum([counts.get(key, 0) + 1 for key in keys])
    wanted = max(cores * BINS_PER_CORE, int(weights[-1]) // rows_max + 1) if keys else 0
    numbers = ((weights - 1) * wanted // weights[-1]).tolist() if keys else []
    return [[key for _, key in share] for _, share in groupby(zip(numbers, keys, strict=True), key=itemgetter(0))]


def _rows(staged: Staged, keys: Sequence[PartitionKey], *, is_all: bool) -> pa.Table:
    """Rows of `TO_AUDIT` of some partitions, in any order.

    Args:
        is_all: there are no others.
    """
    wanted = pa.table([list(column) for column in zip(*keys, strict=True)], schema=PARTITIONS.schema(PARTITIONS.key))
    scope = () if is_all else scope_of({"wanted": wanted}, PARTITIONS.key)
    rows = pa.concat_tables(
        [
            segment_rows(staged.rows("segment", where=scope), TO_AUDIT),
            event_rows(staged.rows("event", where=scope), TO_AUDIT),
        ]
    )
    return rows if is_all else rows.filter(positions_in(rows, wanted, PARTITIONS.key) >= 0)
