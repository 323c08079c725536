"""What the catalog knows of partitions that somebody asks about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from kidxlib.catalog.conditions import PRESENT, Among, Condition
from kidxlib.catalog.matching import Flags, positions_in
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.cataloged_partitions import KnownPartitions
from kidxlib.tables.protocol import Tables
from kidxlib.tables.scope import scope_of

#: What is said of a partition of a source, or of any, that the catalog does not have.
Unknown: TypeAlias = Mapping[tuple[str, int, str | None], str]

HELD: Final = PARTITIONS.schema(PartitionToSearch.names())
SEARCHED: Final = SEGMENTS.schema((*PARTITIONS.key, *SegmentToSearch.names()))

_NAME: Final = ("topic", "partition")
_OF_SOURCE: Final = (*_NAME, "source")
#: Partitions that the catalog does not have, for which the most similar names are looked up.
_EXPLAINED: Final = 100


def held_partitions(tables: Tables, wanted: pa.Table, source: str | None) -> pa.Table:
    """Rows of `HELD` of some partitions, of each source or of one, in the order of their keys.

    Args:
        wanted: their topics and numbers.
    """
    rows = _of(tables, PARTITIONS, HELD, wanted, _source(source))
    return rows.sort_by([(name, "ascending") for name in _OF_SOURCE])


def of_partitions(held: pa.Table, wanted: pa.Table) -> pa.Table:
    """The rows of some partitions, by their topics and numbers."""
    return held.filter(positions_in(held, wanted, _NAME) >= 0)


def segments_of(tables: Tables, held: pa.Table) -> pa.Table:
    """Rows of `SEARCHED` of some partitions, each partition's in one piece; about 300 bytes a segment.

    Args:
        held: rows of `HELD`.
    """
    if not held.num_rows:
        return SEARCHED.empty_table()
    rows = _of(tables, SEGMENTS, SEARCHED, held, [PRESENT], PARTITIONS.key)
    return rows.sort_by([(name, "ascending") for name in (*PARTITIONS.key, "base_offset")])


def unknown_partitions(tables: Tables, asked: pa.Table, held: pa.Table, source: str | None) -> Unknown:
    """What to say of partitions that are asked and that the catalog, or one source of it, does not have: of the first
    hundred.

    Args:
        asked: rows of `ASKED`.
        held: rows of `HELD`, all that were asked.
        source: the only one that is asked at all; None where each is.
    """
    of_any: Flags = asked["source"].is_null().to_numpy()
    of_one = asked.filter(~of_any)
    is_there = positions_in(asked, held, _NAME) >= 0
    is_there[~of_any] = positions_in(of_one, held, _OF_SOURCE) >= 0
    missing = asked.filter(~is_there)
    if not missing.num_rows:
        return {}
    known = KnownPartitions.of(tables.read(PARTITIONS, PARTITIONS.key))
    return {
        (row["topic"], row["partition"], row["source"]): known.why_unknown(
            TopicPartition(row["topic"], row["partition"]), row["source"] or source
        )
        for row in missing.slice(0, _EXPLAINED).to_pylist()
    }


def _of(
    tables: Tables,
    table: Table,
    schema: pa.Schema,
    wanted: pa.Table,
    where: list[Condition],
    by: tuple[str, ...] = _NAME,
) -> pa.Table:
    """The rows of a table that agree with some others in the columns `by`."""
    rows = tables.read(table, schema.names, [*scope_of({"wanted": wanted}, by), *where])
    return rows.filter(positions_in(rows, wanted, by) >= 0)


def _source(source: str | None) -> list[Condition]:
    return [] if source is None else [Among("source", (source,))]
