"""The partitions that several sources of a catalog have, and the bounds of each copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.run_lengths import runs
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.tables.grouped import ROWS
from kidxlib.tables.protocol import TablesToRead
from kidxlib.tables.scope import scope_of

#: Segments whose facts are in memory at the same time, 2 KB each; one topic may have more.
SEGMENTS_AT_ONCE: Final = 200_000
#: As many can be asked for by their names.
_TOPICS_AT_ONCE: Final = 1_000
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

    def parts(self, tables: TablesToRead) -> Iterator[Copies]:
        """Divide them into parts, whose segments are read one part after the other. All copies of a topic are in one.

        Raises:
            CatalogError: the catalog cannot be read.
        """
        where = [*scope_of({"copies": self.rows}, ("source", "topic")), PRESENT]
        counts = tables.counts(SEGMENTS, ("topic",), where)
        segments: dict[str, int] = {row["topic"]: row[ROWS.name] for row in counts.to_pylist()}
        topics: list[Any] = self.rows["topic"].to_pylist()
        first, held, names = 0, 0, 0
        for number, (start, _) in enumerate(self.groups):
            if number and topics[start] == topics[self.groups[number - 1][0]]:
                continue
            held, names = held + segments.get(topics[start], 0), names + 1
            if number > first and (held > SEGMENTS_AT_ONCE or names > _TOPICS_AT_ONCE):
                yield self._part(first, number)
                first, held, names = number, segments.get(topics[start], 0), 1
        yield self._part(first, len(self.groups))

    def _part(self, first: int, end: int) -> Copies:
        """Some of the partitions."""
        start, after = self.groups[first][0], self.groups[end - 1][1]
        groups = [(one - start, other - start) for one, other in self.groups[first:end]]
        return Copies(self.rows.slice(start, after - start), groups)


def _runs(rows: pa.Table) -> list[tuple[int, int]]:
    columns: list[Any] = [rows[name].combine_chunks() for name in _PARTITION]
    return list(runs(columns))
