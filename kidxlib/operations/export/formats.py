"""The formats of an export: how a part is written, and how parts become the output.

In lines of JSON, a key or a value that is UTF-8 is a text. Any other is null under its name, and in base64 under the
name with `_base64` after it: so each name has values of one kind.
"""

from __future__ import annotations

import enum
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kidxlib.errors import UsageError
from kidxlib.operations.export.json_kernel import measure_texts, write_texts

#: Rows of about so many bytes make a row group of Parquet, which is in memory until it is written.
_ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
_COPIED_BYTES: Final = 4 * 1024 * 1024

_Values: TypeAlias = Any  # pyarrow-stubs has other types for each function

#: The first and the last moment that have a date of four digits, in ms since the epoch.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999


class ExportFormat(enum.Enum):
    """A format, by the end of a file's name."""

    PARQUET = ".parquet"
    ARROW = ".arrow"
    JSON_LINES = ".jsonl"

    @classmethod
    def of_path(cls, path: str) -> ExportFormat:
        for form in cls:
            if path.rstrip("/").endswith(form.value):
                return form
        raise UsageError(f"--output {path}: expected a name that ends in {', '.join(form.value for form in cls)}")


def json_lines(rows: pa.RecordBatch) -> bytes:
    """An object a line, with the columns of the rows, which are some of `CONSUMED`."""
    fields = [_field(name, rows.column(name)) for name in rows.schema.names]
    lines = _joined("{", fields[0], *(part for field in fields[1:] for part in (",", field)), "}\n")
    _, ends, text = lines.buffers()
    return b"" if text is None else text.to_pybytes()[: np.frombuffer(ends, np.int32)[len(lines)]]


def _field(name: str, column: _Values) -> _Values:
    """A column as members of JSON objects."""
    if pa.types.is_binary(column.type):
        values = _bytes(name, column)
    elif pa.types.is_string(column.type):
        values = _literals(column)[0]
    elif pa.types.is_timestamp(column.type):
        values = _times(column)
    elif pa.types.is_list(column.type):
        values = _headers(column)
    else:
        values = column.cast(pa.string())
    return _joined(f'"{name}":', values)


def _joined(*parts: _Values) -> _Values:
    return pc.binary_join_element_wise(*parts, "")


def _bytes(name: str, column: _Values) -> _Values:
    literals, is_text = _literals(column)
    others = _joined(f'null,"{name}_base64":', literals)
    return pc.if_else(column.is_null(), "null", pc.if_else(is_text, literals, others))


def _literals(column: _Values) -> tuple[_Values, _Values]:
    """Values as texts of JSON, in base64 where they are no UTF-8; and flags of those that are UTF-8."""
    rows = len(column)
    _, ends, data = column.buffers()
    positions = (
        np.frombuffer(ends, np.int32)[column.offset : column.offset + rows + 1] if rows else np.zeros(1, np.int32)
    )
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    content.setflags(write=False)
    is_text, sizes = np.empty(rows, np.bool_), np.empty(rows, np.int64)
    measure_texts(content, positions, is_text, sizes)
    ends_of_texts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    out = np.empty(int(sizes.sum()), np.uint8)
    write_texts(content, positions, is_text, out)
    buffers = [None, pa.py_buffer(ends_of_texts.data), pa.py_buffer(out.data)]
    flags = pa.py_buffer(np.packbits(is_text, bitorder="little").data)
    return (
        pa.Array.from_buffers(pa.string(), rows, buffers),
        pa.Array.from_buffers(pa.bool_(), rows, [None, flags]),
    )


def _times(column: _Values) -> _Values:
    """Moments in ISO 8601, UTC; the number of ms since the epoch where the year has not four digits."""
    ms = column.cast(pa.int64())
    has_date = pc.and_(pc.greater_equal(ms, pa.scalar(_FIRST_MS)), pc.less_equal(ms, pa.scalar(_LAST_MS)))
    moments = pc.if_else(has_date, ms, 0).cast(column.type).cast(pa.string())
    return pc.if_else(has_date, _joined('"', pc.replace_substring(moments, " ", "T"), '"'), ms.cast(pa.string()))


def _headers(column: _Values) -> _Values:
    inside = column.flatten()
    objects = _joined(
        '{"key":', _literals(inside.field("key"))[0], ',"value":', _bytes("value", inside.field("value")), "}"
    )
    ends = pc.subtract(column.offsets, column.offsets[0]).cast(pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, objects), ",")
    return pc.if_else(column.is_null(), "null", _joined("[", joined, "]"))


def write_part(form: ExportFormat, path: Path, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> int:
    """Write rows into a new file that is on disk at the end, and return their number."""
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
    batches: list[pa.RecordBatch] = []
    for batch in rows:
        batches.append(batch)
        if sum(batch.nbytes for batch in batches) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches)


def assemble(form: ExportFormat, parts: Iterable[Path], schema: pa.Schema, whole: Path) -> None:
    """Make one file of parts, which is on disk at the end. Not for Parquet, whose parts are files of a directory."""
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
