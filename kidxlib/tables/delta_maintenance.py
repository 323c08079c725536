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

#: This many sampled keys, or up to twice as many, tell where to divide rows into files.
_SAMPLED_KEYS: Final = 50_000

#: Tries of one commit while others commit to the same table, and the longest pause between two, in seconds.
_ATTEMPTS: Final = 10
_PAUSE_MAX: Final = 10.0

_KEEPS_HOURS: Final = VACUUM_KEEPS // timedelta(hours=1)
_KEEPS_PROPERTY: Final = "delta.deletedFileRetentionDuration"
#: The metadata of commits in the table's history.
_REWRITTEN: Final = {"kidx.operation": "rewrite in order"}
_COMPACTED: Final = {"kidx.operation": "compact in order"}


def write_merged(place: FileSystem, table: Table, old: pa.Table, new: list[SortedFile]) -> bool:
    """Write the rows of the files in `old` (`files_of`) into new files, and return whether all rows were written. No
    cause of False is known. `new` gets each file as soon as it is written.
    """
    sizes = sizes_of(old)
    keys, expected = _sampled_keys(place, table, sizes)
    written = 0
    for key_range in key_ranges(keys, table.order, sum(counted_bytes_of(old).values()), at_once=1):
        rows = pa.concat_tables([_rows_in_range(place, table, path, key_range) for path in sizes])
        written += rows.num_rows
        new += write_sorted(place, table, rows, key_range.files)
    return written == expected


def _sampled_keys(place: FileSystem, table: Table, paths: Collection[str]) -> tuple[pa.Table, int]:
    """An even sample of the rows of files, with the columns `table.order`, and the number of all rows. The keys of one
    file at a time are in memory.
    """
    sample, count, stride = table.schema(table.order).empty_table(), 0, 1
    for path in paths:
        keys = rows_in(place, table, path, table.order)
        # Every `stride`-th row, counted across files.
        positions = range(-count % stride, keys.num_rows, stride)
        sample = pa.concat_tables([sample, keys.take(pa.array(positions, pa.int64()))])
        count += keys.num_rows
        while sample.num_rows > 2 * _SAMPLED_KEYS:
            stride *= 2
            sample = sample.take(pa.array(range(0, sample.num_rows, 2), pa.int64()))
    return sample, count


def _rows_in_range(place: FileSystem, table: Table, path: str, key_range: KeyRange) -> pa.Table:
    """The rows of one file within a range of keys, in the catalog's schema."""
    import pyarrow.dataset as ds  # slow to import, and most commands do not need it

    parquet = ds.ParquetFileFormat(  # as `rows_in` reads them
        read_options=ds.ParquetReadOptions(None, "us"),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
    )
    fragment = parquet.make_fragment(unquote(path), filesystem=place)
    names = [name for name in table.column_names if name in fragment.physical_schema.names]
    return in_schema(fragment.to_table(columns=names, filter=key_range.expression), table.schema())


