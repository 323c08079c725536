"""The outcome of a run: its exit code, what it prints, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.console import more, note, print_json, print_line, shows_details
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.tables import Cell, print_table


@dataclass(frozen=True, slots=True)
class ShownTable:
    """The arguments of `print_table`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    text_columns: int


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
        items: lines and tables, in the order of the screen.
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
    items: list[str | ShownTable] = field(default_factory=list)
    values: dict[str, Any | Callable[[], Any]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    done: str = "all is done, and not all that came of it was printed"

    def line(self, *lines: str) -> None:
        self.items.extend(lines)

    def detail(self, line: str) -> None:
        """Add a line that only -v shows."""
        if shows_details():
            self.line(line)

    def more(self, left_out: int, what: str = "") -> None:
        """Add the line of `console.more`."""
        self.items.extend(more(left_out, what))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], text_columns: int) -> None:
        self.items.append(ShownTable(title, columns, rows, text_columns))

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
                print_table(item.title, item.columns, item.rows, item.text_columns)
        self.items.clear()
