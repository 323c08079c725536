"""The upkeep of a catalog's tables through delta-rs, without Spark."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow.fs import FileSystem

from kidxlib.catalog.rows import Table
from kidxlib.errors import CatalogError
from kidxlib.tables.commit_lock import committing
from kidxlib.tables.data_files import file_system_of, files_of, remove_files, replace_files, sizes_of
from kidxlib.tables.delta_tables import HERE_OR_NOT_AT_ALL, ZSTD, DeltaTables, one_line
from kidxlib.tables.maintenance import VACUUM_KEEPS, files_schema
from kidxlib.tables.sorted_files import SortedFile, key_ranges, write_sorted

#: Tries of one commit while others commit to the same table, and the longest pause between two, in seconds.
_ATTEMPTS: Final = 10
_PAUSE_MAX: Final = 10.0

_KEEPS_HOURS: Final = VACUUM_KEEPS // timedelta(hours=1)
_KEEPS_PROPERTY: Final = "delta.deletedFileRetentionDuration"
#: What the history says of it, beside the kind of commit that delta-rs names by itself.
_REWRITTEN: Final = CommitProperties(max_commit_retries=0, custom_metadata={"kidx.operation": "rewrite in order"})


@dataclass(frozen=True, slots=True)
class DeltaMaintenance:
    """See `kidxlib.tables.maintenance.Maintenance`."""

    tables: DeltaTables

    def files(self, table: Table) -> pa.Table:
        """See `Maintenance.files`."""
        delta = self.tables.opened(table)
        return files_schema(table).empty_table() if delta is None else files_of(table, delta)

    def sample(self, table: Table, rows: int) -> pa.Table:
        """See `Maintenance.sample`."""
        delta = self.tables.opened(table)
        if delta is None:
            return table.schema(table.key).empty_table()
        key = ", '/', ".join(f'"{name}"' for name in table.key)
        return self.tables.rows(table, delta, table.key, f"true ORDER BY md5(concat({key})) LIMIT {rows}")

    def expire(self, table: Table, expired: Callable[[], pa.Table]) -> None:
        """See `Maintenance.expire`."""

        def attempt(delta: DeltaTable) -> bool:
            if not (rows := expired()).num_rows:
                return True
            with committing(self.tables.path):
                same = " AND ".join(f'old."{name}" = expired."{name}"' for name in rows.column_names)
                merge = delta.merge(
                    rows,
                    same,
                    source_alias="expired",
                    target_alias="old",
                    streamed_exec=False,  # else the least and largest keys do not leave out files
                    commit_properties=HERE_OR_NOT_AT_ALL,
                    writer_properties=ZSTD,
                )
                merge.when_matched_delete().execute()
            return True

        self._committed(table, attempt)

    def rewrite(self, table: Table) -> None:
        """See `Maintenance.rewrite`. The files are written while others may commit; whoever did changed other files, or
        it is done again.
        """

        def attempt(delta: DeltaTable) -> bool:
            old = files_of(table, delta)
            place = file_system_of(delta)
            new: list[SortedFile] = []
            with contextlib.ExitStack() as stack:
                # What is no file of the table would stay until it is vacuumed.
                stack.callback(remove_files, place, new)
                self._write_sorted(table, delta, old, place, new)
                if self._replace(table, old, new, stack):
                    return True
            return False

        self._committed(table, attempt)

    def vacuum(self, table: Table, *, apply: bool) -> int:
        """See `Maintenance.vacuum`."""
        count = 0

        def attempt(delta: DeltaTable) -> bool:
            nonlocal count
            hours, found = _unneeded(delta)
            count = max(count, len(found))  # whoever is overtaken has removed them
            if apply and found:
                with committing(self.tables.path):
                    delta.vacuum(
                        hours,
                        dry_run=False,
                        full=True,
                        enforce_retention_duration=False,
                        commit_properties=HERE_OR_NOT_AT_ALL,
                    )
            return True

        self._committed(table, attempt)
        return count

    def _write_sorted(
        self, table: Table, delta: DeltaTable, old: pa.Table, place: FileSystem, new: list[SortedFile]
    ) -> None:
        """Add to `new` each file that is written."""
        keys = self.tables.rows(table, delta, table.order, "true")
        ranges = key_ranges(keys, table.order, int(pc.sum(old["size_bytes"]).as_py() or 0))
        expected, found = keys.num_rows, 0
        del keys
        for part in ranges:
            rows = self.tables.rows(table, delta, None, part.sql)
            found += rows.num_rows
            new += write_sorted(place, table, rows, part.files)
        if found != expected:  # nothing is known that would do that; it would lose rows
            raise CatalogError(f"{self.tables.place(table)}: of {expected:,} rows {found:,} were read; nothing changed")

    def _replace(self, table: Table, old: pa.Table, new: Sequence[SortedFile], removing: contextlib.ExitStack) -> bool:
        """Commit new files in the place of old ones; False if one of these is not of the table any more.

        Args:
            removing: removes the new ones; not once they may be committed.
        """
        removed = sizes_of(old)
        with committing(self.tables.path):
            delta = self.tables.opened(table)
            if delta is None or not removed.keys() <= sizes_of(files_of(table, delta)).keys():
                return False
            removing.pop_all()
            replace_files(delta, removed, new, data_change=False, commit_properties=_REWRITTEN)
        return True

    def _committed(self, table: Table, attempt: Callable[[DeltaTable], bool]) -> None:
        """Try until it is done; a table that does not exist needs nothing.

        Args:
            attempt: gets the latest version, and says whether it is done.
        """
        for number in range(_ATTEMPTS):
            if (delta := self.tables.opened(table)) is None:
                return
            try:
                if attempt(delta):
                    return
            except CommitFailedError:  # another writer was faster
                pass
            except (DeltaError, OSError, pa.ArrowException) as error:
                raise CatalogError(f"{self.tables.place(table)}: cannot be written: {one_line(error)}") from error
            time.sleep(random.uniform(0, min(_PAUSE_MAX, 2.0**number)))
        raise CatalogError(
            f"{self.tables.place(table)}: other runs changed the table at each of {_ATTEMPTS} attempts to commit; "
            "run the same command again when they have ended"
        )


def _unneeded(delta: DeltaTable) -> tuple[int | None, list[str]]:
    """For how many hours files stay that no version needs, and which ones have lain for longer; None: for as many as
    the table itself says, where that is longer.
    """
    found = delta.vacuum(_KEEPS_HOURS, dry_run=True, full=True, enforce_retention_duration=False)
    if _KEEPS_PROPERTY in delta.metadata().configuration:
        by_property = delta.vacuum(dry_run=True, full=True)
        if len(by_property) < len(found):
            return None, by_property
    return _KEEPS_HOURS, found
