"""How keys and values of records are shown: as text, hex, JSON or a number."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Final

from kidxlib.java import text_of


class ValueFormat(enum.StrEnum):
    """How keys and values are shown."""

    TEXT = "text"  # UTF-8
    HEX = "hex"
    JSON = "json"  # as it is, if it is JSON, else text
    INT = "int"  # the number in the first 4 bytes, if there are as many, else hex
    LONG = "long"  # the number in the first 8 bytes, if there are as many, else hex


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """What is wanted of records.

    Attributes:
        keys, values: how they are shown; values of headers as values.
        metadata: whether to show what records say besides key and value.
    """

    keys: ValueFormat = ValueFormat.TEXT
    values: ValueFormat = ValueFormat.TEXT
    metadata: bool = True


def as_text(data: bytes, value_format: ValueFormat) -> str:
    """Bytes in a form; those that are none in it as text or hex."""
    match value_format:
        case ValueFormat.TEXT:
            return text_of(data)
        case ValueFormat.HEX:
            return data.hex()
        case ValueFormat.JSON:
            return text_of(data) if (found := _json_in(data)) is None else found
        case ValueFormat.INT | ValueFormat.LONG:
            return data.hex() if (number := _number_in(data, value_format)) is None else str(number)


def as_json_text(data: bytes | None, value_format: ValueFormat) -> str:
    """Bytes in a form, as JSON."""
    if data is None:
        return "null"
    if value_format is ValueFormat.JSON and (found := _json_in(data)) is not None:
        return found
    if value_format in _NUMBER_BYTES and (number := _number_in(data, value_format)) is not None:
        return str(number)
    return json.dumps(as_text(data, ValueFormat.TEXT if value_format is ValueFormat.JSON else value_format))


def _json_in(data: bytes) -> str | None:
    """The JSON that `data` is, in one line and else as it stands there, its numbers too; None where it is none."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return text.replace("\n", " ").replace("\r", " ")  # where JSON has these, it has them between its parts


def _reject_constant(constant: str) -> None:
    raise ValueError(constant)


_NUMBER_BYTES: Final = {ValueFormat.INT: 4, ValueFormat.LONG: 8}


def _number_in(data: bytes, value_format: ValueFormat) -> int | None:
    size = _NUMBER_BYTES[value_format]
    return int.from_bytes(data[:size], signed=True) if len(data) >= size else None
