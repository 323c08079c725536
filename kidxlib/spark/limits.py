"""Where reading begins and ends, from the options of Spark's Kafka source (`KafkaSourceProvider`, `JsonUtils`)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition

#: The numbers that mean the ends of a log in Spark's options.
LATEST: Final = -1
_EARLIEST: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """The options that say where reading begins, or those that say where it ends.

    Attributes:
        word, number: mean no limit.
        other_word, other: mean the other end of the log.
    """

    timestamp: str
    offsets_by_timestamp: str
    offsets: str
    word: str
    number: int
    other_word: str
    other: int


STARTING: Final = LimitOptions(
    timestamp="startingTimestamp",
    offsets_by_timestamp="startingOffsetsByTimestamp",
    offsets="startingOffsets",
    word="earliest",
    number=_EARLIEST,
    other_word="latest",
    other=LATEST,
)
ENDING: Final = LimitOptions(
    timestamp="endingTimestamp",
    offsets_by_timestamp="endingOffsetsByTimestamp",
    offsets="endingOffsets",
    word="latest",
    number=LATEST,
    other_word="earliest",
    other=_EARLIEST,
)


@dataclass(frozen=True, slots=True)
class Limit:
    """Where reading begins, or before which record it ends.

    Attributes:
        option: the option with the limit.
        is_time: numbers are timestamps in ms since the epoch, and mean the first record with this timestamp or a later
            one. Else they are offsets.
        everywhere: the limit of all partitions; None for no limit.
        by_partition: the limit of each partition that is read, None for no limit; None if `everywhere` counts.
    """

    option: str
    is_time: bool = False
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int | None] | None = None

    def of_partition(self, partition: TopicPartition) -> int | None:
        """The limit of a partition; None for no limit."""
        return self.everywhere if self.by_partition is None else self.by_partition[partition]

    def ensure_names(self, partitions: Collection[TopicPartition]) -> None:
        named = set(self.by_partition or ())
        if self.by_partition is None or named == set(partitions):
            return
        differences = {"missing": set(partitions) - named, "not read": named - set(partitions)}
        raise UsageError(
            f"{self.option}: expected each partition that is read, and no other; "
            + "; ".join(
                f"{what}: {', '.join(partition.directory for partition in sorted(different)[:3])}"
                for what, different in differences.items()
                if different
            )
        )


def parse_limit(given: Mapping[str, str], options: LimitOptions, *, takes_other: bool = False) -> Limit:
    """The limit that the options give. The first option that is there counts, as in Spark: the timestamp, offsets by
    timestamps, offsets. With `takes_other`, the limit may be the other end of the log, as its number: a stream may
    begin at the latest offset.
    """
    if (text := given.get(options.timestamp)) is not None:
        return Limit(options.timestamp, is_time=True, everywhere=_milliseconds(options.timestamp, text))
    if (text := given.get(options.offsets_by_timestamp)) is not None:
        return Limit(
            options.offsets_by_timestamp, is_time=True, by_partition=by_partition(options.offsets_by_timestamp, text)
        )
    text = given.get(options.offsets, options.word).strip()
    if text.lower() == options.word:
        return Limit(options.offsets)
    if takes_other and text.lower() == options.other_word:
        return Limit(options.offsets, everywhere=options.other)
    numbers: dict[TopicPartition, int | None] = {}
    for partition, number in by_partition(options.offsets, text).items():
        if number < min(options.number, options.other) or (number == options.other and not takes_other):
            raise UsageError(
                f"{options.offsets} of {partition.directory}: {number}, expected an offset, or {options.number} for "
                f"{options.word}"
            )
        numbers[partition] = None if number == options.number else number
    return Limit(options.offsets, by_partition=numbers)


def by_partition(option: str, text: str) -> dict[TopicPartition, int]:
    """A number for each partition, from JSON: {"topic": {"0": 23, "1": 42}}."""
    try:
        return {
            TopicPartition(topic, int(partition)): _whole(number)
            for topic, numbers in json.loads(text).items()
            for partition, number in numbers.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f'{option} {text}: expected a number for each partition in JSON, as {{"topic": {{"0": 23, "1": 42}}}}'
        ) from error


def _whole(number: object) -> int:
    if type(number) is not int or not -(2**63) <= number < 2**63:
        raise ValueError(number)
    return number


def _milliseconds(option: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()) or not -(2**63) <= int(text) < 2**63:
        raise UsageError(f"{option} {text}: expected milliseconds since the epoch")
    return int(text)
