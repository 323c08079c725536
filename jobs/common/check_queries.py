"""Questions in a local file, checked before Spark is started: a wrong row is named by its line.

`queries` says the same of every row, but after Spark has started, and of rows without a number. Here whole columns are
looked at, block by block, for rows that are not plainly right; those alone are looked at one by one.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from kidxlib.errors import UsageError, why
from kidxlib.names import PARTITION_MAX

COLUMNS: Final = ("topic", "partition", "offset", "timestamp")
EXPECTED_COLUMNS: Final = "topic, partition, and offset or timestamp"
JSON_SUFFIXES: Final = (".json", ".jsonl", ".ndjson")

_Row: TypeAlias = Mapping[str, str | None]
_Rows: TypeAlias = Iterator[tuple[int, _Row]]

#: What is plainly right, without a look at the calendar beyond the number of days of a month.
_PLAIN_TOPIC: Final = r"^[A-Za-z0-9._-]+$"
_PLAIN_PARTITION: Final = r"^ *[0-9]{1,9} *$"
_PLAIN_NUMBER: Final = r"^ *-?[0-9]{1,18} *$"
_DAY: Final = (
    "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"  # but for 29 February
)
_PLAIN_TIME: Final = (
    rf"^ *(000[2-9]|00[1-9][0-9]|0[1-9][0-9]{{2}}|[1-8][0-9]{{3}}|9[0-8][0-9]{{2}})-{_DAY}[T ]"
    r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9]) *$"
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
#: As Spark reads them, see `queries`.
_MOMENT: Final = re.compile(
    r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-]([0-9]{2}):[0-9]{2})"
)
_ZONE_HOURS_MAX: Final = 18
_A_TIME: Final = "ISO 8601 with a zone (2026-11-20T10:00Z) or milliseconds since the epoch"


def check_queries(path: str) -> None:
    """Look at the questions of a local `.csv`, `.json` or `.parquet` file. Other files, and what cannot be told here,
    are left to Spark.

    Raises:
        UsageError: a row is wrong, or the columns are not those of questions; nothing has been answered.
    """
    file = Path(path)
    if not file.is_file():
        return
    try:
        if file.suffix == ".parquet":
            _check_parquet(path)
        elif file.suffix == ".csv" or file.suffix in JSON_SUFFIXES:
            _check_text(path)
    except OSError as error:
        raise UsageError(f"--queries {why(error)}") from error


def _check_text(path: str) -> None:
    suspect = _first_suspect(Path(path))
    if suspect is None:
        return
    _check_rows(path, itertools.islice(_rows(path), suspect, None), "line")
    # It was none of those: there are quoted line breaks, or rows that are not as regular as the fast way wants them.
    if _check_rows(path, _rows(path), "line") == 0:
        raise UsageError(f"--queries {path}: no row in it")


def _first_suspect(file: Path) -> int | None:
    """The number of the first row that is wrong, or 0 where it has to be looked for; None where none is wrong."""
    count = 0
    try:
        for block in _blocks(file):
            number = _first_wrong(block)
            if number is not None:
                return count + number
            count += len(block)
    except pa.ArrowInvalid:
        return 0
    return None if count else 0


def _check_rows(path: str, rows: _Rows, unit: str) -> int:
    """How many they are, if none is wrong."""
    count = 0
    for number, row in rows:
        wrong = why_wrong(row)
        if wrong is not None:
            raise UsageError(f"--queries {path}: {unit} {number}: {wrong}; nothing was answered")
        count += 1
    return count


def _rows(path: str) -> _Rows:
    return _csv_rows(path) if path.endswith(".csv") else _json_rows(path)


# ---- one row ----


def why_wrong(row: _Row) -> str | None:
    """What is wrong with a question; None where nothing is. The words are those of `queries.read_queries`."""
    values = {name: (row.get(name) or "").strip(" ") for name in COLUMNS}
    topic, partition, offset, timestamp = (values[name] for name in COLUMNS)
    of = f"{topic}-{partition}, " if partition.isascii() and partition.isdigit() else ""
    if not topic:
        return "a row without a topic"
    if (number := _whole(partition)) is None or not 0 <= number <= PARTITION_MAX:
        return f"partition {partition or 'missing'}, expected a whole number from 0 on"
    if offset and timestamp:
        return f"{of}a row with an offset and a timestamp"
    if not offset and not timestamp:
        return f"{of}a row without an offset and a timestamp"
    if offset and _whole(offset) is None:
        return f"{of}offset {offset}, expected a whole number"
    if timestamp and _whole(timestamp) is None and not _is_moment(timestamp):
        return f"{of}timestamp {timestamp}, expected {_A_TIME}"
    return None


def _whole(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def _is_moment(text: str) -> bool:
    match = _MOMENT.fullmatch(text)
    if match is None or int(match[4] or 0) > _ZONE_HOURS_MAX:
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


# ---- whole columns ----


def _blocks(file: Path) -> Iterator[pa.RecordBatch]:
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


def _first_wrong(block: pa.RecordBatch) -> int | None:
    """The number of the first row of a block that is wrong; None where none is. Of a block that has not the columns it
    is the first.
    """
    present = [name for name in COLUMNS if name in block.schema.names]
    if not {"topic", "partition"} <= set(present) or not {"offset", "timestamp"} & set(present):
        return 0
    texts = {name: _text(block.column(name)) for name in present}
    empty = pa.nulls(len(block), pa.string())
    offset, timestamp = texts.get("offset", empty), texts.get("timestamp", empty)
    plain = [
        _matches(texts["topic"], _PLAIN_TOPIC),
        _matches(texts["partition"], _PLAIN_PARTITION),
        pc.xor(_is_filled(offset), _is_filled(timestamp)),
        pc.or_(pc.invert(_is_filled(offset)), _matches(offset, _PLAIN_NUMBER)),
        pc.or_(
            pc.invert(_is_filled(timestamp)),
            pc.or_(_matches(timestamp, _PLAIN_NUMBER), _matches(timestamp, _PLAIN_TIME)),
        ),
    ]
    is_plain = plain[0]
    for each in plain[1:]:
        is_plain = pc.and_(is_plain, each)
    odd = pc.indices_nonzero(pc.invert(is_plain))
    rows = pa.table({name: text.take(odd) for name, text in texts.items()}).to_pylist()
    return next((number for number, row in zip(odd.to_pylist(), rows, strict=True) if why_wrong(row) is not None), None)


def _text(column: pa.Array[Any]) -> pa.Array[Any]:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _matches(text: pa.Array[Any], pattern: str) -> pa.Array[Any]:
    return pc.fill_null(pc.match_substring_regex(text, pattern), False)  # type: ignore[arg-type] # its stubs know no scalars


def _is_filled(text: pa.Array[Any]) -> pa.Array[Any]:
    return _matches(text, "[^ ]")


# ---- files ----


def _check_columns(path: str, names: list[str]) -> None:
    if not {"topic", "partition"} <= set(names) or not {"offset", "timestamp"} & set(names):
        raise UsageError(f"--queries {path}: columns {', '.join(names) or 'none'}; expected {EXPECTED_COLUMNS}")


def _csv_rows(path: str) -> _Rows:
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as opened:
        reader = csv.reader(opened)
        names: list[str] | None = None
        try:
            for fields in reader:
                if not any(field.strip() for field in fields) and len(fields) <= 1:
                    continue  # a line of spaces, as Spark takes it
                if names is None:
                    names = fields
                    _check_columns(path, names)
                else:
                    yield reader.line_num, dict(zip(names, fields, strict=False))
        except csv.Error as error:
            raise UsageError(f"--queries {path}: line {reader.line_num}: {error}") from error
        _check_columns(path, names or [])


def _json_rows(path: str) -> _Rows:
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


def _check_parquet(path: str) -> None:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(
            f"--queries {path}: {' '.join(str(error).split())}; expected a file called .csv, .json or .parquet, or a "
            "Delta table"
        ) from error
    with file, contextlib.suppress(pa.ArrowNotImplementedError):  # columns of a kind that only Spark makes text of
        _check_columns(path, file.schema_arrow.names)
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        before = 0
        for block in file.iter_batches(columns=columns):
            texts = _plain_types(block)
            number = _first_wrong(texts)
            if number is not None:
                [row] = texts.slice(number, 1).to_pylist()
                _check_rows(path, iter([(before + number + 1, row)]), "row")
            before += len(block)


def _plain_types(block: pa.RecordBatch) -> pa.RecordBatch:
    """All columns as text; a timestamp of Parquet's own as a number, as it cannot be wrong."""
    columns = {}
    for name in block.schema.names:
        column = block.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.cast(pa.string())
    return pa.RecordBatch.from_pydict(columns)
