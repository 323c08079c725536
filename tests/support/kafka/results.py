"""The results of Kafka's own recovery of segments and partitions."""

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
    """The result of recovering one segment.

    Attributes:
        truncated_bytes: None if recovery failed.
        error: the exception with which it failed.
        offset_index, time_index, transaction_index: the files' bytes; None: no such file. After a failure they are
            whatever recovery left.
        producers: the producers' state at the segment's base offset.
        seconds: the time of opening and `LogSegment.recover`, without closing, which flushes to disk.
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
    """The result of recovering a partition.

    Attributes:
        snapshot: a producer snapshot of the state after the last segment.
        map_end_offset: the offset up to which that state reaches.
        leader_epoch_checkpoint: the file's text; None: no such file.
    """

    segments: tuple[KafkaSegment, ...]
    snapshot: bytes
    map_end_offset: int
    leader_epoch_checkpoint: str | None

    @property
    def producers(self) -> frozenset[Producer]:
        return producers_in(self.snapshot)


def error_of(thrown: Py4JJavaError) -> KafkaError:
    name, _, message = str(thrown.java_exception.toString()).partition(": ")
    return KafkaError(name.rpartition(".")[2], message)
