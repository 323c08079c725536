"""Makes the catalog's tables smaller and faster: removes old rows that nothing needs (`expired`), rewrites files if a
query for one row costs too much (`table_state`), and deletes files that no version needs.

After a build has recorded everything, small files are merged (`optimize_tables`): each table in one commit, which gives
way to commits of other runs. Each build adds files with rows of all partitions that have grown. Small files are merged
into one. A run is a sequence of large files that do not overlap in the order of the table. A query for one partition
reads one or two files of each run, so the number of runs is kept low, too: runs are merged. A run is merged only with
files that together have at least half of its size. So a row is rewritten only when the data that it lies in has grown
by half, however many builds there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import PRESENT, Among, scope_of
from kidxlib.catalog.findings import FINDINGS, REMOTE_SEGMENTS
from kidxlib.catalog.matching import Values, differing, flags_of, positions_in, taken_at
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, FILE_BYTES, SMALL_FILE_BYTES, TABLES, counted_bytes
from kidxlib.compaction.policy import Expiry
from kidxlib.engine.shares import ROWS_AT_ONCE, shares
from kidxlib.errors import CatalogError
from kidxlib.recovery.outcome import ABSENT
from kidxlib.tables.protocol import Maintenance, Tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase, warn
from kidxlib.text.words import counted

#: So many rows are sampled to measure point queries.
_QUERIES: Final = 100
#: A table may have so many times the files that its bytes need, so that a few new files do not cause a rewrite of all.
_SLACK: Final = 1.5
#: A MERGE by Spark or delta-rs rewrites all files that it touches into a few, in no order.
_LARGE_BYTES: Final = FILE_BYTES * 3 // 2

#: Tables whose rows go together with those of segments.
_OF_SEGMENTS: Final = (SEGMENTS, ABORTED_TRANSACTIONS, PRODUCER_EVENTS, PARTITION_STATES)
_ABSENT: Final = Among("status", tuple(status.value for status in ABSENT))


class Upkeep(StrEnum):
    """The steps of the upkeep, in their order."""

    EXPIRE = "expire"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"


ALL: Final = frozenset(Upkeep)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The size of a table's latest version, and what a query costs.

    Attributes:
        point_query_rows: the rows of the files that a query for one row reads, on average, by Delta's statistics of
            each file; None if the table is not sorted for queries, or has no row.
        point_query_files: the number of these files, on average.
        needs_rewrite: the files are too many, too large, or in no order; never right after a rewrite.
    """

    files: int
    bytes: int
    rows: int
    point_query_rows: int | None
    point_query_files: float | None
    needs_rewrite: bool


def table_state(maintenance: Maintenance, table: Table) -> TableState:
    """Measure a table, by which its maintenance decides on a rewrite."""
    files = maintenance.files(table)
    sizes, counts = ([int(value or 0) for value in files[name].to_pylist()] for name in ("size_bytes", "num_records"))
    read_rows, read_files = (
        _point_queries(maintenance, table, files) if table.sort_by and files.num_rows else (None, None)
    )
    counted = [counted_bytes(size, rows) for size, rows in zip(sizes, counts, strict=True)]
    enough = max(1, math.ceil(_SLACK * sum(counted) / FILE_BYTES))
    # If files are in order, a query reads the file with the row. For each column of the order it reads at most two
    # more: those in which the rows with the same value begin and end.
    is_mixed = read_files is not None and read_files > 2 * len(table.order) - 1
    return TableState(
        files=files.num_rows,
        bytes=sum(sizes),
        rows=sum(counts),
        point_query_rows=read_rows,
        point_query_files=read_files,
        needs_rewrite=files.num_rows > enough or max(counted, default=0) > _LARGE_BYTES or is_mixed,
    )


def _point_queries(maintenance: Maintenance, table: Table, files: pa.Table) -> tuple[int | None, float | None]:
    """The rows and files that a sample of queries reads, on average."""
    queries = maintenance.sample(table, _QUERIES).to_pylist()
    if not queries:
        return None, None
    of_queries = [files.filter(_may_hold(files, table.key, query)) for query in queries]
    rows = sum(int(pc.sum(read["num_records"]).as_py() or 0) for read in of_queries)
    return round(rows / len(queries)), round(sum(read.num_rows for read in of_queries) / len(queries), 2)


def _may_hold(files: pa.Table, key: Sequence[str], row: dict[str, Any]) -> Values:
    """Flags of the files that may hold a row. For long texts, Delta's upper bound may be a prefix that it has made
    greater.
    """
    may_hold: Values = pa.repeat(True, files.num_rows)
    for name in key:
        value = pa.scalar(row[name], files.schema.field(f"min.{name}").type)
        least, greatest = (files[f"{bound}.{name}"] for bound in ("min", "max"))
        inside: Values = pc.and_(pc.less_equal(least, value), pc.greater_equal(greatest, value))
        may_hold = pc.and_(may_hold, inside.fill_null(True))
    return may_hold


