"""The rows of one source in all tables of a catalog, and how they go."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES

#: A build's row names all of its sources; the others keep theirs.
_SOURCES: Final = "sources"

#: The segments first: a build that finds them in the catalog takes for granted what the other tables have of them. The
#: builds last. Where this was stopped the source is still found in a later table, and all the rest goes then.
_ORDER: Final = (SEGMENTS, *(table for table in TABLES if table not in (SEGMENTS, BUILDS)), BUILDS)


def rows_of_source(catalog: Catalog, source: str) -> dict[str, int]:
    """How many rows each table has of a source, by the table's name; a build counts if it read it."""

    def count(table: Table) -> int:
        return catalog.read(table).where(_is_of(table, source)).count()

    with ThreadPoolExecutor(len(_ORDER)) as threads:  # most of it is waiting
        return dict(zip((table.name for table in _ORDER), threads.map(count, _ORDER), strict=True))


def sources_of(catalog: Catalog) -> set[str]:
    """The names of all sources that any table has."""
    found: set[str] = set()
    for table in _ORDER:
        names = F.explode(F.map_keys(_SOURCES)) if table is BUILDS else F.col("source")
        found.update(row["source"] for row in catalog.read(table).select(names.alias("source")).distinct().collect())
    return found


def forget(catalog: Catalog, source: str, rows: Mapping[str, int]) -> None:
    """Remove the rows of a source. Run again after a stop it goes on.

    Args:
        rows: how many each table has, by name; others are not committed to.

    Raises:
        CatalogError: other jobs commit all the time.
    """
    for table in _ORDER:
        if rows[table.name]:
            _forget_in(catalog, table, source)


def _forget_in(catalog: Catalog, table: Table, source: str) -> None:
    is_of_it = _is_of(table, source)

    def delete(target: DeltaTable) -> None:
        if table is not BUILDS:
            target.delete(is_of_it)
            return
        target.delete(is_of_it & (F.size(_SOURCES) == 1))
        others = F.map_filter(_SOURCES, lambda name, _: name != F.lit(source))
        target.update(is_of_it, {_SOURCES: others})

    catalog.commit(table, delete)


def _is_of(table: Table, source: str) -> Column:
    if table is BUILDS:
        return F.map_contains_key(_SOURCES, F.lit(source))
    return F.col("source") == F.lit(source)
