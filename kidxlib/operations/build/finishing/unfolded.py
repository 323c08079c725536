"""Present segments of partitions to finish that a kept state spares, as if they were finished again."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.operations.build.counts import finished_by_topic
from kidxlib.storage.publisher import Published

#: The columns of a segment that are counted.
OF_UNFOLDED: Final = ("topic", "aborted_transactions", "transaction_index_bytes", "transaction_index_kept")


def unfolded(heads: pa.Table) -> pa.Table:
    """Rows of `FINISHED_BY_TOPIC`.

    Args:
        heads: segments of the catalog with `OF_UNFOLDED` and `present`.
    """
    heads = heads.filter(heads["present"])
    kept: Values = pc.coalesce(heads["transaction_index_kept"], pa.scalar(False))
    has_index = heads["transaction_index_bytes"].is_valid()
    published = pc.if_else(has_index, Published.UNCHANGED.value, Published.NONE.value)
    published = pc.if_else(kept, Published.KEPT.value, published)
    return finished_by_topic(heads.select(["topic", "aborted_transactions"]).append_column("published", published))
