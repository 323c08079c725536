"""Forms of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.dump import RECORDS, objects, run


@pytest.mark.parametrize(
    ("form", "keys", "values"),
    [
        ("text", ["\0\0\0\t", None, "NaN"], ['{"a": 1.50,\n "b": null}', "ä", None]),
        ("hex", ["00000009", None, "4e614e"], [RECORDS[0].value.hex() if RECORDS[0].value else "", "c3a4", None]),
        ("json", ["\0\0\0\t", None, "NaN"], [{"a": 1.5, "b": None}, "ä", None]),
        ("int", [9, None, "4e614e"], [int.from_bytes(b'{"a"'), "c3a4", None]),
        ("long", ["00000009", None, "4e614e"], [int.from_bytes(b'{"a": 1.'), "c3a4", None]),
    ],
)
def test_forms_of_keys_and_values(log: Path, form: str, keys: Sequence[object], values: Sequence[object]) -> None:
    shown = [each for each in objects("--keys", form, "--values", form, str(log)) if each["type"] == "record"]
    assert [each["key"] for each in shown] == keys
    assert [each["value"] for each in shown] == values


def test_json_within_lines(log: Path) -> None:
    """In one line, and each number as it was written."""
    assert ' payload: {"a": 1.50,  "b": null}' in run("--values", "json", str(log)).stdout


def test_header_values_are_shown(log: Path) -> None:
    first = objects("--values", "hex", str(log))[2]
    assert first["headers"] == [{"key": "h", "value": "ff"}, {"key": "i", "value": None}]
