"""Tables on terminals of several widths and where there is none: nothing of a table is ever shortened."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kidxlib.terminal.outcome import Cell, print_table
from tests.conftest import one_in
from tests.support.terminal import shown, without_controls

WIDTHS = (40, 80, 100, 160)
#: As of a build; the first holds text.
COLUMNS = ("topic", "segments", "bytes", "batches", "entries", "aborted", "written", "unchanged", "kept", "problems")
LONGEST_TOPIC = 249

topics = st.text("abcxyzABC019._-", min_size=1, max_size=30) | st.integers(31, LONGEST_TOPIC).map(lambda n: "t" * n)
numbers = st.just(0) | st.integers(0, 9_999) | st.integers(10**14, 10**15 - 1) | st.just("-")
row_lists = st.lists(
    st.tuples(topics, *(st.just(0) if column in ("aborted", "kept") else numbers for column in COLUMNS[1:])), max_size=8
)


def tokens(text: str) -> Counter[str]:
    """Words and numbers by how often they stand there."""
    return Counter(re.split(r"[\s│┃]+", without_controls(text)))


def assert_whole(written: str, rows: list[tuple[Cell, ...]]) -> None:
    """Every topic and every number stands there as often as it is in the rows; of columns without any, the name."""
    found = tokens(written)
    for row in rows:
        assert row[0] in found, written
    wanted = Counter(f"{cell:,}" for row in rows for cell in row[1:] if isinstance(cell, int) and cell)
    assert {number: found[number] for number in wanted} == wanted, written
    for column in COLUMNS:
        # On several lines a name of two words is in pieces.
        assert not rows or all(word.rstrip(":,") in written for word in column.split()), (column, written)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_of_a_table_is_shortened_on_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is a table no line of it is wider than the terminal; else each row is a block of lines."""

    @settings(one_in(25), phases=(Phase.explicit, Phase.generate))
    @given(rows=row_lists)
    def holds(rows: list[tuple[Cell, ...]]) -> None:
        written = shown(width, lambda: print_table("a title", COLUMNS, rows, text_columns=1), monkeypatch)
        assert_whole(written, rows)
        lines = without_controls(written).splitlines()
        if rows and not any(line.startswith("topic: ") for line in lines):
            assert max(len(line) for line in lines if not line.startswith("nothing in any row: ")) <= width, written
        else:
            assert [line for line in lines if line.startswith("topic: ")] == [f"topic: {row[0]}" for row in rows]

    holds()


@given(rows=row_lists)
def test_nothing_of_a_table_is_shortened_where_there_is_no_terminal(rows: list[tuple[Cell, ...]]) -> None:
    """A row is one line, however long, with all columns."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_table("a title", COLUMNS, rows, text_columns=1)
    lines = [line for line in out.getvalue().splitlines() if line.startswith("│")]
    expected = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    assert [[cell.strip() for cell in line.strip("│").split("│")] for line in lines] == expected


def test_a_table_takes_the_shape_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("orders", 4, 1_887_527, 1_422, 514, 34, 4, 0, 0, 0), ("payments", 2, 1_525_081, 172, 338, 0, 2, 0, 0, 0)]

    def lines(width: int) -> list[str]:
        written = shown(width, lambda: print_table("built", COLUMNS, rows, text_columns=1), monkeypatch)
        return [line.rstrip() for line in without_controls(written).splitlines()]

    assert lines(160)[4] == (
        "│ orders   │        4 │ 1,887,527 │   1,422 │     514 │      34 │       4 │         0 │    0 │        0 │"
    )
    assert lines(80) == [
        "built",
        "topic     segments      bytes  batches  entries  aborted  written",
        "orders           4  1,887,527    1,422      514       34        4",
        "payments         2  1,525,081      172      338        0        2",
        "nothing in any row: unchanged, kept, problems",
    ]
    assert lines(40)[:9] == [
        "built",
        "topic: orders",
        "  segments: 4",
        "  bytes: 1,887,527",
        "  batches: 1,422",
        "  entries: 514",
        "  aborted: 34",
        "  written: 4",
        "topic: payments",
    ]
