"""Answers as lines of text, made a column at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.lookup.answers import RESULT_COLUMNS

CSV_HEAD: Final = ",".join(RESULT_COLUMNS).encode() + b"\n"
#: What a field of CSV is put into quotes for.
_SPECIAL: Final = ('"', ",", "\n", "\r")


def csv_lines(answers: pa.RecordBatch) -> bytes:
    """A line for each answer, with the columns of a result; nothing where a value is null."""
    columns = [_text(answers.column(name), _csv_field) for name in RESULT_COLUMNS]
    return _joined(columns, ",", "", "\n")


def json_lines(answers: pa.RecordBatch) -> bytes:
    """A JSON object a line, with the columns of a result."""
    columns: list[Values] = []
    for number, name in enumerate(RESULT_COLUMNS):
        text: Values = _text(answers.column(name), _json_text).fill_null("null")
        columns.append(pc.binary_join_element_wise("{" if number == 0 else "", f'"{name}":', text, ""))
    return _joined(columns, ",", "null", "}\n")


def _text(column: Values, form: Callable[[str], str]) -> Values:
    """A column as text. Of texts each is formed once, however many rows share it."""
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    words = column.dictionary_encode()
    formed = pa.array(list(map(form, words.dictionary.to_pylist())), pa.string())
    return formed.take(words.indices)


def _csv_field(text: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(each in text for each in _SPECIAL) else text


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _joined(columns: list[Values], between: str, null: str, end: str) -> bytes:
    options = pc.JoinOptions("replace", null)
    last: Values = pc.call_function("binary_join_element_wise", [columns[-1], end, ""], options)
    lines: Values = pc.call_function("binary_join_element_wise", [*columns[:-1], last, between], options)
    _, ends, text = lines.buffers()
    return b"" if text is None else text.to_pybytes()[: np.frombuffer(ends, np.int32)[len(lines)]]
