"""A local file of questions, read without Spark: row by row, or in blocks."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from jobs.common.seek.row_check import Row
from kidxlib.errors import UsageError

EXPECTED_COLUMNS: Final = "topic, partition, and offset or timestamp"
JSON_SUFFIXES: Final = (".json", ".jsonl", ".ndjson")
Rows: TypeAlias = Iterator[tuple[int, Row]]


def read_rows(path: str) -> Rows:
    return _csv_rows(path) if path.endswith(".csv") else _json_rows(path)


def read_blocks(file: Path) -> Iterator[pa.RecordBatch]:
    if file.suffix != ".csv":
        with pa_json.open_json(file) as reader:
            yield from reader
        return
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        names = next(csv.reader([opened.readline()]), [])
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    with pa_csv.open_csv(file, convert_options=convert) as reader:
        yield from reader


def ensure_columns(path: str, names: list[str]) -> None:
    if not {"topic", "partition"} <= set(names) or not {"offset", "timestamp"} & set(names):
        raise UsageError(f"--queries {path}: columns {', '.join(names) or 'none'}; expected {EXPECTED_COLUMNS}")


def _csv_rows(path: str) -> Rows:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as opened:
        reader = csv.reader(opened)
        names: list[str] | None = None
        try:
            for fields in reader:
                if not any(field.strip() for field in fields) and len(fields) <= 1:
                    continue  # a line of spaces, as Spark takes it
                if names is None:
                    names = fields
                    ensure_columns(path, names)
                else:
                    yield reader.line_num, dict(zip(names, fields, strict=False))
        except csv.Error as error:
            raise UsageError(f"--queries {path}: line {reader.line_num}: {error}") from error
        ensure_columns(path, names or [])


def _json_rows(path: str) -> Rows:
    with open(path, encoding="utf-8-sig", errors="replace") as opened:
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_int=str, parse_float=str)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UsageError(f"--queries {path}: line {number}: no JSON object; expected {EXPECTED_COLUMNS}")
            yield number, {name: None if value is None else str(value) for name, value in row.items()}


def as_text(block: pa.RecordBatch) -> pa.RecordBatch:
    """All columns as text; a timestamp of Parquet's own as a number, as it cannot be wrong."""
    columns = {}
    for name in block.schema.names:
        column = block.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.cast(pa.string())
    return pa.RecordBatch.from_pydict(columns)
