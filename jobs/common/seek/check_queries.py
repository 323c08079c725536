"""Questions in a local file, checked before Spark is started: a wrong row is named by its line.

`query_file` says the same of every row, but after Spark has started, and of rows without a number. Here whole columns
are looked at, block by block, for rows that are not plainly right; those alone are looked at one by one.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.common.seek.column_check import first_wrong
from jobs.common.seek.local_file import JSON_SUFFIXES, Rows, as_text, ensure_columns, read_blocks, read_rows
from jobs.common.seek.row_check import COLUMNS, why_wrong
from kidxlib.errors import UsageError, describe_error


def check_queries(path: str) -> None:
    """Look at the questions of a local `.csv`, `.json` or `.parquet` file. Other files, and what cannot be found out
    here, are left to Spark.

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
        raise UsageError(f"--queries {describe_error(error)}") from error


def _check_text(path: str) -> None:
    suspect = _first_suspect(Path(path))
    if suspect is None:
        return
    _check_rows(path, itertools.islice(read_rows(path), suspect, None), "line")
    # It was none of those: there are quoted line breaks, or rows that are not as regular as the fast way wants them.
    if _check_rows(path, read_rows(path), "line") == 0:
        raise UsageError(f"--queries {path}: no row in it")


def _first_suspect(file: Path) -> int | None:
    """The number of the first row that is wrong, or 0 where it has to be looked for; None where none is wrong."""
    count = 0
    try:
        for block in read_blocks(file):
            number = first_wrong(block)
            if number is not None:
                return count + number
            count += len(block)
    except pa.ArrowInvalid:
        return 0
    return None if count else 0


def _check_rows(path: str, rows: Rows, unit: str) -> int:
    """How many they are, if none is wrong."""
    count = 0
    for number, row in rows:
        wrong = why_wrong(row)
        if wrong is not None:
            raise UsageError(f"--queries {path}: {unit} {number}: {wrong}; nothing was answered")
        count += 1
    return count


def _check_parquet(path: str) -> None:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(
            f"--queries {path}: {' '.join(str(error).split())}; expected a file called .csv, .json or .parquet, or a "
            "Delta table"
        ) from error
    with file, contextlib.suppress(pa.ArrowNotImplementedError):  # columns of a kind that only Spark makes text of
        ensure_columns(path, file.schema_arrow.names)
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        before = 0
        for block in file.iter_batches(columns=columns):
            texts = as_text(block)
            number = first_wrong(texts)
            if number is not None:
                [row] = texts.slice(number, 1).to_pylist()
                _check_rows(path, iter([(before + number + 1, row)]), "row")
            before += len(block)
