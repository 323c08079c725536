"""Files to dump, and the output of `kidx dump`."""

from __future__ import annotations

import json
from typing import Any, Final

from click.testing import CliRunner, Result

from kidxlib.commands.dump import dump
from kidxlib.records.reader import Header, Record

SEGMENT: Final = "txn-mixed-0", 84
RECORDS: Final = (
    Record(7, 1_000, b"\0\0\0\x09", b'{"a": 1.50,\n "b": null}', (Header("h", b"\xff"), Header("i", None))),
    Record(8, 1_001, None, b"\xc3\xa4"),
    Record(9, 1_002, b"NaN", None),
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(dump, arguments, standalone_mode=False)


def objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--json", *arguments).stdout.splitlines()]
