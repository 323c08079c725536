"""A phase of a command: its name, its progress, and since when it lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.filesize import decimal

from kidxlib.jit import compiling
from kidxlib.storage.store.requests import requests_made
from kidxlib.terminal.console import rate
from kidxlib.text.words import counted

#: Delays a first run, and one after an update.
_COMPILING: Final = "compiling for this processor, once"


@dataclass(frozen=True, slots=True)
class Span:
    """The time of reading, in seconds since the epoch. If nothing was read, the end is before the beginning."""

    begin: float = float("inf")
    end: float = float("-inf")

    def __or__(self, other: Span) -> Span:
        return Span(min(self.begin, other.begin), max(self.end, other.end))

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Done:
    """The segments and bytes that have been read so far.

    Attributes:
        seconds: the time of reading, from the first byte on.
    """

    segments: int = 0
    log_bytes: int = 0
    seconds: float = 0.0

    def __sub__(self, before: Done) -> Done:
        return Done(self.segments - before.segments, self.log_bytes - before.log_bytes, self.seconds - before.seconds)


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
    done: Callable[[], Done] | None
    segments: int
    log_bytes: int
    after: str

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def state(self) -> tuple[str, Done | None]:
        """The phase's present name, and its progress; None: nobody can tell."""
        if compiling.is_compiling():
            return _COMPILING, None
        done = self.done() if self.done is not None else None
        if done is None or not (self.segments or done.segments):
            return self.name, None
        if not (done.segments or done.log_bytes):  # a small run counts nothing before its end
            return f"{self.name} {self._all}", None
        return (self.after, None) if 0 < self.segments <= done.segments else (self.name, done)

    def amount(self, done: Done) -> str:
        if not self.segments:
            return f"{counted(done.segments, 'segment')} so far"
        segments = f"{done.segments:,} of {counted(self.segments, 'segment')}"
        return f"{segments}, {decimal(done.log_bytes)} of {decimal(self.log_bytes)}" if self.log_bytes else segments

    @property
    def _all(self) -> str:
        segments = counted(self.segments, "segment")
        return f"{segments}, {decimal(self.log_bytes)}" if self.log_bytes else segments

    def share(self, done: Done) -> float:
        """The share of all work that is done, 0 to 1; 0 if nobody can tell."""
        if self.log_bytes:
            return done.log_bytes / self.log_bytes
        return done.segments / self.segments if self.segments else 0.0

    def speed(self, done: Done) -> str:
        if self.log_bytes:
            return rate(done.log_bytes, done.seconds)
        return f"{done.segments / done.seconds:,.0f} segments/s" if done.seconds else "-"

    def seconds_left(self, done: Done) -> float | None:
        share = self.share(done)
        return (1 - share) * done.seconds / share if self.segments and share and done.seconds else None


def of_store() -> str:
    """The message about an object store that has not answered each request of this process; "" if it has."""
    again = requests_made().tried_again
    return f"the store is slow: {again:,} requests made again" if again else ""
