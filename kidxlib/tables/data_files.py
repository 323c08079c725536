"""The files of a Delta table: their entries in its log, the rows in one, and commits that replace some of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSystem

from kidxlib.catalog.rows import Table
from kidxlib.storage.store.s3 import file_system_of, is_object
from kidxlib.tables.delta_commits import commit_once
from kidxlib.tables.layout import READER_VERSION, WRITER_VERSION, counted_bytes
from kidxlib.tables.protocol import files_schema
from kidxlib.tables.sorted_files import SortedFile


def files_of(table: Table, delta: DeltaTable) -> pa.Table:
    """The files of a version, as `files_schema` has them."""
    schema = files_schema(table)
    actions = pa.table(delta.get_add_actions(flatten=True))
    return in_schema(actions, schema)  # without a column of bounds if no file has a value in that column


def sizes_of(files: pa.Table) -> dict[str, int]:
    """The sizes of files (`files_of`) in bytes, by path."""
    return {row["path"]: row["size_bytes"] for row in files.select(["path", "size_bytes"]).to_pylist()}


def counted_bytes_of(files: pa.Table) -> dict[str, int]:
    """`counted_bytes` of files, by path."""
    rows = files.select(["path", "size_bytes", "num_records"]).to_pylist()
    return {row["path"]: counted_bytes(row["size_bytes"], row["num_records"]) for row in rows}


def rows_in(place: FileSystem, table: Table, path: str, names: Collection[str] | None = None) -> pa.Table:
    """Columns (None: all) of the rows of one file in the table's directory, in the catalog's schema; a column that the
    file lacks is null. The path is from the table's log.
    """
    schema = table.schema(names)
    # Spark writes Parquet's oldest timestamps, in nanoseconds, whose range is smaller than ours.
    with pq.ParquetFile(unquote(path), filesystem=place, coerce_int96_timestamp_unit="us", pre_buffer=True) as file:
        return in_schema(file.read(schema.names), schema)


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema; a column that they lack is null."""
    present = set(rows.column_names)
    nulls = pa.nulls(rows.num_rows)
    return pa.table(
        [(rows[field.name] if field.name in present else nulls).cast(field.type) for field in schema], schema=schema
    )


def has_plain_files(delta: DeltaTable) -> bool:
    """Whether a table's rows are exactly those of its files, so that kidx may write files itself. Somebody may have
    enabled more features, such as deletion vectors.
    """
    protocol = delta.protocol()
    return (protocol.min_reader_version, protocol.min_writer_version) == (READER_VERSION, WRITER_VERSION)


def replace_files(
    delta: DeltaTable,
    old: Mapping[str, int],
    new: Sequence[SortedFile],
    *,
    data_change: bool,
    history: Mapping[str, Any],
) -> None:
    """Commit new files in place of old ones. If the commit fails on a disk, the new files are removed. In an object
    store they stay: a commit whose answer was lost may still be made.

    Args:
        delta: a version with the old files.
        old: the sizes of the old files, by path.
        data_change: whether rows change; readers of the change feed skip other commits.
        history: the commit's metadata in the table's history.
    """
    now = int(time.time() * 1000)
    adds = [AddAction(file.name, file.size, {}, now, data_change, file.statistics) for file in new]
    removes = [RemoveAction(path, data_change, now, size, {}) for path, size in old.items()]

    def write(properties: CommitProperties) -> None:
        delta.create_write_transaction([*adds, *removes], "append", delta.schema(), commit_properties=properties)

    try:
        commit_once(delta.table_uri, delta.version() + 1, write, history)
    except (DeltaError, OSError):
        place = file_system_of(delta)
        if not is_object(delta.table_uri) and not _is_committed(place, delta.version() + 1, new):
            remove_files(place, new)
        raise


def _is_committed(place: FileSystem, version: int, new: Sequence[SortedFile]) -> bool:
    """Whether a version has the files: delta-rs may fail after a commit, as when it cannot write a checkpoint."""
    try:
        with place.open_input_stream(f"_delta_log/{version:020}.json") as log:
            commit = log.read()
    except FileNotFoundError:
        return False
    return any(file.name.encode() in commit for file in new)


def remove_files(place: FileSystem, files: Sequence[SortedFile]) -> None:
    for file in files:
        place.delete_file(file.name)
