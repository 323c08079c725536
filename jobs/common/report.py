"""What a job says while it runs and when it is done: a progress line, tables on screen, or one JSON object."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from jobs.common.distribute import Done

#: Seconds between two looks at what executors have finished, and between two lines where no one watches.
POLL_SECONDS: Final = 0.2
LINE_SECONDS: Final = 10.0

#: Standard error, for everything that is not the result.
console: Final = Console(stderr=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(rate(int(task.completed), task.elapsed or 0.0))


def rate(size: int, seconds: float) -> str:
    """Bytes a second, in GB."""
    return f"{size / seconds / 1e9:.2f} GB/s" if seconds > 0 else "- GB/s"


@contextlib.contextmanager
def progress(done: Done, segments: int, log_bytes: int) -> Iterator[None]:
    """Show how far executors are while the body runs: a line that moves on a terminal, else a line now and then."""
    stop = threading.Event()
    show = _moving_line if console.is_terminal else _lines
    thread = threading.Thread(target=show, args=(done, segments, log_bytes, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _moving_line(done: Done, segments: int, log_bytes: int, stop: threading.Event) -> None:
    columns = (
        TextColumn("{task.fields[segments]} of {task.fields[all_segments]} segments"),
        BarColumn(),
        TextColumn("{task.fields[size]} of {task.fields[all_size]}"),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as line:
        task = line.add_task(
            "", total=log_bytes, segments=0, all_segments=segments, size="", all_size=decimal(log_bytes)
        )
        while not stop.wait(POLL_SECONDS):
            size = done.log_bytes.value
            line.update(task, completed=size, segments=done.segments.value, size=decimal(size))


def _lines(done: Done, segments: int, log_bytes: int, stop: threading.Event) -> None:
    start = time.monotonic()
    while not stop.wait(LINE_SECONDS):
        seconds, size = time.monotonic() - start, done.log_bytes.value
        left = f"{(log_bytes - size) * seconds / size:.0f} s left" if size else "time left not known yet"
        console.print(
            f"{done.segments.value} of {segments} segments, {decimal(size)} of {decimal(log_bytes)}, "
            f"{rate(size, seconds)}, {left}",
            highlight=False,
        )


def note(message: str) -> None:
    """Say on standard error how things stand."""
    console.print(message, highlight=False, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Say on standard error what a person should know, in one line."""
    note(f"warning: {message}")


def print_line(line: str) -> None:
    """Print a line of the result on standard output, however long."""
    click.echo(line)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str | int]], text_columns: int) -> None:
    """Print a table on standard output; the first `text_columns` columns hold text, the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for number, column in enumerate(columns):
        if number < text_columns:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else escape(value) for value in row))
    # A pipe has no width of its own, and a table cut to 80 columns would lose what it says.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
