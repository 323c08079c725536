"""What Kafka's own recovery leaves of segments and partitions, or throws."""

from __future__ import annotations

from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError

from tests.support.logs.snapshots import Producer, producers_in


@dataclass(frozen=True, slots=True)
class KafkaError:
    """An exception that recovery did not catch: its simple class name and its message."""

    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSegment:
    """What recovery made of one segment.

    Attributes:
        truncated_bytes: what it truncated; None where it failed.
        error: how it failed.
        offset_index, time_index, transaction_index: the files' bytes; None where there is no such file. Of a segment
            where it failed they are whatever it left.
        producers: their state at the segment's base offset.
        seconds: what opening it and `LogSegment.recover` took; closing, which flushes it to disk, is not counted.
    """

    base_offset: int
    truncated_bytes: int | None
    error: KafkaError | None
    offset_index: bytes | None
    time_index: bytes | None
    transaction_index: bytes | None
    producers: frozenset[Producer]
    seconds: float = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """What recovery made of a partition.

    Attributes:
        snapshot: a producer snapshot of the state after the last segment.
        map_end_offset: the offset up to which that state reaches.
        leader_epoch_checkpoint: the text of that file; None where there is none.
    """

    segments: tuple[KafkaSegment, ...]
    snapshot: bytes
    map_end_offset: int
    leader_epoch_checkpoint: str | None

    @property
    def producers(self) -> frozenset[Producer]:
        """Their state after the last segment."""
        return producers_in(self.snapshot)


def error_of(thrown: Py4JJavaError) -> KafkaError:
    """What Kafka has thrown."""
    name, _, message = str(thrown.java_exception.toString()).partition(": ")
    return KafkaError(name.rpartition(".")[2], message)
