"""A phase of a command: what is being done, how much of it is done, and since when."""

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

#: What delays a first run, and one after an update.
_COMPILING: Final = "compiling for this processor, once"


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something was read, in seconds since the epoch. Of nothing, the end is before the beginning."""

    begin: float = float("inf")
    end: float = float("-inf")

    def __or__(self, other: Span) -> Span:
        return Span(min(self.begin, other.begin), max(self.end, other.end))

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Done:
    """What has been read so far.

    Attributes:
        seconds: in which it was, from the first byte on: what it took to begin is not among them.
    """

    segments: int = 0
    log_bytes: int = 0
    seconds: float = 0.0

    def __sub__(self, before: Done) -> Done:
        """What was done since then."""
        return Done(self.segments - before.segments, self.log_bytes - before.log_bytes, self.seconds - before.seconds)


@dataclass(frozen=True, slots=True)
class Phase:
    """What is being done.

    Attributes:
        done: how much of `segments` and `log_bytes`; None where nobody can tell.
        segments, log_bytes: all that there is to do; 0 segments where nobody knows before it is done, and 0 bytes where
            each segment takes as long, however large it is.
        after: what goes on when all of that is done, until the next phase begins.
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
        """What to call it now, and what is done of what is left to do; None where nobody can tell."""
        if compiling.is_compiling():
            return _COMPILING, None
        done = self.done() if self.done is not None else None
        if done is None or not (self.segments or done.segments):
            return self.name, None
        if not (done.segments or done.log_bytes):  # of a small run nothing is counted before its end
            return f"{self.name} {self._all}", None
        return (self.after, None) if 0 < self.segments <= done.segments else (self.name, done)

    def amount(self, done: Done) -> str:
        if not self.segments:
            return f"{counted(done.segments, 'segment')} so far"
        segments = f"{done.segments:,} of {counted(self.segments, 'segment')}"
        return f"{segments}, {decimal(done.log_bytes)} of {decimal(self.log_bytes)}" if self.log_bytes else segments

    @property
    def _all(self) -> str:
        """All that there is to do."""
        segments = counted(self.segments, "segment")
        return f"{segments}, {decimal(self.log_bytes)}" if self.log_bytes else segments

    def share(self, done: Done) -> float:
        """How much of all is done: from 0, also where nobody can tell, to 1."""
        if self.log_bytes:
            return done.log_bytes / self.log_bytes
        return done.segments / self.segments if self.segments else 0.0

    def speed(self, done: Done) -> str:
        """How much is done in a second."""
        if self.log_bytes:
            return rate(done.log_bytes, done.seconds)
        return f"{done.segments / done.seconds:,.0f} segments/s" if done.seconds else "-"

    def seconds_left(self, done: Done) -> float | None:
        share = self.share(done)
        return (1 - share) * done.seconds / share if self.segments and share and done.seconds else None


def of_store() -> str:
    """What is to be said of an object store that does not answer each request of this process; "" where it does."""
    again = requests_made().tried_again
    return f"the store is slow: {again:,} requests made again" if again else ""
