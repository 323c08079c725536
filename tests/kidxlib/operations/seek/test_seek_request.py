"""Options of seeks: what cannot be is said in one line, before anything is read."""

from __future__ import annotations

from typing import Final

import pytest

from kidxlib.commands.seek import seek as kidx_seek
from tests.support.spark.jobs import run_here

_QUESTION: Final = ("--topic", "compacted", "--partition", "0", "--offset", "1")
_WRONG_OPTIONS: Final = {
    (): "not given: --topic, --partition, --offset or --timestamp; give --topic, --partition and one of ",
    _QUESTION[:4]: "not given: --offset or --timestamp; give --topic, --partition and one of",
    _QUESTION[2:]: "not given: --topic; give --topic, --partition and one of",
    (*_QUESTION, "--timestamp", "5"): "--offset and --timestamp: give one of them, not both",
    (*_QUESTION[:5], "ten"): "ten: expected a whole number from ",
    (*_QUESTION[:4], "--timestamp", "2026-11-20T10:00"): "has no time zone; add Z for UTC",
    (*_QUESTION, "--queries", "a.csv"): "--queries: the file has the questions; give none beside it",
    ("--queries", "a.csv"): "--queries: give --output FILE for the answers",
    (*_QUESTION, "--output", "\udcff"): "its name has bytes that are not UTF-8",
    (*_QUESTION, "--output", "a.txt"): "--output a.txt: expected a name that ends in .csv, .json or .parquet",
    (*_QUESTION, "--consumer-group-csv", "/"): "--consumer-group-csv",
    (*_QUESTION, "--consumer-group-csv", "/nowhere/a.csv"): "no directory /nowhere",
}


@pytest.mark.parametrize(("arguments", "message"), list(_WRONG_OPTIONS.items()))
def test_options_that_cannot_be_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    ended = run_here(kidx_seek, "--catalog", "nowhere", *arguments)
    assert ended.code == 2, ended
    assert ended.out == "" and ended.err.startswith("error: ") and message in ended.err, ended.err
    assert ended.err.count("\n") == 1, ended.err


@pytest.mark.parametrize(("timestamp", "is_told"), [("1760000000", True), ("1760000000000", False), ("0", False)])
def test_seconds_in_place_of_milliseconds_are_told(timestamp: str, is_told: bool) -> None:
    ended = run_here(kidx_seek, "--catalog", "nowhere", *_QUESTION[:4], "--timestamp", timestamp)
    warning = (
        f"warning: --timestamp {timestamp}: 1970-01-21T08:53:20.000Z, as it is in milliseconds; if these are seconds"
    )
    assert (warning in ended.err) == is_told, ended.err