@dataclass(frozen=True, slots=True)
class MaintainedTable:
    """
    Attributes:
        after: None if nothing was done.
        expired_rows: the number of rows that are removed.
        vacuumed_files: the number of files that are deleted, as only versions that are too old need them.
    """

    table: str
    before: TableState
    after: TableState | None
    expired_rows: int
    vacuumed_files: int


def maintain_tables(
    tables: Tables, maintenance: Maintenance, expiry: Expiry, upkeep: Collection[Upkeep], *, apply: bool
) -> list[MaintainedTable]:
    """Look at all tables. With `apply`, expire rows, rewrite files where it is worth it, and vacuum.

    Readers are not disturbed: each commit is a version of its own, and the files of old versions stay for
    `VACUUM_KEEPS`. After a stop, it can be run again and goes on.
    """
    begin_phase("maintaining tables" if apply else "looking at tables")
    now = datetime.now(UTC)  # the clock and not --now: VACUUM goes by the clock, too
    with interrupts.telling(lambda: "each table is as before, or done; run the same command again to go on"):
        before = {table.name: table_state(maintenance, table) for table in TABLES}
        expires = Upkeep.EXPIRE in upkeep
        rows = {table.name: expired(tables, table, expiry, now).rows if expires else 0 for table in TABLES}
        after = dict(before) if apply else {}
        if apply:
            # Segments first: if the run stops, rows left in other tables belong to no segment, and the next run removes
            # them.
            for table in sorted(TABLES, key=lambda table: table is not SEGMENTS):
                if rows[table.name]:
                    _expire(tables, maintenance, table, expiry, now)
                    after[table.name] = table_state(maintenance, table)
            for table in TABLES:
                if Upkeep.OPTIMIZE in upkeep and after[table.name].needs_rewrite:
                    maintenance.rewrite(table)
                    after[table.name] = table_state(maintenance, table)
        vacuumed = {
            table.name: maintenance.vacuum(table, apply=apply) if Upkeep.VACUUM in upkeep else 0 for table in TABLES
        }
    return [
        MaintainedTable(
            table=table.name,
            before=before[table.name],
            after=after.get(table.name),
            expired_rows=rows[table.name],
            vacuumed_files=vacuumed[table.name],
        )
        for table in TABLES
    ]


@dataclass(frozen=True, slots=True)
class Expired:
    """The rows of a table that expire.

    Attributes:
        keys: values of some columns of the table's key; rows with one of these values expire.
        rows: the number of rows that expire.
    """

    keys: pa.Table
    rows: int


def expired(tables: Tables, table: Table, expiry: Expiry, now: datetime) -> Expired:
    """The rows of a table that the maintenance of a catalog removes by their age; none if no age is set for it."""
    nothing = Expired(table.schema(table.key).empty_table(), 0)
    if table in (RETENTION_PLANS, FINDINGS, REMOTE_SEGMENTS):
        recorded_at, age = (
            ("planned_at", expiry.retention_plans) if table is RETENTION_PLANS else ("audited_at", expiry.findings)
        )
        return nothing if age is None else _expired_runs(tables, table, recorded_at, now - age)
    if table is BUILDS:
        return nothing if expiry.builds is None else _expired_builds(tables, now - expiry.builds)
    if table not in _OF_SEGMENTS or expiry.gone_segments is None:
        return nothing
    gone = _expired_segments(tables, now - expiry.gone_segments)
    return Expired(gone, gone.num_rows) if table is SEGMENTS else _rows_of_no_segment(tables, table, gone)


def _expired_runs(tables: Tables, table: Table, recorded_at: str, before: datetime) -> Expired:
    """For tables from which nothing is derived. All rows of a run have its id and one time."""
    (run,) = table.sort_by
    rows = tables.read(table, [run, recorded_at])
    rows = rows.filter(_is_before(rows[recorded_at], before))
    return Expired(rows.group_by(run).aggregate([]), rows.num_rows)


