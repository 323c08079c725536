"""A phase of a command: what is being done, how much of it is done, and since when."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.filesize import decimal


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


@dataclass(frozen=True, slots=True)
class Phase:
    """What is being done.

    Attributes:
        done: how much of `segments` and `log_bytes`; None where nobody can tell.
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
        done = self.done() if self.done is not None else None
        if done is None or not self.segments:
            return self.name, None
        return (self.after, None) if done.segments >= self.segments else (self.name, done)

    def amount(self, done: Done) -> str:
        return (
            f"{done.segments:,} of {self.segments:,} segments, {decimal(done.log_bytes)} of {decimal(self.log_bytes)}"
        )

    def seconds_left(self, done: Done) -> float | None:
        if not done.log_bytes or not done.seconds:
            return None
        return (self.log_bytes - done.log_bytes) * done.seconds / done.log_bytes
