"""Bins of work: which segments one worker reads, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, Self, TypeVar


class _Packed(Protocol):
    """A segment or a partition, which one worker reads."""

    @property
    def log_bytes(self) -> int: ...

    def with_threads(self, threads: int) -> Self:
        """A copy that so many threads may work on at the same time."""


_T = TypeVar("_T", bound=_Packed)

#: A bin is full at this many bytes of logs or this many segments: a second or so of work from memory, so that progress
#: is seen.
_BIN_BYTES: Final = 8 * 1024**3
_BIN_SEGMENTS: Final = 2000
#: Bins per core at least, where there are segments enough, so that cores end at about the same time.
BINS_PER_CORE: Final = 4


def pack(tasks: Iterable[_T], cores: int) -> list[list[_T]]:
    """The biggest segments first, small ones together, so that no large segment runs on alone at the end. If there are
    fewer segments than cores, several cores work on each.
    """
    ordered = sorted(tasks, key=lambda task: task.log_bytes, reverse=True)
    if ordered and (threads := cores // len(ordered)) > 1:
        ordered = [task.with_threads(threads) for task in ordered]
    total_bytes = sum(task.log_bytes for task in ordered)
    bins_wanted = cores * BINS_PER_CORE
    bin_bytes = min(_BIN_BYTES, total_bytes // bins_wanted + 1)
    bin_segments = min(_BIN_SEGMENTS, len(ordered) // bins_wanted + 1)
    bins: list[list[_T]] = []
    room_bytes = room_segments = 0
    for task in ordered:
        if room_segments == 0 or room_bytes < task.log_bytes:
            bins.append([])
            room_bytes, room_segments = bin_bytes, bin_segments
        bins[-1].append(task)
        room_bytes -= task.log_bytes
        room_segments -= 1
    return bins
