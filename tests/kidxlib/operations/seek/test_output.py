"""Answers are written where and as what their name says, as a whole or not at all; lines are what Python's own modules
write of the same rows.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from kidxlib.errors import KidxError, UsageError
from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek.answer_work import RESULT
from kidxlib.operations.seek.output import CSV_HEAD, WRITTEN, csv_lines, ensure_new, json_lines, write_answers

_NAMES = ("answers.csv", "answers.json", "answers.parquet", "answers")

_TEXTS = ["a", 'of "two"', "a,b", "line\nbreak", "back\\slash", "é\t", "\x01", None]


def _batches() -> Iterator[pa.RecordBatch]:
    for start in (0, 3):
        yield pa.RecordBatch.from_pylist([_answer(number) for number in range(start, start + 3)], RESULT)


def _answer(number: int) -> dict[str, Any]:
    found = number % 2 == 0
    filled = {"position": 10 * number, "timestamp": 1_795_224_740_485} if found else {"note": "above, and beyond"}
    asked = {"topic": "a", "partition": 0, "query": "offset", "target": number, "source": "s"}
    return {**asked, "found": found, "answered": True, "bytes_read": 5, "file_error": False, **filled}


def _read(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".csv":
            options = pa_csv.ConvertOptions(
                column_types={field.name: field.type for field in WRITTEN}, strings_can_be_null=True
            )
            return pa_csv.read_csv(path, convert_options=options).to_pylist()
        case ".json":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".parquet":
            return pq.read_table(path).to_pylist()
        case _:
            rows = QueryBuilder().register("rows", DeltaTable(path)).execute("SELECT * FROM rows ORDER BY target")
            return pa.table(rows.read_all()).to_pylist()


@pytest.mark.parametrize("name", _NAMES)
def test_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / name
    with pytest.raises(UsageError, match=r"no directory .*/new; expected one that is there"):
        ensure_new(str(path))
    path.parent.mkdir()
    ensure_new(str(path))
    write_answers(_batches(), str(path))
    rows = [{column: _answer(number).get(column) for column in RESULT_COLUMNS} for number in range(6)]
    assert _read(path) == rows
    assert [each.name for each in path.parent.iterdir()] == [name]
    with pytest.raises(UsageError, match="it is there already; expected a new name"):
        ensure_new(str(path))


@pytest.mark.parametrize("name", _NAMES[:3])
def test_nothing_stays_of_what_was_not_written_to_its_end(name: str, tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield next(_batches())
        raise KidxError("no more")

    with pytest.raises(KidxError, match="no more"):
        write_answers(failing(), str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", _NAMES[:3])
def test_what_came_meanwhile_is_not_replaced(name: str, tmp_path: Path) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from _batches()
        (tmp_path / name).write_text("somebody else's")

    with pytest.raises(UsageError, match="it is there already"):
        write_answers(overtaken(), str(tmp_path / name))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(name, "somebody else's")]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """Said before anything is answered; and where it comes to that meanwhile."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        ensure_new(str(tmp_path / "file" / "answers.csv"))
    assert str(refused.value).endswith(
        f"{tmp_path}/file is no directory that this user can write in; name another place"
    )
    with pytest.raises(KidxError) as raised:
        write_answers(_batches(), str(tmp_path / "file" / "answers.csv"))
    assert str(raised.value).startswith(f"--output {tmp_path}/file/answers.csv: cannot be written: ")


def _answers(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def value(field: pa.Field[Any]) -> Any:
        if pa.types.is_string(field.type):
            return rng.choice(_TEXTS)
        if pa.types.is_boolean(field.type):
            return rng.random() < 0.5
        bits = field.type.bit_width
        return rng.choice([None, 0, -1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1])

    return [{field.name: value(field) for field in RESULT} for _ in range(count)]


def test_lines_of_json_are_what_json_writes(rng: random.Random) -> None:
    answers = _answers(rng, 300)
    lines = json_lines(pa.RecordBatch.from_pylist(answers, RESULT)).decode()
    expected = [{name: answer[name] for name in RESULT_COLUMNS} for answer in answers]
    assert lines == "".join(f"{json.dumps(each, ensure_ascii=False, separators=(',', ':'))}\n" for each in expected)


def test_lines_of_csv_are_read_as_they_were_written(rng: random.Random) -> None:
    answers = _answers(rng, 300)
    text = (CSV_HEAD + csv_lines(pa.RecordBatch.from_pylist(answers, RESULT))).decode()
    words = {None: "", True: "true", False: "false"}
    expected = [
        {name: words[value] if value is None or isinstance(value, bool) else str(value) for name, value in row.items()}
        for row in ({name: answer[name] for name in RESULT_COLUMNS} for answer in answers)
    ]
    assert list(csv.DictReader(io.StringIO(text, newline=""))) == expected


def test_no_answers_are_no_lines() -> None:
    none = pa.RecordBatch.from_pylist([], RESULT)
    assert (csv_lines(none), json_lines(none)) == (b"", b"")


def test_a_part_of_a_batch_is_its_own_lines(rng: random.Random) -> None:
    answers = _answers(rng, 10)
    part = pa.RecordBatch.from_pylist(answers, RESULT).slice(3, 4)
    assert json_lines(part) == json_lines(pa.RecordBatch.from_pylist(answers[3:7], RESULT))
