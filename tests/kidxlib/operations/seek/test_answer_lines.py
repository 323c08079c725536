"""Answers as lines: what Python's own modules write of the same rows."""

from __future__ import annotations

import csv
import io
import json
import random
from typing import Any

import pyarrow as pa

from kidxlib.lookup.answers import RESULT_COLUMNS
from kidxlib.operations.seek.answer_lines import CSV_HEAD, csv_lines, json_lines
from kidxlib.operations.seek.answer_work import RESULT

_TEXTS = ["a", 'of "two"', "a,b", "line\nbreak", "back\\slash", "é\t", "\x01", None]


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
