"""The outcome of a run: its exit code, what it prints and what it counts; and tables on standard output, which are
never shortened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any, Final, Literal, TypeAlias

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.console import (
    MORE_IN_JSON,
    STYLES,
    first_of_each_kind,
    more_line,
    note,
    print_json,
    print_line,
    printable,
    results,
    shows_details,
)
from kidxlib.terminal.exit_codes import ExitCode

#: How many lines of a kind the screen shows; the JSON object has all.
LINES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended, and its results: for the screen, as one JSON object, and for metrics.

    Attributes:
        run_id: the run's id in the catalog; None if the catalog has none.
        counts: the numbers of segments and other things that the run dealt with, zeros too.
        bytes: bytes of logs that the run read, or decided about; see docs/operations.md.
        requests: requests to object stores, without those to a catalog; empty for commands that do not count them.
        catalog_segments: how many segments the catalog has, by source and status; None: not asked.
        catalog_files: how many files the last audits found wrong, by source and verdict; None: not asked.
        items: lines, and functions that print tables, in the order of the screen.
        values: the values of the JSON object, in its order; a function gives a value that only JSON has, and that
            costs something.
        messages: lines for standard error, after the screen's or the JSON object.
        done: what an interruption says while all this is printed.
    """

    code: ExitCode = ExitCode.OK
    run_id: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    requests: Requests = field(default_factory=Requests)
    catalog_segments: Mapping[tuple[str, str], int] | None = None
    catalog_files: Mapping[tuple[str, str], int] | None = None
    items: list[str | Callable[[], None]] = field(default_factory=list)
    values: dict[str, Any | Callable[[], Any]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    done: str = "all is done, and not all that came of it was printed"

    def line(self, *lines: str) -> None:
        self.items.extend(lines)

    def detail(self, line: str) -> None:
        """Add a line that only -v shows."""
        if shows_details():
            self.line(line)

    def add_more_line(self, left_out: int, what: str = "") -> None:
        """Add the line of `console.more_line`."""
        self.items.extend(more_line(left_out, what))

    def first_lines(self, what: str, lines: Iterable[str]) -> None:
        """Add the first lines of each kind (`console.first_of_each_kind`), each after `what` it tells."""
        for line in first_of_each_kind(lines, LINES_SHOWN, MORE_IN_JSON):
            self.line(f"{what}: {line}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], text_columns: int) -> None:
        self.items.append(lambda: print_table(title, columns, rows, text_columns))

    def note(self, *lines: str) -> None:
        self.messages.extend(lines)

    def warn(self, *lines: str) -> None:
        self.messages.extend(f"warning: {line}" for line in lines)

    def show(self, *, as_json: bool) -> None:
        """Print everything, on standard output and standard error."""
        if as_json:
            print_json({name: value() if callable(value) else value for name, value in self.values.items()})
        else:
            self.show_so_far()
        for line in self.messages:
            note(line)

    def show_so_far(self) -> None:
        """Print lines and tables that are not printed yet: what follows takes long, or may fail."""
        for item in self.items:
            if isinstance(item, str):
                print_line(item)
            else:
                item()
        self.items.clear()


#: A cell's value: text is shown unchanged, a number with commas.
Cell: TypeAlias = str | int
#: The blanks between two columns of a table without lines, and the columns that a box's line takes beside a cell.
_GAP: Final = 2
_BOX: Final = 3
#: The width of a terminal that does not tell its width.
_WIDTH_UNKNOWN: Final = 80


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], text_columns: int) -> None:
    """Print a table on standard output, never shortened.

    If a terminal is too narrow, the lines around cells go, then columns without any value, which are named below. If
    that is not enough, each row becomes lines of its own. A file or pipe gets the table at its full width.

    The names of columns are distinct. The first `text_columns` hold text, the others numbers, or "-" for none.
    """
    assert len({*columns}) == len(columns), columns
    results().print(Text(printable(title), "bold"), soft_wrap=True)
    all_of_it = _Shape(
        tuple(columns),
        tuple(tuple(printable(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row) for row in rows),
        text_columns,
    )
    empty = [at >= text_columns and all(row[at] in (0, "-") for row in rows) for at in range(len(columns))]
    less = all_of_it.without(empty) if rows else all_of_it
    width = _terminal_width() if sys.stdout.isatty() else all_of_it.width
    for shape in (
        all_of_it,
        replace(all_of_it, wrapped=True),
        replace(all_of_it, wrapped=True, boxed=False),
        replace(less, wrapped=True, boxed=False),
    ):
        if shape.width <= width:
            Console(width=width).print(shape.table())
            break
    else:
        shape = less
        _print_blocks(shape)
    if len(shape.names) < len(columns):
        names = ", ".join(column for column in columns if column not in shape.names)
        results().print(f"nothing in any row: {names}", style="dim", soft_wrap=True)


def _terminal_width() -> int:
    """The width of standard output. A COLUMNS in the environment may be older than the size that the window has now."""
    return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_UNKNOWN


@dataclass(frozen=True, slots=True)
class _Shape:
    """A table in one of its forms.

    Attributes:
        wrapped: names of columns are on several lines if that makes columns narrower.
        boxed: there are lines around cells.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int
    wrapped: bool = False
    boxed: bool = True

    def without(self, empty: Sequence[bool]) -> _Shape:
        def others(row: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(cell for cell, left_out in zip(row, empty, strict=True) if not left_out)

        return replace(self, names=others(self.names), rows=tuple(map(others, self.rows)))

    @property
    def width(self) -> int:
        """The width of a table on screen, in columns of the terminal."""
        widths = [max(map(cell_len, head.split("\n"))) for head in self._heads()]
        widths = [max(widths[at], self._widest(at)) for at in range(len(widths))]
        return sum(widths) + (1 + _BOX * len(widths) if self.boxed else _GAP * (len(widths) - 1))

    def table(self) -> Table:
        if self.boxed:
            table = Table(box=box.HEAVY_HEAD, header_style="bold")
        else:
            table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False)
        for at, head in enumerate(self._heads()):
            justify: Literal["left", "right"] = "left" if at < self.text_columns else "right"
            table.add_column(Text(head), justify=justify, vertical="bottom", no_wrap=True)
        for row in self.rows:
            styles = ("" if cell == "0" else STYLES.get(name, "") for name, cell in zip(self.names, row, strict=True))
            table.add_row(*(Text(cell, style) for cell, style in zip(row, styles, strict=True)))
        return table

    def _heads(self) -> list[str]:
        if not self.wrapped:
            return list(self.names)
        words = [name.split(" ") for name in self.names]
        widths = [max(self._widest(at), *map(len, of_name)) for at, of_name in enumerate(words)]
        return ["\n".join(wrap(name, width)) for name, width in zip(self.names, widths, strict=True)]

    def _widest(self, at: int) -> int:
        return max((cell_len(row[at]) for row in self.rows), default=0)


def _print_blocks(shape: _Shape) -> None:
    """Print each row as a block of lines `name: value`, which the terminal itself wraps."""
    for row in shape.rows:
        for at, (name, cell) in enumerate(zip(shape.names, row, strict=True)):
            style = STYLES.get(name, "") if cell != "0" else ""
            line = Text.assemble("" if at == 0 else "  ", (f"{name}:", "bold"), " ", (cell, style))
            results().print(line, soft_wrap=True)
