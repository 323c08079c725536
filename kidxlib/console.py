"""What a command says: messages and progress on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import click
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

#: Seconds between two looks at what is done, and between two lines where no one watches.
POLL_SECONDS: Final = 0.2
LINE_SECONDS: Final = 10.0

_messages: Final = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Done:
    """What is done so far of a build."""

    segments: int
    log_bytes: int


def note(message: str) -> None:
    """Say on standard error, in one line, how things stand."""
    _messages.print(printable(message), highlight=False, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Say on standard error, in one line, what a person should know."""
    note(f"warning: {message}")


def print_line(line: str) -> None:
    """Print a line of the result on standard output, however long."""
    click.echo(printable(line))


def print_json(result: object) -> None:
    """Print the result on standard output as one JSON object."""
    click.echo(json.dumps(result, indent=2))


def printable(text: str) -> str:
    """`text` in one line that any terminal shows: file names may hold line breaks, escapes and bytes of no encoding."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str | int]], text_columns: int) -> None:
    """Print a table on standard output; the first `text_columns` columns hold text, the others numbers."""
    table = Table(header_style="bold")
    for number, column in enumerate(columns):
        if number < text_columns:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else escape(value) for value in row))
    # A pipe has no width of its own, and a table cut to 80 columns would lose what it says.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(printable(title), style="bold", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def rate(size: int, seconds: float) -> str:
    """Bytes a second, for people."""
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 else "-"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(rate(int(task.completed), task.elapsed or 0.0))


@contextlib.contextmanager
def progress(done: Callable[[], Done], segments: int, log_bytes: int) -> Iterator[None]:
    """Show how far a build is while the body runs: a line that moves on a terminal, else a line now and then.

    Args:
        done: tells what is done; called from another thread.
        segments, log_bytes: all that there is to do.
    """
    stop = threading.Event()
    show = _moving_line if _messages.is_terminal else _lines
    thread = threading.Thread(target=show, args=(done, segments, log_bytes, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _moving_line(done: Callable[[], Done], segments: int, log_bytes: int, stop: threading.Event) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_messages, transient=True) as line:
        task = line.add_task("", total=log_bytes)
        while True:
            now = done()
            line.update(
                task,
                completed=now.log_bytes,
                description=f"{now.segments:,} of {segments:,} segments, "
                f"{decimal(now.log_bytes)} of {decimal(log_bytes)}",
            )
            if stop.wait(POLL_SECONDS):
                return


def _lines(done: Callable[[], Done], segments: int, log_bytes: int, stop: threading.Event) -> None:
    start = time.monotonic()
    while not stop.wait(LINE_SECONDS):
        seconds, now = time.monotonic() - start, done()
        left = f"{(log_bytes - now.log_bytes) * seconds / now.log_bytes:.0f} s left" if now.log_bytes else "starting"
        note(
            f"{now.segments:,} of {segments:,} segments, {decimal(now.log_bytes)} of {decimal(log_bytes)}, "
            f"{rate(now.log_bytes, seconds)}, {left}"
        )
