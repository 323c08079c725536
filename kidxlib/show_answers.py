"""Answers to a few seeks, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kidxlib.answers import RESULT_COLUMNS
from kidxlib.command import ExitCode
from kidxlib.console import print_json, print_line
from kidxlib.times import show_time


def show_answers(answers: Sequence[Mapping[str, Any]], as_json: bool) -> ExitCode:
    """Print answers, which have `RESULT_COLUMNS` and `trouble`, on standard output; what the command ends with."""
    if as_json:
        print_json({"answers": [{column: answer[column] for column in RESULT_COLUMNS} for answer in answers]})
    else:
        for answer in answers:
            _print(answer)
    return ExitCode.NOT_WELL if any(answer["trouble"] for answer in answers) else ExitCode.OK


def _print(answer: Mapping[str, Any]) -> None:
    found = "found" if answer["found"] else "not found"
    print_line(f"{answer['topic']}-{answer['partition']}, {answer['query']} {answer['target']}: {found}")
    for column in RESULT_COLUMNS[RESULT_COLUMNS.index("found") + 1 :]:
        value = answer[column]
        if value is not None:
            shown = f"{value}  ({show_time(value)})" if column == "timestamp" and value >= 0 else value
            print_line(f"  {column:<20} {shown}")
