"""Finds the lookups of an index that go wrong.

An index need not be what recovery writes to be right: releases and restarts leave other entries. It is right if every
lookup leads to a place from which the search through the log finds the right batch. That depends on a target only
through its comparisons with the entries, so it is enough to look up each entry's key and the key above it, and to ask
the log what stands before the places that come out. So the verdict holds for all lookups, in unsorted indexes too.

This is so for logs whose offsets increase from batch to batch, as a broker writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.index.preallocated import filled_bytes
from kidxlib.records import header_sweep
from kidxlib.storage.log_bytes import LogBytes

Longs: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Miss:
    """Targets from one to another whose lookup starts at a wrong place."""

    target: int
    until: int
    start: int
    what: str


def one_of_each_class(keys: Longs, least: int, most: int) -> Longs:
    """The smallest target of each class between two numbers. Targets of one class compare alike with all keys, so the
    index misses this target if it misses any of its class.
    """
    targets = np.unique(np.concatenate([[least], keys, keys + 1]))
    return targets[(targets >= least) & (targets <= most)]


def first_miss(log: LogBytes, targets: Longs, starts: Longs, before: str, most: int) -> Miss | None:
    """The first target whose search starts where no batch does, or after a batch that it must look into.

    Args:
        targets: the smallest of each class.
        most: the largest target.
    """
    positions, of = np.unique(starts, return_inverse=True)
    measures = header_sweep.measure(log, positions)[of]
    missed = np.flatnonzero((measures["is_batch"] == 0) | (measures[before] >= targets))
    if not len(missed):
        return None
    at = last = int(missed[0])
    # Classes above it may begin there, too: an entry's key and the key above it are of two.
    while last + 1 < len(targets) and last + 1 in missed and starts[last + 1] == starts[at]:
        last += 1
    until = int(targets[last + 1]) - 1 if last + 1 < len(targets) else most
    if measures["is_batch"][at]:
        until = min(until, int(measures[before][at]))
        what = "after the batch that it has to begin with"
    else:
        what = "where no batch starts"
    return Miss(int(targets[at]), max(until, int(targets[at])), int(starts[at]), what)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of an index file as they are stored, and whether room follows them.

    Attributes:
        columns: the fields of the entries before the room, one column each.
        has_room: zeros follow, which Kafka takes for entries, all alike.
    """

    columns: dict[str, Longs]
    has_room: bool

    @classmethod
    def of(cls, content: NDArray[np.uint8], layout: np.dtype[Any]) -> Self:
        """The entries of a file, without columns of its unused room: that may be a million entries."""
        size = len(content) // layout.itemsize * layout.itemsize
        filled = filled_bytes(content[:size], layout.itemsize)
        entries = np.frombuffer(content.data, layout, filled // layout.itemsize)
        return cls({name: entries[name].astype(np.int64) for name in layout.names or ()}, filled < size)

    def keys(self, name: str, base: int = 0) -> Longs:
        """What a column's entries are looked up by, with that of the room.

        Args:
            base: what the column counts from.
        """
        keys = self.columns[name] + base
        return np.append(keys, base) if self.has_room else keys
