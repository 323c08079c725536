"""Answers to a few seeks, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kidxlib.log.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kidxlib.lookup.answers import RESULT_COLUMNS, TIMESTAMP
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.text.times import show_ms, show_time


def show_answers(
    answers: Sequence[Mapping[str, Any]],
    as_json: bool,
    asked: str | None = None,
    *,
    is_wide: bool = False,
    left_out: Sequence[Mapping[str, Any]] = (),
) -> ExitCode:
    """Print answers, which have `RESULT_COLUMNS` and `file_error`, on standard output; what the command ends with.

    Args:
        asked: the time as the user typed it; None where an offset was asked for.
        is_wide: it was asked of many partitions: each has a line.
        left_out: partitions that it means and that nobody asked, for programs.
    """
    if as_json:
        shown = [{column: answer[column] for column in RESULT_COLUMNS} for answer in answers]
        print_json({"answers": shown, "left_out": list(left_out)})
    elif is_wide:
        for answer in answers:
            print_line(_line(answer, with_source=len({each["source"] for each in answers}) > 1))
    else:
        for answer in answers:
            _print(answer, asked)
    return ExitCode.PROBLEMS_FOUND if any(answer["file_error"] for answer in answers) else ExitCode.OK


#: What is said of an answer, by whether something was found, and whether that is certain.
_OUTCOMES: Final = {
    (True, True): "found",
    (False, True): "not found",
    (True, False): "not certain",
    (False, False): "not answered",
}
#: What stands for a special target of a time.
_TARGETS: Final = {
    LATEST: "the log end",
    EARLIEST: "the log start",
    MAX_TIMESTAMP: "the largest timestamp",
    EARLIEST_LOCAL: "the log start",
    LATEST_TIERED: "what is tiered",
    EARLIEST_PENDING_UPLOAD: "what is to be tiered",
}


def _line(answer: Mapping[str, Any], *, with_source: bool) -> str:
    """Partition, offset and timestamp, as far as there are some, and the note."""
    offset = _OUTCOMES[answer["found"], answer["answered"]] if answer["offset"] is None else answer["offset"]
    time = show_time(answer["timestamp"]) if answer["timestamp"] is not None and answer["timestamp"] >= 0 else ""
    source = f"{answer['source']}  " if with_source else ""
    line = f"{source}{answer['topic']}-{answer['partition']}  {offset}  {time}".rstrip()
    return line if answer["note"] is None else f"{line}  ({answer['note']})"


def _print(answer: Mapping[str, Any], asked: str | None) -> None:
    outcome = _OUTCOMES[answer["found"], answer["answered"]]
    target = _target(answer["target"], asked) if answer["query"] == TIMESTAMP else answer["target"]
    print_line(f"{answer['topic']}-{answer['partition']}, {answer['query']} {target}: {outcome}")
    for column in RESULT_COLUMNS[RESULT_COLUMNS.index("answered") + 1 :]:
        value = answer[column]
        if value is not None:
            shown = f"{value}  ({show_time(value)})" if column == "timestamp" and value >= 0 else value
            print_line(f"  {column:<20} {shown}")


def _target(target: int, asked: str | None) -> str:
    if asked is not None and asked != str(target):  # as ISO 8601
        return asked
    return f"{target} ({_TARGETS[target]})" if target in _TARGETS else show_ms(target)
