"""The offsets of a stream's micro-batches, as Spark's checkpoints have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition

#: Keys among topics; no topic can have these names, as they have a space.
_LOG_BYTES: Final = "log bytes"
_STARTS: Final = "starting offsets"

Numbers = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The end of a micro-batch.

    Attributes:
        ends: the offset behind the last one that was read by then, for each partition. A partition that is not named is
            new: it is read from 0 on.
        log_bytes: the bytes of batches from the start of the micro-batch to its end, for each partition that is read.
            Only compaction and truncation change Kafka's logs, and this number shows that.
        starts: where the stream begins, if this is its first micro-batch; else None.
    """

    ends: Numbers
    log_bytes: Numbers = field(default_factory=dict)
    starts: Numbers | None = None

    @classmethod
    def parse(cls, checkpoint: Mapping[str, Any]) -> Self:
        try:
            topics = {name: numbers for name, numbers in checkpoint.items() if name not in (_LOG_BYTES, _STARTS)}
            starts = _numbers(checkpoint[_STARTS]) if _STARTS in checkpoint else None
            return cls(_numbers(topics), _numbers(checkpoint.get(_LOG_BYTES, {})), starts)
        except (ValueError, AttributeError) as error:
            raise UsageError(
                f'offsets {checkpoint}: expected a checkpoint of this source, as {{"topic": {{"0": 23}}}}; start the '
                "stream with a checkpoint location of its own"
            ) from error

    def as_json(self) -> dict[str, Any]:
        """The JSON of a checkpoint, with keys in a fixed order, as Spark compares texts."""
        checkpoint: dict[str, Any] = _by_topic(self.ends)
        if self.log_bytes:
            checkpoint[_LOG_BYTES] = _by_topic(self.log_bytes)
        if self.starts is not None:
            checkpoint[_STARTS] = _by_topic(self.starts)
        return checkpoint


def _numbers(by_topic: Mapping[str, Mapping[str, int]]) -> Numbers:
    return {
        TopicPartition(topic, int(partition)): int(number)
        for topic, numbers in by_topic.items()
        for partition, number in numbers.items()
    }


def _by_topic(numbers: Numbers) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for partition in sorted(numbers):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = numbers[partition]
    return by_topic
