"""Retention policies: a file (TOML) with Kafka's own names → what each topic's configuration says.

    retention.ms = 604800000            # for all topics, and all policies below

    [policy.three-days]
    retention.ms = 259200000

    [[policy.three-days.topic]]
    match = "audit-.*"                  # a topic's full name
    retention.ms = -1

A file without `[policy.NAME]` is one policy, and its `[[topic]]` tables stand at the top.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import UsageError
from kidxlib.names import PARTITION_MAX
from kidxlib.policy_file import LONG_MAX, Place, PolicyFile, Setting, pattern, whole_number
from kidxlib.retention import UNLIMITED, Cleanup, Reason, TopicPolicy

#: The one policy of a file that names none, or of none but options.
DEFAULT_NAME: Final = "default"

#: The controller's log: a broker removes what its snapshots cover, and asks no policy.
METADATA_TOPIC: Final = "__cluster_metadata"

#: Kafka's own topics, with what a broker sets when it makes them.
INTERNAL_TOPICS: Final[Mapping[str, Mapping[str, object]]] = {
    "__consumer_offsets": {"cleanup": frozenset({Cleanup.COMPACT})},
    "__transaction_state": {"cleanup": frozenset({Cleanup.COMPACT})},
    "__share_group_state": {"retention_ms": UNLIMITED},
    "__remote_log_metadata": {"retention_ms": UNLIMITED},
}


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """What differs for the topics whose full name matches.

    Attributes:
        order: where several match, each needs one, and the smallest wins.
        line: of the file, where it stands.
    """

    match: re.Pattern[str]
    order: int | None
    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for all topics.

    Attributes:
        values: fields of `TopicPolicy` that differ from Kafka's defaults.
        where: the file it stands in.
    """

    name: str = DEFAULT_NAME
    values: Mapping[str, Any] = field(default_factory=dict)
    patterns: tuple[TopicPattern, ...] = ()
    where: str = ""

    def of_topic(self, topic: str) -> TopicPolicy:
        """A topic's own.

        Raises:
            UsageError: two patterns match it, and nothing says which comes first.
        """
        matching = [pattern for pattern in self.patterns if pattern.match.fullmatch(topic)]
        matching.sort(key=lambda pattern: (pattern.order is None, pattern.order))
        for first, second in itertools.pairwise(matching):
            if second.order is None or first.order == second.order:
                upper, lower = sorted((first, second), key=lambda pattern: pattern.line)
                raise UsageError(
                    f"{self.where}: line {lower.line}: topic {topic} matches {lower.match.pattern!r}, and "
                    f"{upper.match.pattern!r} of line {upper.line}; give each an order, the smaller wins"
                )
        own = matching[0].values if matching else {}
        return TopicPolicy(**{**self.values, **INTERNAL_TOPICS.get(topic, {}), **own})


def kept_for_its_topic(topic: str, policy: TopicPolicy, include_internal: bool) -> Reason | None:
    """Why all of a topic's segments are kept, whatever its limits; None where that is not so."""
    if topic == METADATA_TOPIC or policy.remote_storage:
        return Reason.NOT_MODELLED
    return Reason.INTERNAL_TOPIC if topic in INTERNAL_TOPICS and not include_internal else None


def read_policies(path: Path) -> tuple[Policy, ...]:
    """The policies of a file.

    Raises:
        UsageError: it cannot be read or parsed, or a line says something that it may not.
    """
    file = PolicyFile.read(path)
    shared = {key: value for key, value in file.document.items() if key not in ("policy", "topic")}
    values = file.values(shared, (), _OF_TOPIC)
    named = file.document.get("policy", {})
    if not isinstance(named, dict) or not all(isinstance(table, dict) for table in named.values()):
        file.refuse(("policy",), "policy: expected tables [policy.NAME]")
    if not named:
        return (Policy(DEFAULT_NAME, values, _patterns(file, file.document, ()), str(path)),)
    if "topic" in file.document:
        file.refuse(("topic",), "[[topic]] beside [policy.NAME]; put it into each as [[policy.NAME.topic]]")
    return tuple(_policy(file, name, table, values) for name, table in named.items())


def _policy(file: PolicyFile, name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Policy:
    path: Place = ("policy", name)
    own = file.values({key: value for key, value in table.items() if key != "topic"}, path, _OF_TOPIC)
    return Policy(name, {**shared, **own}, _patterns(file, table, path), str(file.path))


def _patterns(file: PolicyFile, table: Mapping[str, Any], path: Place) -> tuple[TopicPattern, ...]:
    entries = file.tables(table, "topic", path)
    return tuple(_pattern(file, entry, (*path, "topic", number)) for number, entry in enumerate(entries))


def _pattern(file: PolicyFile, entry: Mapping[str, Any], path: Place) -> TopicPattern:
    values = file.values(entry, path, _OF_PATTERN)
    if "match" not in values:
        file.refuse(path, "[[topic]] without match; expected a regular expression for topics' full names")
    return TopicPattern(values.pop("match"), values.pop("order", None), file.line(path), values)


def _limit(value: object) -> int:
    return whole_number(value, UNLIMITED, f"a whole number, {UNLIMITED} (no limit) or more")


def _order(value: object) -> int:
    return whole_number(value, -LONG_MAX, "a whole number")


def _flag(value: object) -> bool:
    if value is True or value is False:
        return value
    raise ValueError("true or false")


def _cleanup(value: object) -> frozenset[Cleanup]:
    words = value.split(",") if isinstance(value, str) else value
    if words in (["none"], [""]):
        return frozenset()
    try:
        if isinstance(words, list):
            return frozenset(Cleanup(str(word).strip()) for word in words)
    except ValueError:
        pass
    raise ValueError("delete, compact, both with a comma between them, or none")


def _offsets_by_partition(value: object) -> tuple[tuple[int, int], ...]:
    expected = "offsets by partition number, such as { 0 = 1500, 1 = 0 }"
    if not isinstance(value, dict) or not all(re.fullmatch("[0-9]{1,10}", partition) for partition in value):
        raise ValueError(expected)
    return tuple(
        (whole_number(int(partition), 0, expected, PARTITION_MAX), whole_number(offset, 0, expected))
        for partition, offset in value.items()
    )


#: What the keys set that a topic's configuration has, and those that a pattern has besides.
_OF_TOPIC: Final = {
    "retention.ms": Setting("retention_ms", _limit),
    "retention.bytes": Setting("retention_bytes", _limit),
    "cleanup.policy": Setting("cleanup", _cleanup),
    "remote.storage.enable": Setting("remote_storage", _flag),
}
_OF_PATTERN: Final = {
    **_OF_TOPIC,
    "log.start.offsets": Setting("log_start_offsets", _offsets_by_partition),
    "match": Setting("match", pattern),
    "order": Setting("order", _order),
}
