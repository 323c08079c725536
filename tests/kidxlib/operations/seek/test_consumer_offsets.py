"""Where consumers are to go on: the offset asked for, the record found, or the nearer end of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kidxlib.errors import UsageError
from kidxlib.operations.seek.answer_work import RESULT
from kidxlib.operations.seek.catalog_rows import HELD
from kidxlib.operations.seek.consumer_offsets import ensure_unambiguous, write_consumer_offsets
from kidxlib.operations.seek.key_ranges import ASKED

_LOG = (100, 200)
#: What is asked of a log that starts at 100 and ends at 200, what is answered, and where consumers go on.
_ANSWERS: list[tuple[str, int, dict[str, Any], int | None]] = [
    ("offset", 150, {"found": True}, 150),
    ("offset", 150, {"found": False}, 150),
    ("offset", 5, {"found": False}, 100),
    ("offset", 500, {"found": False}, 200),
    ("timestamp", 9, {"found": True, "offset": 120}, 120),
    ("timestamp", 9, {"found": False}, 200),
    ("timestamp", 9, {"found": True, "offset": 120, "answered": False}, None),
]


def _answers(rows: list[tuple[str, int, dict[str, Any]]]) -> pa.Table:
    certain = {"answered": True, "bytes_read": 0, "file_error": False, "source": "s"}
    return pa.Table.from_pylist(
        [
            {"topic": "t", "partition": number, "query": query, "target": target, **certain, **answer}
            for number, (query, target, answer) in enumerate(rows)
        ],
        RESULT,
    )


def _held(*logs: tuple[int | None, int | None], source: str = "s", first: int | None = None) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "source": source,
                "topic": "t",
                "partition": number,
                "first_base_offset": first,
                "log_start_offset": start,
                "log_end_offset": end,
                "directory": "d",
            }
            for number, (start, end) in enumerate(logs)
        ],
        HELD,
    )


def test_offsets_are_those_that_kafkas_tool_would_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = _answers([row[:3] for row in _ANSWERS])
    write_consumer_offsets(tmp_path / "a.csv", answers, _held(*[_LOG] * len(_ANSWERS)))
    known = [(number, offset) for number, (*_, offset) in enumerate(_ANSWERS) if offset is not None]
    assert (tmp_path / "a.csv").read_text() == "".join(f"t,{number},{offset}\n" for number, offset in known)
    assert f"{tmp_path}/a.csv: without t-6, whose offsets are not known" in capsys.readouterr().err


def test_a_log_whose_ends_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It starts at 0 where no checkpoint says otherwise; without an end, and without a partition, nobody knows. Few are
    named.
    """
    missed: tuple[str, int, dict[str, Any]] = ("offset", -5, {"found": False})
    write_consumer_offsets(tmp_path / "a.csv", _answers([missed] * 9), _held((None, 200), *[(None, None)] * 7))
    assert (tmp_path / "a.csv").read_text() == "t,0,0\n"
    assert "without t-1, t-2, t-3, t-4, t-5 and 3 more, whose offsets" in capsys.readouterr().err


def test_a_log_without_a_checkpoint_of_its_start_begins_with_its_first_segment(tmp_path: Path) -> None:
    below: list[tuple[str, int, dict[str, Any]]] = [("offset", offset, {"found": False}) for offset in (5, -7)]
    write_consumer_offsets(tmp_path / "a.csv", _answers(below), _held((None, 200), (60, 200), first=50))
    assert (tmp_path / "a.csv").read_text() == "t,0,50\nt,1,60\n"


def test_one_offset_a_partition() -> None:
    """More questions than one, or more sources, are refused."""
    one = {"topic": "t", "partition": 0, "source": None, "queries": 1}
    asked = pa.Table.from_pylist([one, {**one, "partition": 1}], ASKED)
    ensure_unambiguous(asked, _held(_LOG, _LOG))
    for questions in ([{**one, "queries": 2}], [one, {**one, "source": "s"}]):
        with pytest.raises(UsageError, match="--consumer-group-csv: t-0 has 2 questions, expected one"):
            ensure_unambiguous(pa.Table.from_pylist(questions, ASKED), _held(_LOG))
    both = pa.concat_tables([_held(_LOG), _held(_LOG, source="r")])
    with pytest.raises(UsageError, match="--consumer-group-csv: t-0 is in s, r; pick one with --source"):
        ensure_unambiguous(asked, both)
