"""How a run of a job ended, and what it says of that."""

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
    """How a run ended, with what it says: on screen, or as one JSON object.

    Attributes:
        run_id: what the catalog calls it; None where it does not.
        counts: what it dealt with, as `segments`; all that it can count, zeros too.
        bytes: what it read of logs, or decided about; see docs/operations.md.
        requests: of object stores, but for those to a catalog; none of commands that do not count them.
        catalog_segments: how many segments the catalog has, by source and status; None where that was not asked.
        catalog_files: how many files the last audits found wrong, by source and verdict; None where that was not asked.
        shown: lines and tables, in the order of the screen.
        values: of the JSON object, in its order; a function gives a value that only JSON has, and that costs something.
        said: on standard error behind either.
    """

    code: ExitCode = ExitCode.OK
    run_id: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    requests: Requests = field(default_factory=Requests)
    catalog_segments: Mapping[tuple[str, str], int] | None = None
    catalog_files: Mapping[tuple[str, str], int] | None = None
    shown: list[str | ShownTable] = field(default_factory=list)
    values: dict[str, Any | Callable[[], Any]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def line(self, *lines: str) -> None:
        """Show a line each."""
        self.shown.extend(lines)

    def detail(self, line: str) -> None:
        """Show a line to whoever asks for more, with -v."""
        if shows_details():
            self.line(line)

    def more(self, left_out: int, what: str = "") -> None:
        """Show how many more there are than are shown, where there are more; as `print_more`."""
        self.shown.extend(more(left_out, what))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], text_columns: int) -> None:
        """Show a table; as `print_table`."""
        self.shown.append(ShownTable(title, columns, rows, text_columns))

    def note(self, *lines: str) -> None:
        """Say a line each on standard error, as `note`."""
        self.said.extend(lines)

    def warn(self, *lines: str) -> None:
        """Say a line each on standard error, as `warn`."""
        self.said.extend(f"warning: {line}" for line in lines)

    def show(self, *, as_json: bool) -> None:
        """Print it on standard output, and on standard error what goes there."""
        if as_json:
            print_json({name: value() if callable(value) else value for name, value in self.values.items()})
        else:
            self.show_so_far()
        for line in self.said:
            note(line)

    def show_so_far(self) -> None:
        """Print lines and tables that are not printed yet, where what comes next takes its time or may fail."""
        for item in self.shown:
            if isinstance(item, str):
                print_line(item)
            else:
                print_table(item.title, item.columns, item.rows, item.text_columns)
        self.shown.clear()
