"""What a command says: messages on standard error, results on standard output."""

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

#: The word that a line begins with, or that heads a column of a table, and how it looks on a terminal that has colors.
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


class Moving(Protocol):
    """A line that moves at the end of the terminal; see `kidxlib.terminal.progress`."""

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
    """Decide whether details are printed, as with -v."""
    _state.verbose = verbose


def shows_details() -> bool:
    """Whether details are printed, as with -v."""
    return _state.verbose


def let_move(line: Moving | None) -> None:
    """Print messages above a line that moves, and clear it before a result is printed; None: there is none now."""
    _state.moving = line


#: Of a kind, so many warnings are said one by one.
FIRST_MOST: Final = 5


def note(message: str) -> None:
    """Say on standard error, in one line, how things stand."""
    console = Console(stderr=True) if _state.moving is None else _state.moving.console
    console.print(_styled(printable(message)), soft_wrap=True)


def warn(message: str) -> None:
    """Say on standard error, in one line, what a person should know."""
    note(f"warning: {message}")


def warn_of_first(messages: Iterable[str], most: int = FIRST_MOST) -> None:
    """Warn of the first of each kind, and say how many more there are."""
    for message in first_of_each_kind(messages, most):
        warn(message)


def first_of_each_kind(lines: Iterable[str], most: int, all_of_them: str = "") -> Iterator[str]:
    """The first lines of each kind, and how many more of it there are. Lines of one kind say the same of other files:
    they differ in numbers, and in what stands before the first colon.

    Args:
        all_of_them: where to find them, as "; --json has them all".
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


def print_lines(lines: Iterable[str]) -> None:
    """Print a line each."""
    for line in lines:
        print_line(line)


def more(left_out: int, what: str = "") -> Iterator[str]:
    """The line that says how many more there are than were printed, where there are more.

    Args:
        what: of what, or where they are.
    """
    if left_out > 0:
        yield _and_more(left_out) + what


def print_more(left_out: int, what: str = "") -> None:
    """Print that line."""
    print_lines(more(left_out, what))


def print_json(result: object) -> None:
    """Print the result on standard output as one JSON object."""
    results()
    click.echo(json.dumps(result, indent=2))


def printable(text: str) -> str:
    """`text` in one line that any terminal shows: file names may hold line breaks, escapes and bytes of no encoding."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def rate(size: int, seconds: float) -> str:
    """Bytes a second, for people."""
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 else "-"


def results() -> Console:
    """Standard output, with no line that moves below it."""
    if _state.moving is not None:
        _state.moving.stop()
    return Console(highlight=False, markup=False, emoji=False)


def _and_more(left_out: int) -> str:
    return f"… and {left_out:,} more"


def _styled(line: str) -> Text:
    """A line with the word that it begins with in its color."""
    word, colon, _ = line.partition(":")
    text = Text(line)
    if colon and word in STYLES:
        text.stylize(STYLES[word], 0, len(word) + 1)
    return text
