"""Where a micro-batch ends that is not to hold more than a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.places import PartitionLogs, Place
from kidxlib.spark.options import Limits


@dataclass(frozen=True)
class Lag:
    """What is to be read of a partition: offsets from one to below another."""

    partition: TopicPartition
    logs: PartitionLogs
    begin: int
    end: int

    @cached_property
    def start(self) -> Place:
        return Place(self.logs.position_of(self.begin), self.begin)

    @cached_property
    def log_bytes(self) -> int:
        """From the first batch of it on, to the batch that follows its last one."""
        return self.logs.position_of(self.end) - self.start.position

    @property
    def first_batch(self) -> int:
        """The size of its first batch, in bytes."""
        return min(self.logs.place_after(self.start).position - self.start.position, self.log_bytes)

    def up_to(self, log_bytes: int) -> Taken:
        """Its batches that are so many bytes at most, the first one at least."""
        if log_bytes >= self.log_bytes:
            return Taken(self.end, self.log_bytes)
        place = self.logs.last_place(self.start, self.start.position + log_bytes)
        return Taken(min(place.offset, self.end), place.position - self.start.position)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a micro-batch takes of a partition: offsets below an end, in so many bytes of batches."""

    end: int
    log_bytes: int


def cut(lags: Sequence[Lag], limits: Limits) -> dict[TopicPartition, Taken]:
    """What a micro-batch takes of what is to be read: of each partition nothing, or from its beginning on. Of bytes
    whole batches are taken, and one where that alone is more than the limit.

    Raises:
        LogChangedError, OSError: a log cannot be read.
    """
    if limits.log_bytes is not None:
        sizes = [lag.log_bytes for lag in lags]
        parts = shares(sizes, [lag.first_batch for lag in lags], limits.log_bytes)
        return {
            lag.partition: lag.up_to(part)
            for lag, part, size in zip(lags, parts, sizes, strict=True)
            if part > 0 or size == 0
        }
    if limits.offsets is not None:
        parts = shares([lag.end - lag.begin for lag in lags], [1] * len(lags), limits.offsets)
        lags = [
            Lag(lag.partition, lag.logs, lag.begin, lag.begin + part)
            for lag, part in zip(lags, parts, strict=True)
            if part > 0
        ]
    return {lag.partition: Taken(lag.end, lag.log_bytes) for lag in lags}


def shares(sizes: Sequence[int], firsts: Sequence[int], limit: int) -> list[int]:
    """How much may be taken of each partition: in proportion to what each has, as in Spark's Kafka source
    (`KafkaMicroBatchStream.rateLimit`), so that all come to their ends together. But before, each is given its first
    piece, those with the most first, as far as there is room: so all go on, and those that had to wait have the most
    at last.

    Args:
        sizes: what each partition has, as bytes.
        firsts: the size of its first piece, of which no part can be taken.
        limit: 1 or more. The sum of the shares is not above it, unless all of it is one first piece.
    """
    if sum(sizes) <= limit:
        return list(sizes)
    taken = [0] * len(sizes)
    left = limit
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        if firsts[number] <= left or left == limit:
            taken[number] = firsts[number]
            left -= firsts[number]
    rest = sum(size - share for size, share in zip(sizes, taken, strict=True) if share)
    if left <= 0 or not rest:
        return taken
    return [
        share + min(size - share, left * (size - share) // rest) if share else 0
        for size, share in zip(sizes, taken, strict=True)
    ]
