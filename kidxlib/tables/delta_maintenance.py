"""The maintenance of a catalog's tables through delta-rs, without Spark."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow.fs import FileSystem

from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import FILE_BYTES
from kidxlib.errors import CatalogError
from kidxlib.storage.store.s3 import file_system_of
from kidxlib.tables.data_files import (
    KeyRange,
    SortedFile,
    counted_bytes_of,
    files_of,
    has_plain_files,
    in_schema,
    key_ranges,
    rows_in,
    sizes_of,
    uncommitted_files,
    write_sorted,
)
from kidxlib.tables.delta_commits import commit_once, committing, replace_files
from kidxlib.tables.delta_tables import ZSTD, DeltaTables, one_line
from kidxlib.tables.protocol import VACUUM_KEEPS, files_schema

#: Files are cut by this number of sampled keys, or up to twice as many.
_SAMPLED: Final = 50_000


def write_merged(place: FileSystem, table: Table, old: pa.Table, new: list[SortedFile]) -> bool:
    """Write the rows of some files (`files_of`) into new ones; `new` gets each file as soon as it is written. The
    answer is whether all rows were written; no cause of False is known.
    """
    sizes = sizes_of(old)
    keys, expected = _sampled_keys(place, table, sizes)
    written = 0
    for part in key_ranges(keys, table.order, sum(counted_bytes_of(old).values()), at_once=1):
        rows = pa.concat_tables([_rows_between(place, table, path, part) for path in sizes])
        written += rows.num_rows
        new += write_sorted(place, table, rows, part.files)
    return written == expected


def _sampled_keys(place: FileSystem, table: Table, paths: Collection[str]) -> tuple[pa.Table, int]:
    """The columns `table.order` of rows of files, evenly sampled, and how many rows there are. All keys of one file at
    a time are held.
    """
    kept, rows, stride = table.schema(table.order).empty_table(), 0, 1
    for path in paths:
        keys = rows_in(place, table, path, table.order)
        # Every `stride`-th row, counted across files.
        positions = range(-rows % stride, keys.num_rows, stride)
        kept = pa.concat_tables([kept, keys.take(pa.array(positions, pa.int64()))])
        rows += keys.num_rows
        while kept.num_rows > 2 * _SAMPLED:
            stride *= 2
            kept = kept.take(pa.array(range(0, kept.num_rows, 2), pa.int64()))
    return kept, rows


def _rows_between(place: FileSystem, table: Table, path: str, part: KeyRange) -> pa.Table:
    """The rows of one file within a range, in the catalog's schema."""
    import pyarrow.dataset as ds  # slow to import, and most commands need none

    parquet = ds.ParquetFileFormat(  # as `rows_in` reads them
        read_options=ds.ParquetReadOptions(None, "us"),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
    )
    fragment = parquet.make_fragment(unquote(path), filesystem=place)
    names = [name for name in table.column_names if name in fragment.physical_schema.names]
    return in_schema(fragment.to_table(columns=names, filter=part.expression), table.schema())


#: Tries of one commit while others commit to the same table, and the longest pause between two, in seconds.
_ATTEMPTS: Final = 10
_PAUSE_MAX: Final = 10.0

_KEEPS_HOURS: Final = VACUUM_KEEPS // timedelta(hours=1)
_KEEPS_PROPERTY: Final = "delta.deletedFileRetentionDuration"
#: The metadata of a rewrite in the table's history.
_REWRITTEN: Final = {"kidx.operation": "rewrite in order"}
_COMPACTED: Final = {"kidx.operation": "compact in order"}


