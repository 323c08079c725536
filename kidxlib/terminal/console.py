"""Prints a command's messages on standard error, and its results on standard output."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import click
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

#: The style of a word that begins a line, or that heads a column of a table, on a terminal with colors.
STYLES: Final = {
    "error": "bold red",
    "warning": "yellow",
    "broken": "red",
    "torn": "yellow",
    "safe": "cyan",
    "problem": "red",
    "problems": "red",
    "quarantined": "red",
    "truncated": "red",
    "unreadable": "red",
    "disagreement": "yellow",
}


class LiveLine(Protocol):
    """A line that moves at the end of the terminal; see `kidxlib.terminal.progress`."""

    console: Console

    def stop(self) -> None:
        """Clear the line."""


@dataclass(slots=True)
class _State:
    """The state of the command that this process runs."""

    verbose: bool = False
    moving: LiveLine | None = None


_state: Final = _State()


def show_details(verbose: bool) -> None:
    """Print details from now on, as with -v, or do not."""
    _state.verbose = verbose


def shows_details() -> bool:
    return _state.verbose


def let_move(line: LiveLine | None) -> None:
    """Print messages above a line that moves, and clear the line before a result is printed. None: it has ended."""
    _state.moving = line


#: How many warnings of a kind are printed one by one.
FIRST_MOST: Final = 5


def note(message: str) -> None:
    """Print one line on standard error."""
    console = Console(stderr=True) if _state.moving is None else _state.moving.console
    console.print(_styled(printable(message)), soft_wrap=True)


def warn(message: str) -> None:
    note(f"warning: {message}")


def warn_of_first(messages: Iterable[str]) -> None:
    """Warn with the first messages of each kind, and with how many more there are."""
    for message in first_of_each_kind(messages, FIRST_MOST):
        warn(message)


def first_of_each_kind(lines: Iterable[str], most: int, all_of_them: str = "") -> Iterator[str]:
    """The first lines of each kind, and a line that says how many more there are and `all_of_them`, as
    "; --json has them all". Lines of one kind say the same about other files: they differ in numbers, and before the
    first colon.
    """
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        kinds[re.sub(r"\d+", "0", line.partition(": ")[2] or line)].append(line)
    for alike in kinds.values():
        yield from alike[:most]
        if len(alike) > most:
            yield f"{_and_more(len(alike) - most)} of this kind{all_of_them}"


def print_line(line: str) -> None:
    """Print a line of the result on standard output, however long."""
    results().print(_styled(printable(line)), soft_wrap=True)


def more(left_out: int, what: str = "") -> Iterator[str]:
    """The line that says how many were left out; no line if none was. `what` names them, or says where they are."""
    if left_out > 0:
        yield _and_more(left_out) + what


def print_json(result: object) -> None:
    """Print the result on standard output as one JSON object."""
    results()  # clears the line that moves
    click.echo(json.dumps(result, indent=2))


def printable(text: str) -> str:
    """`text` in one line that any terminal shows: file names may hold line breaks, escapes and undecodable bytes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def rate(size: int, seconds: float) -> str:
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 else "-"


def results() -> Console:
    """Standard output, after the line that moves was cleared."""
    if _state.moving is not None:
        _state.moving.stop()
    return Console(highlight=False, markup=False, emoji=False)


def _and_more(left_out: int) -> str:
    return f"… and {left_out:,} more"


def _styled(line: str) -> Text:
    """A line with its first word in that word's color."""
    word, colon, _ = line.partition(":")
    text = Text(line)
    if colon and word in STYLES:
        text.stylize(STYLES[word], 0, len(word) + 1)
    return text
