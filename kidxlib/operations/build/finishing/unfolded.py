"""Present segments of partitions to finish that a kept state spares, counted as if they were finished again."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.summary import Counts
from kidxlib.catalog.matching import Values
from kidxlib.storage.publisher import Published

#: The columns of a segment that are counted.
OF_UNFOLDED: Final = ("topic", "aborted_transactions", "transaction_index_bytes", "transaction_index_kept")

#: How many segments of a topic there are of each kind, and the transactions aborted in them.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("topic", pa.string()),
    pa.field("published", pa.string()),
    pa.field("segments", pa.int64()),
    pa.field("aborted", pa.int64()),
]
UNFOLDED: Final = pa.schema(_FIELDS)


def unfolded(heads: pa.Table) -> pa.Table:
    """Rows of `UNFOLDED`.

    Args:
        heads: segments of the catalog with `OF_UNFOLDED` and `present`.
    """
    heads = heads.filter(heads["present"])
    kept: Values = pc.coalesce(heads["transaction_index_kept"], pa.scalar(False))
    has_index = heads["transaction_index_bytes"].is_valid()
    published = pc.if_else(has_index, Published.UNCHANGED.value, Published.NONE.value)
    published = pc.if_else(kept, Published.KEPT.value, published)
    counted = heads.select(["topic", "aborted_transactions"]).append_column("published", published)
    counted = counted.group_by(["topic", "published"]).aggregate([([], "count_all"), ("aborted_transactions", "sum")])
    counted = counted.select(["topic", "published", "count_all", "aborted_transactions_sum"])
    return counted.rename_columns(UNFOLDED.names).cast(UNFOLDED)


def count_unfolded(rows: pa.Table, counts: Counts) -> None:
    """Add them to the counts of a build.

    Args:
        rows: of `UNFOLDED`.
    """
    for row in rows.to_pylist():
        topic = counts.topic(row["topic"])
        topic.aborted_transactions += row["aborted"] or 0
        topic.by_transaction_index[row["published"]] += row["segments"]
