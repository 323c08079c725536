"""The files of a Delta table: what its log says of each, the rows in one, and commits that replace some of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from kidxlib.catalog.rows import Table
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.delta_commits import commit_once, storage_options
from kidxlib.tables.layout import READER_VERSION, WRITER_VERSION, counted_bytes
from kidxlib.tables.protocol import files_schema
from kidxlib.tables.sorted_files import SortedFile


def files_of(table: Table, delta: DeltaTable) -> pa.Table:
    """The files of a version, as `files_schema` has them."""
    schema = files_schema(table)
    actions = pa.table(delta.get_add_actions(flatten=True))
    found = set(actions.column_names)  # of a column without a value in any file there are no bounds
    nothing = pa.nulls(actions.num_rows)
    columns = [(actions[field.name] if field.name in found else nothing).cast(field.type) for field in schema]
    return pa.table(columns, schema=schema)


def sizes_of(files: pa.Table) -> dict[str, int]:
    """The sizes in bytes of some files by their paths, given as `files_of` has them."""
    return {row["path"]: row["size_bytes"] for row in files.select(["path", "size_bytes"]).to_pylist()}


def counted_bytes_of(files: pa.Table) -> dict[str, int]:
    """What some files count for, in bytes, by their paths; see `counted_bytes`."""
    rows = files.select(["path", "size_bytes", "num_records"]).to_pylist()
    return {row["path"]: counted_bytes(row["size_bytes"], row["num_records"]) for row in rows}


def file_system_of(delta: DeltaTable) -> FileSystem:
    """The table's directory: on a disk, or in an object store as delta-rs reaches it. On a disk that is full delta-rs
    would print the state of its own threads before there is an error.
    """
    if is_object(delta.table_uri):
        return PyFileSystem(DeltaStorageHandler(delta.table_uri, storage_options(delta.table_uri)))
    return SubTreeFileSystem(unquote(urlsplit(delta.table_uri).path), LocalFileSystem())


def rows_in(place: FileSystem, table: Table, path: str, names: Collection[str] | None = None) -> pa.Table:
    """Some columns of the rows of one file, in the catalog's own schema; a column that the file lacks is null.

    Args:
        place: the table's directory.
        path: as the log has it.
        names: None for all columns.
    """
    schema = table.schema(names)
    # Spark writes the timestamps that Parquet had first, whose nanoseconds do not reach as far as ours.
    with pq.ParquetFile(unquote(path), filesystem=place, coerce_int96_timestamp_unit="us", pre_buffer=True) as file:
        return in_schema(file.read(schema.names), schema)


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema; one that they lack is null."""
    found = set(rows.column_names)
    nothing = pa.nulls(rows.num_rows)
    return pa.table(
        [(rows[field.name] if field.name in found else nothing).cast(field.type) for field in schema], schema=schema
    )


def has_plain_files(delta: DeltaTable) -> bool:
    """Whether the rows of a table are those of its files, and nothing more is asked of who writes some. Somebody else
    may have asked for more, as deletion vectors.
    """
    protocol = delta.protocol()
    return (protocol.min_reader_version, protocol.min_writer_version) == (READER_VERSION, WRITER_VERSION)


def replace_files(
    delta: DeltaTable,
    old: Mapping[str, int],
    new: Sequence[SortedFile],
    *,
    data_change: bool,
    said: Mapping[str, Any],
) -> None:
    """Commit new files in the place of old ones. On a disk they go again where they are not committed; in an object
    store nobody knows when a commit whose answer is lost may still be made.

    Args:
        delta: a version that has the old ones.
        old: their sizes by their paths.
        data_change: whether the table says something else by it; who follows its changes has to do with these alone.
        said: what the history says of it.
    """
    now = int(time.time() * 1000)
    adds = [AddAction(file.name, file.size, {}, now, data_change, file.statistics) for file in new]
    removes = [RemoveAction(path, data_change, now, size, {}) for path, size in old.items()]

    def write(properties: CommitProperties) -> None:
        delta.create_write_transaction([*adds, *removes], "append", delta.schema(), commit_properties=properties)

    try:
        commit_once(delta.table_uri, delta.version() + 1, write, said)
    except (DeltaError, OSError):
        place = file_system_of(delta)
        if not is_object(delta.table_uri) and not _is_committed(place, delta.version() + 1, new):
            remove_files(place, new)
        raise


def _is_committed(place: FileSystem, version: int, new: Sequence[SortedFile]) -> bool:
    """Whether a version has files: delta-rs may fail after a commit, as where no checkpoint can be written."""
    try:
        with place.open_input_stream(f"_delta_log/{version:020}.json") as log:
            commit = log.read()
    except FileNotFoundError:
        return False
    return any(file.name.encode() in commit for file in new)


def remove_files(place: FileSystem, files: Sequence[SortedFile]) -> None:
    """Remove files that were written, and are not of the table."""
    for file in files:
        place.delete_file(file.name)
