"""What a command says: messages on standard error, results on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Final, Literal, Protocol, TypeAlias

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

#: What a cell holds: text as it stands, a number with commas.
Cell: TypeAlias = str | int

#: The word that a line begins with, or that heads a column, and how it looks on a terminal that has colors.
_STYLES: Final = {
    "error": "bold red",
    "warning": "yellow",
    "broken": "red",
    "torn": "yellow",
    "safe": "cyan",
    "not well": "red",
    "quarantined": "red",
    "truncated": "red",
    "unreadable": "red",
    "disagreement": "yellow",
}
#: What stands between two columns of a table without lines, and the columns that a line of a box takes beside a cell.
_GAP: Final = 2
_BOX: Final = 3
#: Of a terminal that does not say how wide it is.
_WIDTH_UNKNOWN: Final = 80


class Moving(Protocol):
    """A line that moves at the end of the terminal; see `kidxlib.progress`."""

    console: Console

    def stop(self) -> None:
        """Clear the line."""


@dataclass(slots=True)
class _State:
    verbose: bool = False
    moving: Moving | None = None


#: Of the command that this process runs.
_state: Final = _State()


def show_details(verbose: bool) -> None:
    """Decide whether `print_detail` prints."""
    _state.verbose = verbose


def shows_details() -> bool:
    """Whether `print_detail` prints."""
    return _state.verbose


def let_move(line: Moving | None) -> None:
    """Print messages above a line that moves, and clear it before a result is printed; None: there is none now."""
    _state.moving = line


def note(message: str) -> None:
    """Say on standard error, in one line, how things stand."""
    console = Console(stderr=True) if _state.moving is None else _state.moving.console
    console.print(_styled(printable(message)), soft_wrap=True)


def warn(message: str) -> None:
    """Say on standard error, in one line, what a person should know."""
    note(f"warning: {message}")


def print_line(line: str) -> None:
    """Print a line of the result on standard output, however long."""
    _results().print(_styled(printable(line)), soft_wrap=True)


def print_detail(line: str) -> None:
    """Print a line of the result that is for those who ask for more, with -v."""
    if _state.verbose:
        print_line(line)


def print_json(result: object) -> None:
    """Print the result on standard output as one JSON object."""
    _results()
    click.echo(json.dumps(result, indent=2))


def printable(text: str) -> str:
    """`text` in one line that any terminal shows: file names may hold line breaks, escapes and bytes of no encoding."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], text_columns: int) -> None:
    """Print a table on standard output, with nothing of it shortened.

    Where a terminal is too narrow the lines around cells go, then columns without anything, which are named below;
    where that is not enough each row becomes lines of its own. What is no terminal gets the table as wide as it is.

    Args:
        columns: their names, each another.
        text_columns: so many columns hold text, the others numbers, and "-" where there is none.
    """
    _results().print(Text(printable(title), "bold"), soft_wrap=True)
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
        _results().print(f"nothing in any row: {names}", style="dim", soft_wrap=True)


def rate(size: int, seconds: float) -> str:
    """Bytes a second, for people."""
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 else "-"


def _results() -> Console:
    if _state.moving is not None:
        _state.moving.stop()
    return Console(highlight=False, markup=False, emoji=False)


def _terminal_width() -> int:
    """Of standard output. A COLUMNS in the environment may be older than the size that the window has now."""
    return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_UNKNOWN


def _styled(line: str) -> Text:
    """A line with the word that it begins with in its color."""
    word, colon, _ = line.partition(":")
    text = Text(line)
    if colon and word in _STYLES:
        text.stylize(_STYLES[word], 0, len(word) + 1)
    return text


@dataclass(frozen=True, slots=True)
class _Shape:
    """A table as it may be shown.

    Attributes:
        wrapped: names of columns stand on several lines where that makes them narrower.
        boxed: there are lines around cells.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int
    wrapped: bool = False
    boxed: bool = True

    def without(self, empty: Sequence[bool]) -> _Shape:
        """The other columns alone."""

        def others(row: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(cell for cell, left_out in zip(row, empty, strict=True) if not left_out)

        return replace(self, names=others(self.names), rows=tuple(map(others, self.rows)))

    @property
    def width(self) -> int:
        """How many columns of the terminal it takes."""
        widths = [max(map(cell_len, head.split("\n"))) for head in self._heads()]
        widths = [max(widths[at], self._widest(at)) for at in range(len(widths))]
        return sum(widths) + (1 + _BOX * len(widths) if self.boxed else _GAP * (len(widths) - 1))

    def table(self) -> Table:
        """As rich shows it."""
        if self.boxed:
            table = Table(box=box.HEAVY_HEAD, header_style="bold")
        else:
            table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False)
        for at, head in enumerate(self._heads()):
            justify: Literal["left", "right"] = "left" if at < self.text_columns else "right"
            table.add_column(Text(head), justify=justify, vertical="bottom", no_wrap=True)
        for row in self.rows:
            styles = ("" if cell == "0" else _STYLES.get(name, "") for name, cell in zip(self.names, row, strict=True))
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
            style = _STYLES.get(name, "") if cell != "0" else ""
            line = Text.assemble("" if at == 0 else "  ", (f"{name}:", "bold"), " ", (cell, style))
            _results().print(line, soft_wrap=True)