@dataclass(frozen=True, slots=True)
class DeltaMaintenance:
    tables: DeltaTables

    def files(self, table: Table) -> pa.Table:
        delta = self.tables.opened(table)
        return files_schema(table).empty_table() if delta is None else files_of(table, delta)

    def sample(self, table: Table, rows: int) -> pa.Table:
        delta = self.tables.opened(table)
        if delta is None:
            return table.schema(table.key).empty_table()
        key = ", '/', ".join(f'"{name}"' for name in table.key)
        return self.tables.rows(table, delta, table.key, f"true ORDER BY md5(concat({key})) LIMIT {rows}")

    def expire(self, table: Table, expired: Callable[[], pa.Table]) -> None:
        def attempt(delta: DeltaTable) -> bool:
            if not (rows := expired()).num_rows:
                return True
            with committing(self.tables.path):
                commit_once(delta.table_uri, delta.version() + 1, partial(_delete, delta, rows))
            return True

        self._committed(table, attempt)

    def rewrite(self, table: Table) -> None:
        """See `Maintenance.rewrite`. Others may commit while the files are written. If they changed the same files, the
        rewrite starts again.
        """

        def attempt(delta: DeltaTable) -> bool:
            old = files_of(table, delta)
            place = file_system_of(delta)
            with uncommitted_files(place) as (new, removing):
                self._write_sorted(table, delta, old, place, new)
                return self._replace(table, old, new, removing, _REWRITTEN)

        self._committed(table, attempt)

    def compact(self, table: Table, paths: Collection[str]) -> bool:
        """See `Maintenance.compact`. Others may commit while the files are written. delta-rs compacts a table with more
        features than kidx gives it; it joins small files without sorting.
        """
        delta = self.tables.opened(table)
        try:
            if delta is not None and has_plain_files(delta):
                return self._is_compacted(table, delta, paths)
            if delta is not None:
                with committing(self.tables.path):
                    commit_once(delta.table_uri, delta.version() + 1, partial(_put_together, delta))
        except CommitFailedError:  # another writer was faster
            return False
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._not_written(table, error) from error
        return True

    def vacuum(self, table: Table, *, apply: bool) -> int:
        count = 0

        def attempt(delta: DeltaTable) -> bool:
            nonlocal count
            hours, unneeded = _unneeded(delta)
            count = max(count, len(unneeded))  # an attempt that was overtaken has removed them
            if apply and unneeded:
                with committing(self.tables.path):
                    delta.vacuum(
                        hours,
                        dry_run=False,
                        full=True,
                        enforce_retention_duration=False,
                        commit_properties=CommitProperties(max_commit_retries=0),
                    )
            return True

        self._committed(table, attempt)
        return count

    def _write_sorted(
        self, table: Table, delta: DeltaTable, old: pa.Table, place: FileSystem, new: list[SortedFile]
    ) -> None:
        """Write the rows in order, and add each file to `new`."""
        keys = self.tables.rows(table, delta, table.order, "true")
        ranges = key_ranges(keys, table.order, sum(counted_bytes_of(old).values()))
        expected, written = keys.num_rows, 0
        del keys
        for part in ranges:
            rows = self.tables.rows(table, delta, None, part.sql)
            written += rows.num_rows
            new += write_sorted(place, table, rows, part.files)
        if written != expected:
            raise self._lost(table)

    def _is_compacted(self, table: Table, delta: DeltaTable, paths: Collection[str]) -> bool:
        """Rewrite files of a version. False if they are no longer the table's."""

        files, place = files_of(table, delta), file_system_of(delta)
        old = files.filter(pc.is_in(files["path"], value_set=pa.array(sorted(paths), pa.string())))
        if old.num_rows < len(paths):
            return False
        with uncommitted_files(place) as (new, removing):
            if not write_merged(place, table, old, new):
                raise self._lost(table)
            return self._replace(table, old, new, removing, _COMPACTED)

    def _replace(
        self,
        table: Table,
        old: pa.Table,
        new: Sequence[SortedFile],
        removing: contextlib.ExitStack,
        history: Mapping[str, str],
    ) -> bool:
        """Commit new files in place of old ones; False if an old one is no longer the table's. `removing` removes the
        new files, unless they may have been committed.
        """
        removed = sizes_of(old)
        with committing(self.tables.path):
            delta = self.tables.opened(table)
            if delta is None or not removed.keys() <= sizes_of(files_of(table, delta)).keys():
                return False
            removing.pop_all()
            replace_files(delta, removed, new, data_change=False, history=history)
        return True

    def _committed(self, table: Table, attempt: Callable[[DeltaTable], bool]) -> None:
        """Try on the latest version until an attempt succeeds. A missing table needs nothing."""
        for number in range(_ATTEMPTS):
            if (delta := self.tables.opened(table)) is None:
                return
            try:
                if attempt(delta):
                    return
            except CommitFailedError:  # another writer was faster
                pass
            except (DeltaError, OSError, pa.ArrowException) as error:
                raise self._not_written(table, error) from error
            time.sleep(random.uniform(0, min(_PAUSE_MAX, 2.0**number)))
        raise CatalogError(
            f"{self.tables.place(table)}: other runs changed the table, or the store was not reached, at each of "
            f"{_ATTEMPTS} attempts to commit; run the same command again later"
        )

    def _lost(self, table: Table) -> CatalogError:
        """The error if rows were lost. No cause of this is known."""
        return CatalogError(
            f"{self.tables.place(table)}: not all of its rows were read, and nothing was changed; run it again"
        )

    def _not_written(self, table: Table, error: Exception) -> CatalogError:
        return CatalogError(f"{self.tables.place(table)}: cannot be written: {one_line(error)}")


def _delete(delta: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    same_key = " AND ".join(f'old."{name}" = expired."{name}"' for name in rows.column_names)
    merge = delta.merge(
        rows,
        same_key,
        source_alias="expired",
        target_alias="old",
        streamed_exec=False,  # else the bounds of keys do not prune files
        commit_properties=properties,
        writer_properties=ZSTD,
    )
    merge.when_matched_delete().execute()


def _put_together(delta: DeltaTable, properties: CommitProperties) -> None:
    delta.optimize.compact(target_size=FILE_BYTES, writer_properties=ZSTD, commit_properties=properties)


def _unneeded(delta: DeltaTable) -> tuple[int | None, list[str]]:
    """For how many hours unneeded files stay (None: the table's own property, which is longer), and which files are
    older.
    """
    unneeded = delta.vacuum(_KEEPS_HOURS, dry_run=True, full=True, enforce_retention_duration=False)
    if _KEEPS_PROPERTY in delta.metadata().configuration:
        by_property = delta.vacuum(dry_run=True, full=True)
        if len(by_property) < len(unneeded):
            return None, by_property
    return _KEEPS_HOURS, unneeded
