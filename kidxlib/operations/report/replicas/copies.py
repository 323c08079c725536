"""The partitions that several sources of a catalog have, and the bounds of each copy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.conditions import Among
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.run_lengths import runs
from kidxlib.tables.protocol import TablesToRead

#: What two copies agree in if they are replicas.
_PARTITION: Final = ("topic", "partition", "topic_id")
_COLUMNS: Final = (
    *("source", *_PARTITION, "first_base_offset", "log_end_offset", "log_start_offset"),
    *("high_watermark", "cleaner_offset"),
)


@dataclass(frozen=True, slots=True)
class Copies:
    """Partitions that several sources have.

    Attributes:
        rows: a row for each partition of each source, in the order of topics, partitions, topic ids and
            sources. Its number is that of the copy.
        groups: numbers of the first copy of each partition, and of the one after its last.
    """

    rows: pa.Table
    groups: Sequence[tuple[int, int]]

    @classmethod
    def read(cls, tables: TablesToRead, sources: Collection[str] | None) -> Copies:
        """
        Args:
            sources: these alone; None for all.

        Raises:
            CatalogError: the catalog cannot be read.
        """
        where = [] if sources is None else [Among("source", sorted(sources))]
        rows = tables.read(PARTITIONS, (*_COLUMNS, "present"), where)
        rows = rows.filter(rows["present"]).select(list(_COLUMNS))
        rows = rows.sort_by([(name, "ascending") for name in (*_PARTITION, "source")])
        bounds = [each for each in _runs(rows) if each[1] - each[0] > 1]
        if not bounds:
            return cls(rows.slice(0, 0), [])
        kept = pa.concat_tables([rows.slice(start, end - start) for start, end in bounds]).combine_chunks()
        groups, at = [], 0
        for start, end in bounds:
            groups.append((at, at + end - start))
            at += end - start
        return cls(kept, groups)


def _runs(rows: pa.Table) -> list[tuple[int, int]]:
    columns: list[Any] = [rows[name].combine_chunks() for name in _PARTITION]
    return list(runs(columns))
