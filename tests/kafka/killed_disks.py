"""Partitions as a broker that was killed leaves them: all that it has written is there, at random."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_snapshot,
    segment_file,
)
from tests.support.logs.batches import FILLER, Batch, control

_PRODUCERS: Final = 3
#: Entries of an index that are allocated, and not written.
_UNUSED_MOST: Final = 400


@dataclass(slots=True)
class _Traffic:
    """What idempotent and transactional producers, and others, append one batch after the other."""

    rng: random.Random
    timestamp: int
    offset: int = 0
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def appended(self) -> Batch:
        """The next batch, of one record or more."""
        self.timestamp += self.rng.choice([-3, 0, 1, 500])
        self.epoch += self.rng.random() < 0.05
        producer = self.rng.randrange(_PRODUCERS)
        if producer in self.open and self.rng.random() < 0.4:
            self.open.discard(producer)
            key = self.rng.choice([layouts.CONTROL_TYPE_ABORT, layouts.CONTROL_TYPE_COMMIT])
            return self._batch(1, **{**control(key.to_bytes(4)), "producer_id": producer})
        count = self.rng.randint(1, 4)
        body = FILLER[: self.rng.choice([30, 700, 3_000])]
        if self.rng.random() < 0.3:
            return self._batch(count, body=body)
        transactional = producer in self.open or self.rng.random() < 0.4
        if transactional:
            self.open.add(producer)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        return self._batch(
            count,
            body=body,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=layouts.ATTRIBUTE_TRANSACTIONAL if transactional else 0,
        )

    def _batch(self, count: int, **fields: Any) -> Batch:
        self.offset += count
        return Batch(
            **{"records": count, **fields},
            last_offset_delta=count - 1,
            timestamp=self.timestamp,
            base_timestamp=self.timestamp,  # a marker's record has none of its own
            leader_epoch=self.epoch,
        )


@dataclass(frozen=True, slots=True)
class KilledPartition:
    """A partition, and what its broker was about to do.

    Attributes:
        base_offsets: of its segments.
        end: the offset after all whole batches that were written before the last append.
        in_flight: the bytes of the last append that the kernel has: batches, the last of them perhaps in part.
    """

    directory: Path
    base_offsets: Sequence[int]
    end: int
    in_flight: bytes


def write_partition(directory: Path, rng: random.Random) -> KilledPartition:
    """The logs as they were before the last append."""
    directory.mkdir()
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000  # Kafka forgets producers after a day
    traffic, segments = _Traffic(rng, an_hour_ago_ms), [(0, b"")]
    for _ in range(rng.randint(1, 60)):
        if rng.random() < 0.12 and segments[-1][1]:
            segments.append((traffic.offset, b""))
        batch = traffic.appended()
        segments[-1] = segments[-1][0], segments[-1][1] + batch.encode(traffic.offset - 1)
    for base_offset, content in segments:
        (directory / segment_file(base_offset, LOG_SUFFIX)).write_bytes(content)
    end = traffic.offset
    in_flight = b"".join(traffic.appended().encode(traffic.offset - 1) for _ in range(rng.randint(0, 2)))
    if in_flight and rng.random() < 0.6:
        in_flight = in_flight[: rng.randrange(len(in_flight))]
    return KilledPartition(directory, [base_offset for base_offset, _ in segments], end, in_flight)


def kill(partition: KilledPartition, recovery_point: int, rng: random.Random) -> None:
    """Make of a partition with all side files, closed, what a broker leaves that is killed: amid work, or as it
    recovers after an earlier kill, from the recovery point on.
    """
    directory, last = partition.directory, partition.base_offsets[-1]
    with (directory / segment_file(last, LOG_SUFFIX)).open("ab") as log:
        log.write(partition.in_flight)
        if rng.random() < 0.1:
            log.write(bytes(rng.randrange(1, 5_000)))  # log.preallocate
    for path in _snapshots_above(directory, last):
        path.unlink()  # that of the end a broker takes as it stops
    _keep_open(directory, last, rng)
    if rng.random() < 0.3:
        _recover_in_part(partition, recovery_point, rng)
    if rng.random() < 0.1:
        (directory / LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)


def _recover_in_part(partition: KilledPartition, recovery_point: int, rng: random.Random) -> None:
    """A broker that recovers has come to some segment: its indexes are being written, and later snapshots are gone."""
    directory = partition.directory
    first = bisect_right(partition.base_offsets, recovery_point) - 1
    reached = rng.choice(list(partition.base_offsets[first:]))
    _keep_open(directory, reached, rng)
    (directory / segment_file(reached, TRANSACTION_INDEX_SUFFIX)).unlink(missing_ok=True)
    for path in _snapshots_above(directory, reached):
        path.unlink()


def _keep_open(directory: Path, base_offset: int, rng: random.Random) -> None:
    """Indexes that are open have room at their ends, and perhaps not yet all entries; a broker that makes them anew may
    have written none.
    """
    for suffix, layout in (
        (OFFSET_INDEX_SUFFIX, layouts.OFFSET_INDEX_ENTRY),
        (TIME_INDEX_SUFFIX, layouts.TIME_INDEX_ENTRY),
    ):
        path = directory / segment_file(base_offset, suffix)
        entries = len(path.read_bytes()) // layout.itemsize
        kept = rng.choice([entries, max(entries - 1, 0), rng.randint(0, entries)])
        unused = rng.randrange(1, _UNUSED_MOST)
        path.write_bytes(path.read_bytes()[: kept * layout.itemsize] + bytes(unused * layout.itemsize))


def _snapshots_above(directory: Path, offset: int) -> Iterator[Path]:
    for path in list(directory.glob(f"*{SNAPSHOT_SUFFIX}")):
        of_snapshot = parse_snapshot(path.name)
        if of_snapshot is not None and of_snapshot > offset:
            yield path