def _expired_segments(tables: Tables, before: datetime) -> pa.Table:
    """Keys of segments that were gone before a time, and from which no later segment's transactions are derived.

    The rows of segments that retention deleted are still used for transactions and producers of the segments after them
    (`kidxlib.operations.build.waves`). So these rows stay while a later segment with the same topic id is there.
    """
    absent = tables.read(SEGMENTS, [*SEGMENTS.key, "topic_id", "deleted_at", "build_id"], [_ABSENT])
    builds = tables.read(BUILDS, ["build_id", "started_at"])
    found_at = taken_at(builds["started_at"], positions_in(absent, builds, ["build_id"]))
    since: Values = pc.coalesce(absent["deleted_at"], found_at)
    absent = absent.filter(_is_before(since, before))
    if not absent.num_rows:
        return absent.select(SEGMENTS.key)
    scope = scope_of({"absent": absent}, ["source", "topic"])
    present = tables.read(SEGMENTS, [*SEGMENTS.key, "topic_id"], [*scope, PRESENT])
    present = present.sort_by([(name, "ascending") for name in SEGMENTS.key])
    with_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    first = present.group_by(list(PARTITIONS.key), use_threads=False).aggregate(
        [("base_offset", "first"), ("topic_id", "first", with_nulls)]
    )
    first = first.rename_columns([*PARTITIONS.key, "base_offset", "topic_id"])
    at = positions_in(absent, first, PARTITIONS.key)
    first = taken_at(first.select(["base_offset", "topic_id"]), at)
    is_before_first = flags_of(pc.less(absent["base_offset"], first["base_offset"]))
    not_needed: Values = pa.array(~is_before_first | differing(absent, first, ("topic_id",)))
    return absent.select(SEGMENTS.key).filter(not_needed)


def _rows_of_no_segment(tables: Tables, table: Table, gone: pa.Table) -> Expired:
    """The rows of a table that belong to segments which are not in the catalog, or are removed from it now."""
    keys, count = [gone.select(SEGMENTS.key).slice(0, 0)], 0
    read = partial(tables.read, table, SEGMENTS.key)
    for partitions, rows in shares(read, tables.counts(table, PARTITIONS.key), ROWS_AT_ONCE, ROWS_AT_ONCE):
        known = tables.read(SEGMENTS, SEGMENTS.key, scope_of({"partition": partitions}, PARTITIONS.key))
        known = known.filter(positions_in(known, gone, SEGMENTS.key) < 0)
        of_no_segment = rows.filter(positions_in(rows, known, SEGMENTS.key) < 0)
        count += of_no_segment.num_rows
        keys.append(of_no_segment.group_by(list(SEGMENTS.key)).aggregate([]))
    return Expired(pa.concat_tables(keys), count)


def _expired_builds(tables: Tables, before: datetime) -> Expired:
    """The builds before a time that nothing needs. Rows of segments and partitions refer to builds, and so do the path
    of each source (`source_paths`) and the rate of the last build that read anything (`TablesCatalog.last_rate`).
    """
    builds = tables.read(BUILDS, ["build_id", "started_at", "sources", "log_bytes", "scan_seconds"])
    builds = builds.sort_by("started_at")
    needed: set[str] = set()
    for table in (SEGMENTS, PARTITIONS):
        needed |= set(map(str, pc.unique(tables.read(table, ["build_id"])["build_id"]).to_pylist()))
    latest: dict[str, str] = {}
    for build in builds.select(["build_id", "sources"]).to_pylist():
        latest |= dict.fromkeys((source for source, _ in build["sources"]), build["build_id"])
    reading = builds.filter((pc.field("log_bytes") > 0) & (pc.field("scan_seconds") > 0))
    needed |= {*latest.values(), *map(str, reading["build_id"].to_pylist()[-1:])}
    is_needed: Values = pc.is_in(builds["build_id"], value_set=pa.array(sorted(needed), pa.string()))
    old = flags_of(_is_before(builds["started_at"], before)) & ~flags_of(is_needed)
    keys = builds.select(["build_id"]).filter(pa.array(old))
    return Expired(keys, keys.num_rows)


def _is_before(times: Values, before: datetime) -> Values:
    """Flags of the times before another; unknown times are not."""
    is_before: Values = pc.less(times, pa.scalar(before, pa.timestamp("us", "UTC")))
    return is_before.fill_null(False)


def _expire(tables: Tables, maintenance: Maintenance, table: Table, expiry: Expiry, now: datetime) -> None:
    maintenance.expire(table, lambda: expired(tables, table, expiry, now).keys)


#: A piece is merged with smaller ones only if it is at most so many times as large as these together.
_RATIO: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedTable:
    """A table with files that were worth merging.

    Attributes:
        files_before, files_after: the number of files that the whole table had and has.
        gave_way: another run changed the table in between; then nothing was merged.
    """

    table: str
    merged_files: int
    files_before: int
    files_after: int
    gave_way: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeLimits:
    """
    Attributes:
        small_files_max: so many small files and runs of large files may stay unmerged.
        bytes_max: so many bytes of a table's files are merged after one build at most.
    """

    small_files_max: int
    bytes_max: int


