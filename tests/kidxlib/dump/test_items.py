"""What is said of a file at the end of its dump, and the forms of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kidxlib.index.offset import OffsetIndex
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.dump import RECORDS, SEGMENT, objects, run
from tests.support.files import flip


def test_the_last_line_says_what_is_wrong(segment: Path) -> None:
    """How many, of what, and where the first is; in a line for each file, with --json too."""
    sound = run(str(segment))
    assert (sound.return_value, sound.stderr) == (ExitCode.OK, "")
    batches = [each["position"] for each in objects(str(segment)) if each["type"] == "batch"]
    data = bytearray(segment.read_bytes())
    for number in (9, 5):
        data[batches[number + 1] - 1] ^= 1
    segment.write_bytes(bytes(data) + bytes(3))
    index = segment.with_suffix(".index")
    flip(index, 3, 8 + 3)
    first = OffsetIndex.open(str(index), SEGMENT[1]).entry(0).offset
    of_log = (
        f"{segment}: checksum does not match in 2 of {len(batches)} batches, the first at byte {batches[5]}; "
        f"3 bytes after the last whole batch, from byte {len(data)} on"
    )
    of_index = f"{index}: 2 entries whose batch ends with another offset, the first with offset {first}"
    for options in ((), ("--json",)):
        result = run(*options, str(segment), str(index), str(segment.with_suffix(".txnindex")))
        assert result.return_value == ExitCode.PROBLEMS_FOUND
        assert result.stderr.splitlines()[-2:] == [of_log, of_index]


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
