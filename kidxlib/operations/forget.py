"""Removes all rows of a source from a catalog's tables, or counts the rows that would go.

Segments go first, as in `UPGRADE_ORDER`: a build that finds a segment relies on its rows in the other tables. Builds go
last. If a run is stopped, the source is still found in a later table, so the next run removes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import BUILDS, UPGRADE_ORDER
from kidxlib.tables.protocol import Tables

#: A row of `builds` names all sources of the build, so it stays for the other sources.
_SOURCES: Final = "sources"

#: How many rows one commit removes.
_ROWS_AT_ONCE: Final = 200_000


def rows_of_source(tables: Tables, source: str) -> dict[str, int]:
    """How many rows each table has of a source, by the table's name. A row of `builds` counts if the build read it."""
    return {table.name: _keys(tables, table, source).num_rows for table in UPGRADE_ORDER}


def sources_of(tables: Tables) -> set[str]:
    """The names of all sources that any table has."""
    found: set[str] = set()
    for table in UPGRADE_ORDER:
        if table is BUILDS:
            for row in tables.read(BUILDS, [_SOURCES]).to_pylist():
                found.update(dict(row[_SOURCES]))
        else:
            found.update(map(str, pc.unique(tables.read(table, ["source"])["source"]).to_pylist()))
    return found


def forget(tables: Tables, source: str, rows: Mapping[str, int]) -> None:
    """Remove the rows of a source. After a stop, it can be run again and goes on.

    Args:
        rows: how many rows of the source each table has, by name; tables without a row get no commit.
    """
    for table in UPGRADE_ORDER:
        if not rows[table.name]:
            continue
        keys = _keys(tables, table, source)
        if table is BUILDS:
            tables.change_rows(BUILDS, {"key": keys}, partial(updates.forgotten, source=source), by=BUILDS.key)
            continue
        keys = keys.sort_by([(name, "ascending") for name in table.order])
        for start in range(0, keys.num_rows, _ROWS_AT_ONCE):
            found = {"key": keys.slice(start, _ROWS_AT_ONCE)}
            tables.change_rows(table, found, partial(updates.removed, table=table), by=table.key)


def _keys(tables: Tables, table: Table, source: str) -> pa.Table:
    """The keys of the rows of a source."""
    if table is not BUILDS:
        return tables.read(table, table.key, [Among("source", (source,))])
    builds = tables.read(BUILDS, [*BUILDS.key, _SOURCES])
    is_of_it = [source in dict(row[_SOURCES]) for row in builds.to_pylist()]
    return builds.filter(pa.array(is_of_it, pa.bool_())).select(BUILDS.key)
