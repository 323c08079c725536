"""Bins of work: which segments one worker reads, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, Self, TypeVar


class _BinItem(Protocol):
    """A segment or a partition, which one worker reads."""

    @property
    def log_bytes(self) -> int: ...

    def with_threads(self, threads: int) -> Self:
        """A copy that so many threads may work on at the same time."""


_T = TypeVar("_T", bound=_BinItem)

#: A bin is full at this many bytes of logs or this many segments: a second or so of work from memory, so that progress
#: is seen.
_BIN_BYTES: Final = 8 * 1024**3
_BIN_SEGMENTS: Final = 2000
#: Bins per core at least, where there are segments enough, so that cores end at about the same time.
BINS_PER_CORE: Final = 4


def into_bins(tasks: Iterable[_T], cores: int) -> list[list[_T]]:
    """The tasks of each bin (`bins_of`). If there are fewer segments than cores, several cores work on each."""
    listed = list(tasks)
    if (threads := threads_per_segment(len(listed), cores)) > 1:
        listed = [task.with_threads(threads) for task in listed]
    return [[listed[number] for number in bin_] for bin_ in bins_of([task.log_bytes for task in listed], cores)]


def threads_per_segment(segments: int, cores: int) -> int:
    """How many cores may work on each segment, if there are so many in all bins."""
    return max(cores // segments, 1) if segments else 1


def bins_of(log_bytes: Sequence[int], cores: int) -> list[list[int]]:
    """The positions of the logs of each bin: the biggest first, small ones together, so that no large segment runs on
    alone at the end.
    """
    ordered = sorted(range(len(log_bytes)), key=log_bytes.__getitem__, reverse=True)
    bins_wanted = cores * BINS_PER_CORE
    bin_bytes = min(_BIN_BYTES, sum(log_bytes) // bins_wanted + 1)
    bin_segments = min(_BIN_SEGMENTS, len(ordered) // bins_wanted + 1)
    bins: list[list[int]] = []
    room_bytes = room_segments = 0
    for number in ordered:
        if room_segments == 0 or room_bytes < log_bytes[number]:
            bins.append([])
            room_bytes, room_segments = bin_bytes, bin_segments
        bins[-1].append(number)
        room_bytes -= log_bytes[number]
        room_segments -= 1
    return bins
