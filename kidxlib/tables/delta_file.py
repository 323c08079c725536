"""Delta tables of users, outside a catalog: read and written through delta-rs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from kidxlib.errors import CatalogError, NoDeltaTableError
from kidxlib.storage.store.delta import storage_options
from kidxlib.tables.delta_commits import commit_once
from kidxlib.tables.delta_tables import one_line


def read_delta(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a Delta table, in any order; at least one batch, if it is empty."""
    try:
        rows = (
            QueryBuilder()
            .register("rows", DeltaTable(path, storage_options=storage_options(path)))
            .execute("SELECT * FROM rows")
        )
        reader = pa.RecordBatchReader.from_stream(rows)
        # Arrow has fewer functions for views of strings than for strings.
        schema = pa.schema([_plain(field) for field in reader.schema])
        yield pa.RecordBatch.from_pylist([], schema)  # callers look at its columns, even without rows
        yield from (batch.cast(schema) for batch in reader)
    except TableNotFoundError as error:
        raise NoDeltaTableError(f"{path}: no Delta table there") from error
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise CatalogError(f"{path}: cannot be read: {one_line(error)}") from error


def write_delta(path: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Make a Delta table with rows, in one commit."""
    reader = pa.RecordBatchReader.from_batches(schema, iter(rows))
    try:
        commit_once(
            path,
            0,
            lambda properties: write_deltalake(
                path, reader, mode="error", storage_options=storage_options(path), commit_properties=properties
            ),
        )
    except (DeltaError, OSError) as error:
        raise CatalogError(f"{path}: cannot be written: {one_line(error)}") from error


def _plain(field: pa.Field[pa.DataType]) -> pa.Field[pa.DataType]:
    return field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
