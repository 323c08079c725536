"""Which partitions are read, as options of Spark's Kafka source say it (`ConsumerStrategy`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.terminal.options.sources import parse_topics

_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions to read: those of some topics, of topics in whose names a pattern is found, wherever it is there,
    or these; all where nothing is said. Neither this nor a pattern means topics that brokers keep for themselves. One
    attribute at most is set.
    """

    subscribed: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[TopicPartition] | None = None

    def among(self, listed: Sequence[PartitionDirectory]) -> list[TopicPartition]:
        """The partitions to read, of those that are there.

        Raises:
            UsageError: a topic or partition that is named is not there.
        """
        missing: list[str] = []
        there = [each.topic_partition for each in listed]
        if self.assigned is not None:
            missing = sorted(each.directory for each in self.assigned.difference(there))
        elif self.subscribed is not None:
            missing = sorted(self.subscribed.difference(each.topic for each in there))
        if missing:
            topics = sorted({each.topic for each in there})
            raise UsageError(f"no partition of {', '.join(missing[:3])}; there are topics {', '.join(topics[:10])}")
        return self.found(listed)

    def found(self, listed: Sequence[PartitionDirectory]) -> list[TopicPartition]:
        """The partitions to read that are there, of which some that are named may be missing."""
        there = [each.topic_partition for each in listed]
        if self.assigned is not None:
            return [each for each in there if each in self.assigned]
        if self.subscribed is not None:
            return [each for each in there if each.topic in self.subscribed]
        there = [each.topic_partition for each in listed if not each.is_meant_by_name_only]
        return [each for each in there if self.pattern is None or self.pattern.search(each.topic)]


def parse_choice(given: Mapping[str, str]) -> Topics:
    """What the options say.

    Raises:
        UsageError: more than one is given, or one is malformed.
    """
    named = [option for option in _OPTIONS if option in given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: expected one of them, or none for all topics")
    if "subscribe" in given:
        topics = frozenset(filter(None, (topic.strip() for topic in given["subscribe"].split(","))))
        if not topics:
            raise UsageError(f"subscribe {given['subscribe']!r}: expected topics, separated by commas")
        return Topics(subscribed=topics)
    if "subscribePattern" in given:
        return Topics(pattern=parse_topics(given["subscribePattern"].strip(), "subscribePattern"))
    return Topics(assigned=_assigned(given["assign"])) if "assign" in given else Topics()


def _assigned(text: str) -> frozenset[TopicPartition]:
    try:
        found = frozenset(
            TopicPartition(topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f'assign {text}: expected JSON as {{"topic": [0, 1], "another": [3]}}') from error
    if not found:
        raise UsageError(f"assign {text}: expected a partition")
    return found
