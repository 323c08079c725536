"""The formats of an export: how a part of it is written, and how parts become what was asked for."""

from __future__ import annotations

import enum
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.errors import UsageError
from kidxlib.operations.export.json_lines import json_lines

#: Rows of so many bytes make a row group of Parquet, about; it is in memory until it is written.
_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
_COPIED_BYTES: Final = 4 * 1024 * 1024


class ExportFormat(enum.Enum):
    """A format, by the end of a file's name."""

    PARQUET = ".parquet"
    ARROW = ".arrow"
    JSON_LINES = ".jsonl"

    @classmethod
    def of(cls, path: str) -> ExportFormat:
        """
        Raises:
            UsageError: the name ends otherwise.
        """
        for found in cls:
            if path.rstrip("/").endswith(found.value):
                return found
        raise UsageError(f"--output {path}: expected a name that ends in {', '.join(each.value for each in cls)}")


def write_part(form: ExportFormat, path: Path, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> int:
    """Write rows into a new file, and have the disk keep it.

    Returns:
        How many rows there were.
    """
    count = 0
    with path.open("wb") as file:
        if form is ExportFormat.PARQUET:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for table in _row_groups(rows):
                    writer.write_table(table)
                    count += table.num_rows
        elif form is ExportFormat.ARROW:
            with pa.ipc.new_stream(file, schema) as stream:
                for batch in rows:
                    stream.write_batch(batch)
                    count += batch.num_rows
        else:
            for batch in rows:
                file.write(json_lines(batch))
                count += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    return count


def _row_groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in rows:
        held.append(batch)
        if sum(each.nbytes for each in held) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def assemble(form: ExportFormat, parts: Iterable[Path], schema: pa.Schema, whole: Path) -> None:
    """Make one file of parts, and have the disk keep it; Parquet has none: its parts are files of a directory."""
    with whole.open("wb") as file:
        if form is ExportFormat.ARROW:
            with pa.ipc.new_file(file, schema) as writer:
                for part in parts:
                    with pa.memory_map(str(part)) as mapped, pa.ipc.open_stream(mapped) as stream:
                        for batch in stream:
                            writer.write_batch(batch)
        else:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, file, _COPIED_BYTES)
        file.flush()
        os.fsync(file.fileno())