@dataclass(frozen=True, slots=True)
class DeltaMaintenance:
    """See `kidxlib.tables.protocol.Maintenance`."""

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
            if (rows := expired()).num_rows:
                with committing(self.tables.path):
                    commit_once(delta.table_uri, delta.version() + 1, partial(_delete, delta, rows))
            return True

        self._commit_with_retries(table, attempt)

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

        self._commit_with_retries(table, attempt)

    def compact(self, table: Table, paths: Collection[str]) -> bool:
        """See `Maintenance.compact`. Others may commit while the files are written. If the table has Delta features
        that kidx did not give it, delta-rs compacts it: it joins small files, and does not sort them.
        """
        delta = self.tables.opened(table)
        try:
            if delta is not None and has_plain_files(delta):
                return self._compact_files(table, delta, paths)
            if delta is not None:
                with committing(self.tables.path):
                    commit_once(delta.table_uri, delta.version() + 1, partial(_join_small_files, delta))
        except CommitFailedError:  # another writer was faster
            return False
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self._not_written_error(table, error) from error
        return True

    def vacuum(self, table: Table, *, apply: bool) -> int:
        count = 0

        def attempt(delta: DeltaTable) -> bool:
            nonlocal count
            hours, unneeded = _unneeded_files(delta)
            count = max(count, len(unneeded))  # an earlier, overtaken attempt may have removed files
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

        self._commit_with_retries(table, attempt)
        return count

    def _write_sorted(
        self, table: Table, delta: DeltaTable, old: pa.Table, place: FileSystem, new: list[SortedFile]
    ) -> None:
        """Write all rows in order; `new` gets each file as soon as it is written."""
        keys = self.tables.rows(table, delta, table.order, "true")
        ranges = key_ranges(keys, table.order, sum(counted_bytes_of(old).values()))
        expected, written = keys.num_rows, 0
        del keys
        for key_range in ranges:
            rows = self.tables.rows(table, delta, None, key_range.sql)
            written += rows.num_rows
            new += write_sorted(place, table, rows, key_range.files)
        if written != expected:
            raise self._lost_rows_error(table)

    def _compact_files(self, table: Table, delta: DeltaTable, paths: Collection[str]) -> bool:
        """Rewrite some files of a version; False if the table no longer has them."""
        files, place = files_of(table, delta), file_system_of(delta)
        old = files.filter(pc.is_in(files["path"], value_set=pa.array(sorted(paths), pa.string())))
        if old.num_rows < len(paths):
            return False
        with uncommitted_files(place) as (new, removing):
            if not write_merged(place, table, old, new):
                raise self._lost_rows_error(table)
            return self._replace(table, old, new, removing, _COMPACTED)

    def _replace(
        self,
        table: Table,
        old: pa.Table,
        new: Sequence[SortedFile],
        removing: contextlib.ExitStack,
        history: Mapping[str, str],
    ) -> bool:
        """Commit new files in place of old ones; False if the table no longer has an old one. `removing` would remove
        the new files: it is emptied before the commit.
        """
        old_sizes = sizes_of(old)
        with committing(self.tables.path):
            delta = self.tables.opened(table)
            if delta is None or not old_sizes.keys() <= sizes_of(files_of(table, delta)).keys():
                return False
            removing.pop_all()
            replace_files(delta, old_sizes, new, data_change=False, history=history)
        return True

    def _commit_with_retries(self, table: Table, attempt: Callable[[DeltaTable], bool]) -> None:
        """Attempt a commit on the latest version until it succeeds. A missing table needs no commit."""
        for number in range(_ATTEMPTS):
            if (delta := self.tables.opened(table)) is None:
                return
            try:
                if attempt(delta):
                    return
            except CommitFailedError:  # another writer was faster
                pass
            except (DeltaError, OSError, pa.ArrowException) as error:
                raise self._not_written_error(table, error) from error
            time.sleep(random.uniform(0, min(_PAUSE_MAX, 2.0**number)))
        raise CatalogError(
            f"{self.tables.place(table)}: other runs changed the table, or the store was not reached, at each of "
            f"{_ATTEMPTS} attempts to commit; run the same command again later"
        )

    def _lost_rows_error(self, table: Table) -> CatalogError:
        """The error if rows were lost. No cause of this is known."""
        return CatalogError(
            f"{self.tables.place(table)}: not all of its rows were read, and nothing was changed; run it again"
        )

    def _not_written_error(self, table: Table, error: Exception) -> CatalogError:
        return CatalogError(f"{self.tables.place(table)}: cannot be written: {one_line(error)}")


def _delete(delta: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    same_key = " AND ".join(f'old."{name}" = expired."{name}"' for name in rows.column_names)
    merge = delta.merge(
        rows,
        same_key,
        source_alias="expired",
        target_alias="old",
        streamed_exec=False,  # streamed rows have no bounds by which files are skipped
        commit_properties=properties,
        writer_properties=ZSTD,
    )
    merge.when_matched_delete().execute()


def _join_small_files(delta: DeltaTable, properties: CommitProperties) -> None:
    delta.optimize.compact(target_size=FILE_BYTES, writer_properties=ZSTD, commit_properties=properties)


def _unneeded_files(delta: DeltaTable) -> tuple[int | None, list[str]]:
    """How many hours unneeded files are kept (None: as the table's own property says, which is longer), and the
    unneeded files that are older.
    """
    unneeded = delta.vacuum(_KEEPS_HOURS, dry_run=True, full=True, enforce_retention_duration=False)
    if _KEEPS_PROPERTY in delta.metadata().configuration:
        by_property = delta.vacuum(dry_run=True, full=True)
        if len(by_property) < len(unneeded):
            return None, by_property
    return _KEEPS_HOURS, unneeded
