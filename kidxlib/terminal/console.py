"""What a command shows: messages on standard error, results on standard output, and what it is doing: on a terminal
with a line that moves, else with a line now and then.

A phase lasts until the next one begins, a result is printed or the command ends (by the option
`kidxlib.terminal.options.verbose`). To begin one costs nothing.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.text import Text

from kidxlib.jit import compiling
from kidxlib.text.words import counted

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


@dataclass(slots=True)
class _State:
    """The state of the command that this process runs.

    Attributes:
        moving: the line that moves, which is cleared before a result is printed; None: there is none.
    """

    verbose: bool = False
    moving: _MovingLine | None = None


_state: Final = _State()


def show_details(verbose: bool) -> None:
    """Print details from now on, as with -v, or do not."""
    _state.verbose = verbose


def shows_details() -> bool:
    """Whether details are printed, as with -v."""
    return _state.verbose


#: How many warnings of a kind are printed one by one.
FIRST_MOST: Final = 5
#: Who does not see all lines is told where they are.
MORE_IN_JSON: Final = "; --json has them all"


def note(message: str) -> None:
    """Print one line on standard error."""
    console = Console(stderr=True) if _state.moving is None else _state.moving.console
    console.print(_styled(printable(message)), soft_wrap=True)


def warn(message: str) -> None:
    note(f"warning: {message}")


def warn_of_first(messages: Iterable[str]) -> None:
    """Print the first warnings of each kind, and how many more there are."""
    for message in first_of_each_kind(messages, FIRST_MOST):
        warn(message)


def first_of_each_kind(lines: Iterable[str], most: int, all_of_them: str = "") -> Iterator[str]:
    """The first lines of each kind to be printed, and a line that says how many more there are and `all_of_them`, as
    `MORE_IN_JSON`. Lines of one kind say the same about other files: they differ in numbers, and before the
    first colon.
    """
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        kinds[re.sub(r"\d+", "0", line.partition(": ")[2] or line)].append(line)
    for alike in kinds.values():
        yield from alike[:most]
        yield from more_line(len(alike) - most, f" of this kind{all_of_them}")


def print_line(line: str) -> None:
    """Print a line of the result on standard output, however long."""
    results().print(_styled(printable(line)), soft_wrap=True)


def more_line(left_out: int, what: str = "") -> Iterator[str]:
    """The line that says how many more there are than were printed; none if all were. `what` names them, or says where
    they are.
    """
    if left_out > 0:
        yield f"… and {left_out:,} more{what}"


def print_json(result: object) -> None:
    """Print the result on standard output as one JSON object."""
    results()  # clears the line that moves
    click.echo(json.dumps(result, indent=2))


def printable(text: str) -> str:
    """A text as it is printed, in one line that any terminal shows: file names may hold line breaks, escapes and
    undecodable bytes.
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def rate(size: int, seconds: float) -> str:
    """The speed of reading as it is printed, in bytes a second; "-" if it took no time."""
    return f"{decimal(int(size / seconds))}/s" if seconds > 0 else "-"


def results() -> Console:
    """Standard output, after the line that moves was cleared."""
    if _state.moving is not None:
        _state.moving.stop()
    return Console(highlight=False, markup=False, emoji=False)


def _styled(line: str) -> Text:
    """A line with its first word in that word's color."""
    word, colon, _ = line.partition(":")
    text = Text(line)
    if colon and word in STYLES:
        text.stylize(STYLES[word], 0, len(word) + 1)
    return text


#: Delays a first run, and one after an update.
_COMPILING: Final = "compiling for this processor, once"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reading is: its segments and bytes so far.

    Attributes:
        seconds: the time of reading, from the first byte on.
    """

    segments: int = 0
    log_bytes: int = 0
    seconds: float = 0.0

    def __sub__(self, before: Progress) -> Progress:
        return Progress(
            self.segments - before.segments, self.log_bytes - before.log_bytes, self.seconds - before.seconds
        )


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a command.

    Attributes:
        done: gives how much of `segments` and `log_bytes` is done; None: nobody can tell.
        segments, log_bytes: all work; 0 segments if nobody knows before it is done, and 0 bytes if a segment takes as
            long, however large it is.
        after: the name from when all work is done until the next phase begins.
    """

    name: str
    began: float
    done: Callable[[], Progress] | None
    segments: int
    log_bytes: int
    after: str

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def state(self) -> tuple[str, Progress | None]:
        """The phase's present name, and its progress; None: nobody can tell."""
        if compiling.is_compiling():
            return _COMPILING, None
        done = self.done() if self.done is not None else None
        if done is None or not (self.segments or done.segments):
            return self.name, None
        if not (done.segments or done.log_bytes):  # a small run counts nothing before its end
            return f"{self.name} {self._all}", None
        return (self.after, None) if 0 < self.segments <= done.segments else (self.name, done)

    def amount(self, done: Progress) -> str:
        if not self.segments:
            return f"{counted(done.segments, 'segment')} so far"
        segments = f"{done.segments:,} of {counted(self.segments, 'segment')}"
        return f"{segments}, {decimal(done.log_bytes)} of {decimal(self.log_bytes)}" if self.log_bytes else segments

    @property
    def _all(self) -> str:
        segments = counted(self.segments, "segment")
        return f"{segments}, {decimal(self.log_bytes)}" if self.log_bytes else segments

    def share(self, done: Progress) -> float:
        """The share of all work that is done, 0 to 1; 0 if nobody can tell."""
        if self.log_bytes:
            return done.log_bytes / self.log_bytes
        return done.segments / self.segments if self.segments else 0.0

    def speed(self, done: Progress) -> str:
        if self.log_bytes:
            return rate(done.log_bytes, done.seconds)
        return f"{done.segments / done.seconds:,.0f} segments/s" if done.seconds else "-"

    def seconds_left(self, done: Progress) -> float | None:
        share = self.share(done)
        return (1 - share) * done.seconds / share if self.segments and share and done.seconds else None


