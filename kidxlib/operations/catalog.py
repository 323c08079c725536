"""A catalog that is kept without Spark: what operations ask of its tables, and what they record in them."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import Verdict
from kidxlib.build.changes import Changes
from kidxlib.build.known_segments import KNOWN
from kidxlib.catalog import updates
from kidxlib.catalog.builds import BUILDS, BuildRow
from kidxlib.catalog.conditions import PRESENT, Among, Condition
from kidxlib.catalog.findings import JudgedFile
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS, PartitionRow
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES, UPGRADE_ORDER
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.damaged_segments import known_damage
from kidxlib.operations.known_damage import KnownDamage
from kidxlib.operations.last_findings import audited_sources, last_findings
from kidxlib.recovery.outcome import Status
from kidxlib.run.catalog_place import STAGING
from kidxlib.tables.held_changes import HeldChanges
from kidxlib.tables.protocol import Tables


class TablesCatalog:
    """A catalog's tables, asked and written to: each change is one commit of one table.

    Attributes:
        tables: who keeps them.
        compared_with: the version of `segments` that a listing was compared with.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.compared_with: int | None = None

    @property
    def path(self) -> str:
        """The directory or URL below which its tables are."""
        return self.tables.path

    def oldest_version(self) -> int | None:
        """The version of its columns, which all of its tables have where an upgrade was not stopped amid them; None
        where there is neither a table `segments` nor one `builds`.
        """
        versions = [self.tables.catalog_version(table) for table in (UPGRADE_ORDER[0], UPGRADE_ORDER[-1])]
        return min((version for version in versions if version is not None), default=None)

    def has_segments(self) -> bool:
        """Whether the table `segments` is there."""
        return self.tables.version(SEGMENTS) is not None

    def make_tables(self) -> bool:
        """Make the tables that are missing, and bring the others up to this version; return whether the catalog is new.

        Raises:
            CatalogError: they cannot be made or brought up to date.
        """
        is_new = not self.has_segments()
        for table in (*(table for table in TABLES if table is not SEGMENTS), SEGMENTS):
            self.tables.make(table)
        return is_new

    @contextlib.contextmanager
    def one_commit(self) -> Iterator[None]:
        """All changes of `segments` within are committed at its end, also where it ends with an error: what was done is
        recorded then.

        Raises:
            CatalogError: as `Tables.change`.
        """
        tables = self.tables
        held = HeldChanges(tables, SEGMENTS)
        self.tables = held
        try:
            yield
        finally:
            self.tables = tables
            held.commit()

    def known_segments(self, sources: Sequence[str], topics: re.Pattern[str]) -> pa.Table:
        """The rows of `KNOWN` of some sources and topics. Texts that many rows share are kept once, in dictionaries."""
        self.compared_with = self.tables.version(SEGMENTS)
        rows = self.tables.read(SEGMENTS, KNOWN.names, [_of(sources)], self.compared_with)
        for number, column in enumerate(KNOWN):
            if column.type == pa.string() and column.name != "log_path":
                rows = rows.set_column(number, column.name, rows[column.name].dictionary_encode())
        return rows.unify_dictionaries().filter(_is_of(rows["topic"], topics))

    def index_directories_of_others(self, sources: Sequence[str]) -> dict[str, str]:
        """The index directories of every source but these, and whose they are."""
        others = Among("source", tuple(sources), negated=True)
        names = ["index_directory", "source"]
        rows = self.tables.read(SEGMENTS, names, [others, PRESENT]).group_by(names).aggregate([])
        return {row["index_directory"]: row["source"] for row in rows.to_pylist()}

    def last_rate(self) -> float | None:
        """Bytes a second at which the last build that read anything did so; None where none did."""
        rows = self.tables.read(BUILDS, ["started_at", "log_bytes", "scan_seconds"])
        rows = rows.filter((pc.field("log_bytes") > 0) & (pc.field("scan_seconds") > 0)).sort_by("started_at")
        if not rows.num_rows:
            return None
        last = rows.slice(rows.num_rows - 1).to_pylist()[0]
        return float(last["log_bytes"] / last["scan_seconds"])

    def sources(self) -> list[str]:
        """The sources that have segments in it, or had."""
        return [str(source) for source in pc.unique(self.tables.read(SEGMENTS, ["source"])["source"]).to_pylist()]

    def audited_sources(self) -> list[str]:
        """The sources that were ever audited."""
        return audited_sources(self.tables)

    def broken_files(self, sources: Sequence[str]) -> list[JudgedFile]:
        """What the audits that last looked at the partitions of some sources found broken, and is not missing."""
        return JudgedFile.of_arrow(last_findings(self.tables, sources, (Verdict.BROKEN.value,), JudgedFile.names()))

    def damage(self, sources: Sequence[str], topics: re.Pattern[str], gone: pa.Table | None) -> KnownDamage:
        """How the segments stand."""
        return known_damage(self.tables, sources, topics, gone)

    def offsets(self, sources: Sequence[str]) -> dict[PartitionKey, tuple[int, int | None]]:
        """The first base offset and the last next offset of the segments that are present, by partition."""
        key = list(PARTITIONS.key)
        rows = self.tables.read(SEGMENTS, [*SEGMENTS.key, "next_offset"], [_of(sources), PRESENT])
        rows = rows.sort_by([(name, "ascending") for name in SEGMENTS.key])
        keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
        ends = rows.group_by(key, use_threads=False).aggregate(
            [("base_offset", "first"), ("next_offset", "last", keep_nulls)]
        )
        return {
            (row["source"], row["topic"], row["partition"]): (row["base_offset_first"], row["next_offset_last"])
            for row in ends.to_pylist()
        }

    def known_partitions(self, sources: Sequence[str]) -> list[PartitionRow]:
        """The rows of `partitions` of some sources."""
        return PartitionRow.of_arrow(self.tables.read(PARTITIONS, None, [_of(sources)]))

    def mark(self, changes: Changes, build_id: str) -> int:
        """Record segments that are gone, moved, or active or not by now; return how many rows that changed."""
        gone = changes.gone.num_rows
        of_gone = changes.gone.append_column("active", pa.repeat(pa.scalar(False), gone))
        of_gone = of_gone.append_column("status", pa.repeat(pa.scalar(Status.GONE.value), gone))
        marks = pa.concat_tables([of_gone, changes.relisted], promote_options="default")
        if not marks.num_rows:
            return 0
        of_segments = SEGMENTS.schema()
        marked = [of_segments.field(name).with_nullable(True) for name in ("active", "log_path", "status")]
        schema = pa.schema([*SEGMENTS.schema(SEGMENTS.key), *marked])
        found = {"mark": marks.select(schema.names).cast(schema)}
        return self.tables.change(SEGMENTS, found, partial(updates.marked, build_id=build_id), by=SEGMENTS.key)

    def merge_partitions(self, rows: Sequence[PartitionRow]) -> None:
        """Add or replace rows of `partitions`."""
        found = {"row": pa.Table.from_pylist([row.values() for row in rows], PARTITIONS.schema())}
        self.tables.change(PARTITIONS, found, partial(updates.written, table=PARTITIONS), by=PARTITIONS.key)

    def append_build(self, build: BuildRow) -> None:
        """Add the row of one run."""
        self.tables.append(BUILDS, _table(BUILDS, build.values()))

    def sweep_staging(self, older_than_ms: int) -> None:
        """Remove what killed runs on Spark left; runs without it leave nothing in the catalog."""
        if "://" in self.path:
            return
        staging = Path(self.path) / STAGING
        for entry in staging.iterdir() if staging.is_dir() else ():
            if entry.stat().st_mtime * 1000 < older_than_ms:
                shutil.rmtree(entry, ignore_errors=True)


def _of(sources: Collection[str]) -> Condition:
    return Among("source", tuple(sources))


def _is_of(column: Values, topics: re.Pattern[str]) -> Values:
    """Whether each topic is wanted. A regular expression of Python is asked of each topic once."""
    names = np.array([name for name in pc.unique(column).to_pylist() if topics.fullmatch(name)], object)
    return pc.is_in(column, value_set=pa.array(names, pa.string()))


def _table(table: Table, values: Mapping[str, Any]) -> pa.Table:
    """One row. Arrow takes a map as its entries."""
    entries = {name: list(value.items()) if isinstance(value, Mapping) else value for name, value in values.items()}
    return pa.Table.from_pylist([entries], table.schema())
