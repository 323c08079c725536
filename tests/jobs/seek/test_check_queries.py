"""Questions in a file are checked before Spark is started: the first wrong row by its line; no right row is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.common.seek.check_queries import check_queries
from jobs.seek import seek
from kidxlib.errors import UsageError
from tests.support.spark.jobs import run_here

_HEADER = "topic,partition,offset,timestamp"
_RIGHT = [
    "a,0,1,",
    "a.b-c_d,2147483647,-9223372036854775808,",
    "a,0,,1795224740485",
    "a,0,,2026-11-21T01:32:20.485Z",
    "a,0,,2024-02-29 10:00+01:00",
    "a,0,,0001-01-01T00:00Z",
    " a , 0 , , -1 ",
]
_WRONG = {
    ",0,1,": "a row without a topic",
    "a,x,1,": "partition x, expected a whole number from 0 on",
    "a,-1,1,": "partition -1, expected a whole number from 0 on",
    "a,2147483648,1,": "partition 2147483648, expected",
    "a,,1,": "partition missing, expected",
    "a,0,1,2": "a-0, a row with an offset and a timestamp",
    "a,0,,": "a-0, a row without an offset and a timestamp",
    "a,0,ten,": "a-0, offset ten, expected a whole number",
    "a,0,9223372036854775808,": "offset 9223372036854775808, expected",
    "a,0,,2026-11-20T10:00": "a-0, timestamp 2026-11-20T10:00, expected ISO 8601 with a zone",
    "a,0,,2026-02-29T10:00Z": "timestamp 2026-02-29T10:00Z, expected",
    "a,0,,0000-01-01T00:00Z": "timestamp 0000-01-01T00:00Z, expected",
    "a,0,,2026-11-20T10:00+19:00": "timestamp 2026-11-20T10:00+19:00, expected",
}


def _wrong(path: Path) -> str | None:
    try:
        check_queries(str(path))
    except UsageError as error:
        line = str(error)
        assert line.startswith(f"--queries {path}: ") and "\n" not in line, line
        return line.removeprefix(f"--queries {path}: ")
    return None


def _csv(path: Path, rows: Sequence[str]) -> Path:
    path.write_text("\n".join([_HEADER, *rows]) + "\n")
    return path


def _objects(rows: Sequence[str]) -> list[dict[str, str | None]]:
    names = _HEADER.split(",")
    return [dict(zip(names, (value or None for value in row.split(",")), strict=True)) for row in rows]


def _json(path: Path, rows: Sequence[str]) -> Path:
    objects = [{name: value for name, value in each.items() if value is not None} for each in _objects(rows)]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    return path


def _parquet(path: Path, rows: Sequence[str]) -> Path:
    schema = pa.schema([(name, pa.string()) for name in _HEADER.split(",")])
    pq.write_table(pa.Table.from_pylist(_objects(rows), schema), path)
    return path


_KINDS: dict[str, tuple[Any, str]] = {
    "questions.csv": (_csv, "line 1003"),
    "questions.json": (_json, "line 1002"),
    "questions.parquet": (_parquet, "row 1002"),
}


@pytest.mark.parametrize("name", _KINDS)
def test_the_first_wrong_row_is_named(name: str, tmp_path: Path) -> None:
    """By its line, in a file of a thousand right ones before it and some wrong ones after it."""
    write, place = _KINDS[name]
    right = [_RIGHT[number % len(_RIGHT)] for number in range(1001)]
    assert _wrong(write(tmp_path / name, right)) is None
    for row, message in _WRONG.items():
        found = _wrong(write(tmp_path / name, [*right, row, *right, *_WRONG]))
        assert found is not None and found.startswith(f"{place}: ") and message in found, (row, found)
        assert found.endswith("; nothing was answered")


def test_whatever_spark_reads_is_not_refused(tmp_path: Path) -> None:
    """Rows that lack columns, or have more; lines of spaces; a byte order mark; numbers in JSON, now and then as text;
    timestamps of Parquet's own; what is not local.
    """
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f'{_HEADER}\na,0,1\n   \n\na,0,1,,5\n"a","0","1",\n'.encode())
    assert _wrong(path) is None
    path = tmp_path / "a.json"
    path.write_text(
        '{"topic": "a", "partition": 0, "offset": 1}\n\n{"topic": "a", "partition": "0", "timestamp": -1}\n'
    )
    assert _wrong(path) is None
    path = tmp_path / "a.parquet"
    moments = pa.array([0, 10**15], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"topic": ["a", "b"], "partition": [0, 1], "timestamp": moments}), path)
    assert _wrong(path) is None
    for elsewhere in (tmp_path, tmp_path / "nothing.csv", Path("s3a:/bucket/a.csv"), tmp_path / "a-table"):
        check_queries(str(elsewhere))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "topic,offset\na,1\n", "columns topic, offset; expected topic, partition, and offset or timestamp"),
        ("a.csv", "", "columns none; expected topic"),
        ("a.csv", f"{_HEADER}\n", "no row in it"),
        ("a.csv", f"{_HEADER}\na,0,1,\nb,0,{'x' * 200_000},\n", "line 3: field larger than field limit"),
        ("a.json", "no json\n", "line 1: no JSON object; expected topic, partition, and offset or timestamp"),
        ("a.json", '{"topic": "a", "partition": 0, "offset": 1}\n[1]\n', "line 2: no JSON object"),
        ("a.json", '{"topic": "a", "partition": 0, "offset": 1.5}\n', "line 1: a-0, offset 1.5, expected"),
        ("a.json", "\n", "no row in it"),
        ("a.parquet", "no parquet", "expected a file called .csv, .json or .parquet, or a Delta table"),
    ],
)
def test_a_file_that_is_no_file_of_questions(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert message in (_wrong(path) or "")


def test_the_job_says_so_before_spark_is_started(tmp_path: Path) -> None:
    path = _csv(tmp_path / "a.csv", ["a,0,1,", "a,x,1,"])
    ended = run_here(seek, "--catalog", tmp_path / "none", "--queries", path, "--output", tmp_path / "b.csv")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: --queries {path}: line 3: partition x, expected a whole number from 0 on; nothing was answered\n"
    )