def slow_store_message() -> str:
    """The message beside a phase about a store that has not answered each request of this process; "" if it has."""
    from kidxlib.storage.store.requests import requests_made  # `--help` waits for no executors

    again = requests_made().tried_again
    return f"the store is slow: {again:,} requests made again" if again else ""


#: Without a terminal: a phase that ends within `QUIET_SECONDS` is not named, and a line comes every `LINE_SECONDS`.
QUIET_SECONDS: Final = 1.0
LINE_SECONDS: Final = 10.0

#: After this time, a terminal shows how long a phase has lasted.
_LONG_SECONDS: Final = 3.0
_REFRESH_PER_SECOND: Final = 5


class _Lines:
    """Prints a line now and then, for logs."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _print(self) -> None:
        next_line = time.monotonic() + QUIET_SECONDS
        while not self._over.wait(QUIET_SECONDS):
            if compiling.is_compiling():  # in a worker process, which prints nothing itself
                compiling.tell_of_first_compilation()
            if time.monotonic() >= next_line:
                next_line += LINE_SECONDS
                note(f"{time.strftime('%H:%M:%S')} {', '.join(self._parts())}")

    def _parts(self) -> Iterable[str]:
        name, done = self._phase.state()
        yield name if done is None else f"{name}: {self._phase.amount(done)}"
        if slow := slow_store_message():
            yield slow
        if done is None:
            return
        left = self._phase.seconds_left(done)
        if left is not None:
            yield self._phase.speed(done)
            yield f"{left:.0f} s left"


class _MovingLine:
    """A line that moves. What draws it is imported once there is one: workers, which have none, import this file."""

    def __init__(self, phase: Phase) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._phase = phase
        self._spinner = Spinner("line")
        self.console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self.console,
            get_renderable=self._shown,
            transient=True,
            refresh_per_second=_REFRESH_PER_SECOND,
            redirect_stdout=False,  # standard output is for results, and may be a file
        )
        _state.moving = self  # messages are printed above it
        self._live.start(refresh=True)

    def stop(self) -> None:
        _state.moving = None
        self._live.stop()

    def _shown(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        phase = self._phase
        name, done = phase.state()
        slow = f", {slow_store_message()}" if slow_store_message() else ""
        line = Table.grid(padding=(0, 1, 0, 0), expand=True)
        line.add_column(width=1)
        line.add_column(no_wrap=True, overflow="ellipsis")
        if done is None:
            line.add_column(justify="right", no_wrap=True, ratio=1)
            seconds = f"{phase.seconds:,.0f} s" if phase.seconds >= _LONG_SECONDS else ""
            line.add_row(self._spinner, Text(name + slow), Text(seconds))
            return line
        left = phase.seconds_left(done)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        line.add_row(
            self._spinner,
            Text(f"{name} {phase.amount(done)}{slow}"),
            ProgressBar(total=1, completed=phase.share(done)),
            Text("" if left is None else f"{phase.speed(done)}, {left:,.0f} s left"),
        )
        return line


class _Phases:
    """The phases of the command that this process runs."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._shown: _Lines | _MovingLine | None = None
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def begin(self, phase: Phase) -> None:
        self._stop()
        self._phase = phase
        watched = sys.stderr.isatty() and Console(stderr=True).is_interactive
        self._shown = _MovingLine(phase) if watched else _Lines(phase)

    def end(self) -> None:
        self._stop()
        seconds, self._seconds = self._seconds, defaultdict(float)
        if seconds and shows_details():
            note("took: " + ", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items()))

    def _stop(self) -> None:
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()
        if self._phase is not None:
            self._seconds[self._phase.name] += self._phase.seconds
            self._phase = None


_phases: Final = _Phases()


def begin_phase(
    name: str, *, done: Callable[[], Progress] | None = None, segments: int = 0, log_bytes: int = 0, after: str = ""
) -> None:
    """Begin a phase such as "listing"; see `Phase` for the other parameters. `done` is called from another thread."""
    _phases.begin(Phase(name, time.monotonic(), done, segments, log_bytes, after or name))


def end_phases() -> None:
    """End the last phase, and with -v say how long each one took."""
    _phases.end()
