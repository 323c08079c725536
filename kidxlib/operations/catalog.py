"""A catalog that is kept without Spark: operations read its tables and write into them. A large table is read in pieces
that fit into memory.

`forget_source` removes all rows of a source. Segments go first, as in `UPGRADE_ORDER`: a build that finds a segment
relies on its rows in the other tables. Builds go last. If a run is stopped, the source is still found in a later table,
so the next run removes the rest.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import Verdict
from kidxlib.catalog import updates
from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.findings import JudgedFile
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS, PartitionRow
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, TABLES, UPGRADE_ORDER, BuildRow
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import Changes
from kidxlib.indexing.known_segments import KNOWN
from kidxlib.operations.damage.known_damage import last_findings
from kidxlib.recovery.outcome import Status
from kidxlib.run.context import STAGING
from kidxlib.storage.scratch import sweep_folders
from kidxlib.tables.memory_tables import HeldChanges
from kidxlib.tables.protocol import FirstAndLast, Tables
from kidxlib.text.times import NS_PER_MS

#: How many rows one commit marks or removes; each, of segments 1 kB, is held in memory as a whole.
_ROWS_AT_ONCE: Final = 200_000

#: A row of `builds` names all sources of the build, so it stays for the other sources.
_SOURCES: Final = "sources"


class TablesCatalog:
    """Reads and writes a catalog's tables. Each change is one commit of one table.

    Attributes:
        tables: opens and commits them.
        compared_with: the version of `segments` that a listing was compared with.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.compared_with: int | None = None

    @property
    def path(self) -> str:
        """The directory or URL of the catalog; its tables are below it."""
        return self.tables.path

    def oldest_version(self) -> int | None:
        """The oldest version of the columns that a table has; tables differ if an upgrade was stopped between them.
        None if there is neither a table `segments` nor a table `builds`.
        """
        versions = [self.tables.catalog_version(table) for table in (UPGRADE_ORDER[0], UPGRADE_ORDER[-1])]
        return min((version for version in versions if version is not None), default=None)

    def has_segments(self) -> bool:
        return self.tables.version(SEGMENTS) is not None

    def make_tables(self) -> bool:
        """Make the catalog's missing tables, and bring the others to this version. Returns whether it is new."""
        is_new = not self.has_segments()
        # A catalog exists once it has `segments`, so that table is made last; upgrades go in another order.
        made_last = (*(table for table in TABLES if table is not SEGMENTS), SEGMENTS)
        for table in made_last if is_new else UPGRADE_ORDER:
            self.tables.make(table)
        return is_new

    @contextlib.contextmanager
    def committing_together(self) -> Iterator[Callable[[], None]]:
        """Hold the changes of `segments` that are made inside of this context, and commit them together: each time the
        function that it gives is called, and at the end. They are committed after an error, too: what was done is
        recorded.
        """
        tables = self.tables
        held = HeldChanges(tables, SEGMENTS)
        self.tables = held
        try:
            yield held.commit
        finally:
            self.tables = tables
            held.commit()

    def known_segments(self, sources: Sequence[str], topics: re.Pattern[str]) -> pa.Table:
        """The rows of `KNOWN` of some sources and topics. Texts that many rows share are kept once, in dictionaries."""
        self.compared_with = self.tables.version(SEGMENTS)
        rows = self.tables.read(SEGMENTS, KNOWN.names, [Among("source", sources)], self.compared_with)
        for number, column in enumerate(KNOWN):
            if column.type == pa.string() and column.name != "log_path":
                rows = rows.set_column(number, column.name, rows[column.name].dictionary_encode())
        return rows.unify_dictionaries().filter(_is_of(rows["topic"], topics))

    def index_directories_of_others(self, sources: Sequence[str]) -> dict[str, str]:
        """The index directories of all sources but these, each with the name of its source."""
        others = Among("source", tuple(sources), negated=True)
        names = ["index_directory", "source"]
        rows = self.tables.counts(SEGMENTS, names, [others, PRESENT])
        return {row["index_directory"]: row["source"] for row in rows.to_pylist()}

    def last_rate(self) -> float | None:
        """How many bytes a second the last build read that read anything; None if none did."""
        rows = self.tables.read(BUILDS, ["started_at", "log_bytes", "scan_seconds"])
        rows = rows.filter((pc.field("log_bytes") > 0) & (pc.field("scan_seconds") > 0)).sort_by("started_at")
        if not rows.num_rows:
            return None
        last = rows.slice(rows.num_rows - 1).to_pylist()[0]
        return float(last["log_bytes"] / last["scan_seconds"])

    def sources(self) -> list[str]:
        """The names of the sources of which the catalog has segments, deleted ones included."""
        return [str(source) for source in self.tables.counts(SEGMENTS, ["source"])["source"].to_pylist()]

    def broken_files(self, sources: Sequence[str]) -> list[JudgedFile]:
        """The files that the last audit of each partition of some sources found broken. Missing files are left out."""
        is_broken = Among("verdict", (Verdict.BROKEN.value,))
        return JudgedFile.of_arrow(last_findings(self.tables, sources, [is_broken], JudgedFile.names()))

    def offsets(self, sources: Sequence[str]) -> dict[PartitionKey, tuple[int, int | None]]:
        """The first base offset and the last next offset of the segments that are present, by partition."""
        first_and_last = FirstAndLast("base_offset", "next_offset")
        rows = self.tables.first_and_last(SEGMENTS, PARTITIONS.key, first_and_last, [Among("source", sources), PRESENT])
        return {
            (row["source"], row["topic"], row["partition"]): (row["first"], row["last"]) for row in rows.to_pylist()
        }

    def known_partitions(self, sources: Sequence[str]) -> list[PartitionRow]:
        return PartitionRow.of_arrow(self.tables.read(PARTITIONS, None, [Among("source", sources)]))

    def mark(self, changes: Changes, build_id: str, commit: Callable[[], None]) -> int:
        """Record which segments are gone, have moved, or have become active or inactive. Returns how many rows changed.

        Args:
            commit: commits the changes that are held; called between parts if there are many rows.
        """
        change, marked = partial(updates.marked, build_id=build_id), 0
        for number, part in enumerate(_marks(changes)):
            if number:
                commit()
            marked += self.tables.change_rows(SEGMENTS, {"mark": part}, change, by=SEGMENTS.key)
        return marked

    def merge_partitions(self, rows: Sequence[PartitionRow]) -> None:
        found = {"row": pa.Table.from_pylist([row.values() for row in rows], PARTITIONS.schema())}
        self.tables.change_rows(PARTITIONS, found, partial(updates.written, table=PARTITIONS), by=PARTITIONS.key)

    def append_build(self, build: BuildRow) -> None:
        values = build.values().items()
        # Arrow wants a map's entries.
        row = {name: list(value.items()) if isinstance(value, Mapping) else value for name, value in values}
        self.tables.append(BUILDS, pa.Table.from_pylist([row], BUILDS.schema()))

    def sweep_staging(self, older_than_ms: int) -> None:
        """Remove files that killed runs on Spark have left. Runs without Spark leave none in the catalog.

        Args:
            older_than_ms: a directory without a heartbeat goes if its last change is older than this; ms since the
                epoch.
        """
        if "://" not in self.path:
            sweep_folders(Path(self.path) / STAGING, unmarked_before_ns=older_than_ms * NS_PER_MS)


