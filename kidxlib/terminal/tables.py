"""Tables on standard output, never shortened."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Final, Literal, TypeAlias

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kidxlib.terminal.console import STYLES, printable, results

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
        """The width in columns of the terminal."""
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
