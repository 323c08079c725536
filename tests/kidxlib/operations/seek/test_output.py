"""Answers are written where and as what their name says, as a whole or not at all."""

from __future__ import annotations

import json
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
from kidxlib.operations.seek.output import WRITTEN, ensure_new, write_answers

_NAMES = ("answers.csv", "answers.json", "answers.parquet", "answers")


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