def _marks(changes: Changes) -> Iterator[pa.Table]:
    """Rows of `updates.marked`, in parts of at most so many rows as are held at a time."""
    of_segments = SEGMENTS.schema()
    marked = [of_segments.field(name).with_nullable(True) for name in ("active", "log_path", "status")]
    schema = pa.schema([*SEGMENTS.schema(SEGMENTS.key), *marked])
    # The rows of segments that are gone have null in the other columns; Arrow makes them without a copy.
    whole = pa.concat_tables([changes.gone, changes.relisted], promote_options="default")
    for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
        part = whole.slice(start, _ROWS_AT_ONCE)
        is_gone = pa.array(np.arange(start, start + part.num_rows) < changes.gone.num_rows)
        active: Values = pc.if_else(is_gone, False, part["active"])
        status: Values = pc.if_else(is_gone, Status.GONE.value, None)
        columns = {**{name: part[name] for name in part.column_names}, "active": active, "status": status}
        yield pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def _is_of(column: Values, topics: re.Pattern[str]) -> Values:
    """Which topics match. The regular expression, one of Python, is tried once for each distinct topic."""
    names = np.array([name for name in pc.unique(column).to_pylist() if topics.fullmatch(name)], object)
    return pc.is_in(column, value_set=pa.array(names, pa.string()))


def rows_of_source(tables: Tables, source: str) -> dict[str, int]:
    """How many rows each table of the catalog has of a source, by the table's name. A row of `builds` counts if the
    build read it.
    """
    return {table.name: _keys(tables, table, source).num_rows for table in UPGRADE_ORDER}


def sources_in_tables(tables: Tables) -> set[str]:
    """The sources of which any table of the catalog has a row."""
    found: set[str] = set()
    for table in UPGRADE_ORDER:
        if table is BUILDS:
            for row in tables.read(BUILDS, [_SOURCES]).to_pylist():
                found.update(dict(row[_SOURCES]))
        else:
            found.update(map(str, pc.unique(tables.read(table, ["source"])["source"]).to_pylist()))
    return found


def forget_source(tables: Tables, source: str, rows: Mapping[str, int]) -> None:
    """Remove a source from the catalog: its rows in all tables. After a stop, it can be run again and goes on.

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
    if table is not BUILDS:
        return tables.read(table, table.key, [Among("source", (source,))])
    builds = tables.read(BUILDS, [*BUILDS.key, _SOURCES])
    is_of_it = [source in dict(row[_SOURCES]) for row in builds.to_pylist()]
    return builds.filter(pa.array(is_of_it, pa.bool_())).select(BUILDS.key)
