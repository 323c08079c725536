"""What a consumer gets from a broker: every record of some partitions, and the offsets for timestamps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

#: The broker is on this machine; what takes longer, hangs.
TIMEOUT_SECONDS: Final = 60.0

#: How many records of a partition are looked for by their timestamps.
TIMES: Final = 12

_TRIES: Final = 50


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]  # its type and its milliseconds
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """A partition from its earliest record to its end.

    Attributes:
        end: where the consumer was at the end: the last stable offset for `read_committed`.
    """

    records: list[Record]
    end: int

    def differences(self, other: PartitionRead) -> list[str]:
        """The first record that differs, and what else does."""
        found = []
        pairs = zip(self.records, other.records, strict=False)
        found += [f"{here} and {there}" for here, there in pairs if here != there][:1]
        if len(self.records) != len(other.records):
            found.append(f"{len(self.records)} and {len(other.records)} records")
        if self.end != other.end:
            found.append(f"ends at {self.end} and {other.end}")
        return found


@dataclass(frozen=True, slots=True)
class Seen:
    """What consumers get of some partitions, each by its topic and number.

    Attributes:
        offsets: timestamps and the offsets that they lead to.
    """

    uncommitted: dict[tuple[str, int], PartitionRead]
    committed: dict[tuple[str, int], PartitionRead]
    offsets: dict[tuple[str, int], dict[int, int]]

    def differences(self, other: Seen) -> list[str]:
        """Where the two differ, a line each, short enough to be read."""
        found = []
        for place in self.uncommitted:
            for isolation in ("uncommitted", "committed"):
                here, there = getattr(self, isolation)[place], getattr(other, isolation)[place]
                found += [f"{place}, {isolation}: {difference}" for difference in here.differences(there)]
            answers, others = self.offsets[place], other.offsets[place]
            differing = {
                time: (answers[time], others.get(time)) for time in answers if answers[time] != others.get(time)
            }
            if differing:
                found.append(f"{place}: timestamps lead to other offsets: {differing}")
        return found


def read(bootstrap: str, partitions: Sequence[tuple[str, int]], isolation: str) -> dict[tuple[str, int], PartitionRead]:
    """Read partitions from beginning to end."""
    consumer = _batch_by_batch(bootstrap, isolation)
    found = {place: _read_partition(consumer, *place) for place in partitions}
    consumer.close()
    return found


def wait_until_read(bootstrap: str, partitions: Sequence[tuple[str, int]]) -> None:
    """Wait until the first record of each partition is given. A broker that has just started answers with an error as
    long as it has not read the metadata of remote segments (`ensureInitializedAndNotClosed`).
    """
    consumer = _batch_by_batch(bootstrap, "read_uncommitted")
    for topic, partition in partitions:
        for _ in range(_TRIES):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            message = consumer.poll(TIMEOUT_SECONDS)
            if message is not None and message.error() is None:
                break
        else:
            raise AssertionError(f"{topic}-{partition}: {_TRIES} errors, and no record")
    consumer.close()


def read_until_error(bootstrap: str, topic: str, partition: int) -> int:
    """Read a partition from its beginning until the broker answers with an error; how far that was.

    Returns:
        The offset that could not be read.
    """
    consumer = _batch_by_batch(bootstrap, "read_uncommitted")
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    next_offset = 0
    while (message := consumer.poll(TIMEOUT_SECONDS)) is not None and message.error() is None:
        offset = message.offset()
        assert offset is not None
        next_offset = offset + 1
    consumer.close()
    assert message is not None, f"nothing more came of {topic}-{partition} from offset {next_offset} on"
    error = message.error()
    assert error is not None and error.code() != KafkaError._PARTITION_EOF, f"all of {topic}-{partition} was read"
    return next_offset


def consume_in_group(bootstrap: str, topic: str, protocol: str) -> None:
    """Let the only member of a group, `group-<protocol>`, take some records of a topic, and commit their offsets."""
    group = {"group.id": f"group-{protocol}", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **group, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        assert consumer.consume(2, TIMEOUT_SECONDS)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def read_all(bootstrap: str, partitions: Sequence[tuple[str, int]]) -> Seen:
    """Read everything, at both isolation levels, and ask where timestamps lead that are spread over the records."""
    uncommitted = read(bootstrap, partitions, "read_uncommitted")
    committed = read(bootstrap, partitions, "read_committed")
    timestamps = {place: _spread(uncommitted[place].records) for place in partitions}
    offsets: dict[tuple[str, int], dict[int, int]] = {place: {} for place in partitions}
    consumer = _batch_by_batch(bootstrap, "read_uncommitted")
    for asked in zip(*timestamps.values(), strict=True):
        times = dict(zip(timestamps, asked, strict=True))
        for place, offset in _offsets_of(consumer, times).items():
            offsets[place][times[place]] = offset
    consumer.close()
    return Seen(uncommitted, committed, offsets)


def _offsets_of(consumer: Consumer, times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The offsets to which a timestamp leads in each partition. A broker that has to look into its bucket may answer
    that the time is over, and is asked again.
    """
    found: dict[tuple[str, int], int] = {}
    for _ in range(_TRIES):
        asked = [TopicPartition(*place, time) for place, time in times.items() if place not in found]
        for answer in consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS):
            if answer.error is None:
                found[answer.topic, answer.partition] = answer.offset
            else:
                assert answer.error.code() == KafkaError.REQUEST_TIMED_OUT, answer.error
        if len(found) == len(times):
            return found
    raise AssertionError(f"no offsets for {times} after {_TRIES} tries")


def _spread(records: Sequence[Record]) -> list[int]:
    """Timestamps of records from all over a partition, those just before and after, and some that lie outside."""
    times = [record.timestamp[1] for record in records]
    chosen = [times[len(times) * number // TIMES] for number in range(TIMES)]
    around = [time + step for time in chosen for step in (-1, 0, 1)]
    return [0, min(times) - 1, *around, max(times), max(times) + 1]


def _batch_by_batch(bootstrap: str, isolation: str) -> Consumer:
    """A consumer to which the broker answers with one batch: so each batch is looked up in the index by itself."""
    return consumer_of(bootstrap, isolation, **{"fetch.message.max.bytes": 1, "fetch.wait.max.ms": 10})


def consumer_of(bootstrap: str, isolation: str, **more: Any) -> Consumer:
    """A consumer that checks checksums, and says where a partition ends or that an offset is not there.

    Args:
        more: of its settings.
    """
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            # A broker that has just started does not lead its partitions yet: ask again soon.
            "fetch.error.backoff.ms": 50,
            "log_level": 2,
            **more,
        }
    )


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers: Any = message.headers() or ()
    return tuple(headers)


def _read_partition(consumer: Consumer, topic: str, partition: int) -> PartitionRead:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    records: list[Record] = []
    while True:
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None, f"nothing more came of {topic}-{partition} after {len(records)} records"
        error, offset = message.error(), message.offset()
        assert offset is not None
        if error is None:
            records.append(
                Record(
                    offset,
                    message.timestamp(),
                    message.leader_epoch(),
                    message.key(),
                    message.value(),
                    _headers(message),
                )
            )
        elif error.code() == KafkaError._PARTITION_EOF:
            return PartitionRead(records, offset)
        else:
            raise KafkaException(error)
