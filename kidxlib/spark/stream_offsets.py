"""The end of a micro-batch of a stream, in Spark's checkpoint: in the JSON of its Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition

#: A key among topics, none of which can have this name.
_LOG_BYTES: Final = "log bytes"
_STARTS: Final = "starting offsets"

Numbers = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The end of a micro-batch.

    Attributes:
        ends: records of a partition with lower offsets were read by then. A partition that is not named is new: it is
            read from 0 on.
        log_bytes: of the batches from the start of the micro-batch to its end, for each partition of which something is
            read. Logs of Kafka do not change but by compaction and truncation, which this shows.
        starts: where the stream begins, if this is its first micro-batch; else None.
    """

    ends: Numbers
    log_bytes: Numbers = field(default_factory=dict)
    starts: Numbers | None = None

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Self:
        """Parse the JSON of a checkpoint."""
        try:
            topics = {name: each for name, each in found.items() if name not in (_LOG_BYTES, _STARTS)}
            starts = _numbers(found[_STARTS]) if _STARTS in found else None
            return cls(_numbers(topics), _numbers(found.get(_LOG_BYTES, {})), starts)
        except (ValueError, AttributeError) as error:
            raise UsageError(
                f'offsets {found}: expected a checkpoint of this source, as {{"topic": {{"0": 23}}}}; start the stream '
                "with a checkpoint location of its own"
            ) from error

    def as_json(self) -> dict[str, Any]:
        """The JSON of a checkpoint, with keys in a fixed order, as Spark compares texts."""
        found: dict[str, Any] = _by_topic(self.ends)
        if self.log_bytes:
            found[_LOG_BYTES] = _by_topic(self.log_bytes)
        if self.starts is not None:
            found[_STARTS] = _by_topic(self.starts)
        return found


def _numbers(by_topic: Mapping[str, Mapping[str, int]]) -> Numbers:
    return {
        TopicPartition(topic, int(partition)): int(number)
        for topic, numbers in by_topic.items()
        for partition, number in numbers.items()
    }


def _by_topic(numbers: Numbers) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(numbers):
        found.setdefault(partition.topic, {})[str(partition.partition)] = numbers[partition]
    return found