def files_to_merge(table: Table, files: pa.Table, limits: OptimizeLimits) -> list[str]:
    """The paths of files to merge, of those that `Maintenance.files` returns; none if it is not worth it."""
    of_table = [_File.of(table, row) for row in files.to_pylist()]
    small = [[file] for file in of_table if file.size < SMALL_FILE_BYTES]
    pieces = sorted([*small, *_runs([file for file in of_table if file.size >= SMALL_FILE_BYTES])], key=_size)
    for start in range(len(pieces)):
        merged = list(_merged(pieces[start:], limits.bytes_max))
        if len(merged) > limits.small_files_max:
            return [file.path for piece in merged for file in piece]
    return []


#: A value of a column, or a place before or after all values.
_Place: TypeAlias = tuple[Any, ...]
_FIRST: Final[_Place] = (0,)
_LAST: Final[_Place] = (2,)


@dataclass(frozen=True, slots=True)
class _File:
    """A file, and where it begins and ends in the table's order by the bounds of its columns.

    The bounds of a file with several topics give the first and the last topic, but not their partitions. Such a file is
    taken to begin at the end of its first topic, and to end at the beginning of its last one. So files of one run that
    share a topic do not count as overlapping.
    """

    path: str
    size: int
    begin: tuple[_Place, ...]
    end: tuple[_Place, ...]

    @classmethod
    def of(cls, table: Table, row: dict[str, Any]) -> _File:
        begin: list[_Place] = []
        end: list[_Place] = []
        for name in table.order:
            least, greatest = row[f"min.{name}"], row[f"max.{name}"]
            if least is None or greatest is None:  # a file without statistics
                begin, end = [*begin, _FIRST], [*end, _LAST]
                break
            begin, end = [*begin, (1, least)], [*end, (1, greatest)]
            if least != greatest:
                begin, end = [*begin, _LAST], [*end, _FIRST]
                break
        return cls(row["path"], counted_bytes(row["size_bytes"], row["num_records"]), tuple(begin), tuple(end))


def _runs(files: Sequence[_File]) -> list[list[_File]]:
    """The files in as few runs as possible: each file goes to the run that ends nearest before it."""
    runs: list[list[_File]] = []
    for file in sorted(files, key=lambda file: (file.begin, file.end)):
        before = [run for run in runs if run[-1].end <= file.begin]
        if before:
            max(before, key=lambda run: run[-1].end).append(file)
        else:
            runs.append([file])
    return runs


def _merged(pieces: Sequence[list[_File]], bytes_max: int) -> Iterator[list[_File]]:
    """The first pieces, which are merged into one. The smallest files and runs come first."""
    size = 0
    for piece in pieces:
        is_large = size and _size(piece) >= max(SMALL_FILE_BYTES, _RATIO * size)
        if size + _size(piece) > bytes_max or is_large:
            return
        yield piece
        size += _size(piece)


def _size(piece: Sequence[_File]) -> int:
    return sum(file.size for file in piece)


def optimize_tables(maintenance: Maintenance, tables: Iterable[Table], limits: OptimizeLimits) -> list[OptimizedTable]:
    """Merge files of tables where it is worth it. An error is only a warning: the build itself has succeeded."""
    optimized: list[OptimizedTable] = []
    with interrupts.telling(lambda: "the build is done and recorded; tables that were not put in order are as before"):
        for table in tables:
            try:
                optimized += _optimized(maintenance, table, limits)
            except CatalogError as error:
                warn(f"{error}; the build is recorded")
    return optimized


def _optimized(maintenance: Maintenance, table: Table, limits: OptimizeLimits) -> list[OptimizedTable]:
    files = maintenance.files(table)
    merged = files_to_merge(table, files, limits)
    if not merged:
        return []
    begin_phase("putting tables in order")
    is_done = maintenance.compact(table, merged)
    return [
        OptimizedTable(
            table=table.name,
            merged_files=len(merged),
            files_before=files.num_rows,
            files_after=maintenance.files(table).num_rows if is_done else files.num_rows,
            gave_way=not is_done,
        )
    ]


def optimized_as_json(optimized: Sequence[OptimizedTable]) -> list[dict[str, Any]]:
    return [asdict(table) for table in optimized]


def optimized_in_words(optimized: Sequence[OptimizedTable]) -> str:
    """The tables whose files were merged, in words for a summary; empty if none was."""
    return "; ".join(map(_line, optimized))


def _line(table: OptimizedTable) -> str:
    if table.gave_way:
        return f"{table.table} left for a later build, as another run has changed it"
    return f"{table.table} put in order: {counted(table.files_after, 'file')}, where there were {table.files_before:,}"
