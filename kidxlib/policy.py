"""Retention policies: a file with Kafka's own names → what each topic's configuration says, and who said it. In TOML:

    cleanup.policy = "delete"           # for all topics, and all policies below
    retention.ms = 604800000

    [policy.three-days]
    retention.ms = 259200000

    [[policy.three-days.topic]]
    match = "audit-.*"                  # a topic's full name
    retention.ms = -1

A file without `[policy.NAME]` is one policy, and its `[[topic]]` tables stand at the top. What Kafka's tools print of
topics is read too, as one policy (`kidxlib.described_configs`).
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kidxlib.described_configs import Described, Said, is_described, read_described
from kidxlib.errors import UsageError
from kidxlib.names import PARTITION_MAX
from kidxlib.policy_file import LONG_MAX, Place, PolicyFile, Setting, pattern, read_text, whole_number
from kidxlib.retention import RESTED_ON, UNLIMITED, Cleanup, Reason, TopicPolicy

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


class Origin(enum.StrEnum):
    """Who said a value of a topic's configuration."""

    TOPIC = "topic"  # it was said of this very topic
    BROKER = "broker"  # the topic's broker, of this very topic
    PATTERN = "pattern"  # for all topics whose names match
    DEFAULT = "default"  # for all topics of the file
    OPTION = "option"  # for all topics, on the command line
    KAFKA = "kafka-default"  # nobody; Kafka's own default stands in


#: With these a value was said of the topic, and not of others with it.
_OF_ONE_TOPIC: Final = (Origin.TOPIC, Origin.BROKER)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic's configuration says.

    Attributes:
        policy: Kafka's own defaults where nobody said anything.
        origins: of each value that a deletion rests on, by Kafka's names.
    """

    policy: TopicPolicy
    origins: Mapping[str, Origin]

    @property
    def unknown(self) -> tuple[str, ...]:
        """What nobody said, of all that a deletion would rest on; by Kafka's names.

        The limits are none of that where `cleanup.policy` is known to be without `delete`.
        """
        names: tuple[str, ...] = RESTED_ON
        if self.origins["cleanup.policy"] is not Origin.KAFKA and Cleanup.DELETE not in self.policy.cleanup:
            names = ("cleanup.policy", "remote.storage.enable")
        return tuple(name for name in names if self.origins[name] is Origin.KAFKA)

    @property
    def assumes_delete(self) -> bool:
        """Whether segments are deleted by a `cleanup.policy` that was not said of this topic, but of others with it."""
        return Cleanup.DELETE in self.policy.cleanup and self.origins["cleanup.policy"] not in _OF_ONE_TOPIC


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

    def origin_for(self, topic: str) -> Origin:
        """Whether it means this topic, or others with it."""
        return Origin.TOPIC if re.sub(r"\\([.-])", r"\1", self.match.pattern) == topic else Origin.PATTERN


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for all topics.

    Attributes:
        values: fields of `TopicPolicy` that differ from Kafka's defaults.
        origin: who said these.
        described: what a broker said of topics.
        where: the file it stands in.
    """

    name: str = DEFAULT_NAME
    values: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = Origin.DEFAULT
    patterns: tuple[TopicPattern, ...] = ()
    described: Mapping[str, TopicConfig] = field(default_factory=dict)
    where: str = ""

    def of_topic(self, topic: str) -> TopicConfig:
        """A topic's own.

        Raises:
            UsageError: two patterns match it, and nothing says which comes first.
        """
        if (described := self.described.get(topic)) is not None:
            return described
        matching = [pattern for pattern in self.patterns if pattern.match.fullmatch(topic)]
        matching.sort(key=lambda pattern: (pattern.order is None, pattern.order))
        for first, second in itertools.pairwise(matching):
            if second.order is None or first.order == second.order:
                upper, lower = sorted((first, second), key=lambda pattern: pattern.line)
                raise UsageError(
                    f"{self.where}: line {lower.line}: topic {topic} matches {lower.match.pattern!r}, and "
                    f"{upper.match.pattern!r} of line {upper.line}; give each an order, the smaller wins"
                )
        internal = INTERNAL_TOPICS.get(topic, {})
        own = matching[0].values if matching else {}
        origins = {
            **dict.fromkeys(_FIELDS.values(), Origin.KAFKA),
            **dict.fromkeys(self.values, self.origin),
            **dict.fromkeys(internal, Origin.KAFKA),
            **(dict.fromkeys(own, matching[0].origin_for(topic)) if matching else {}),
        }
        return TopicConfig(
            TopicPolicy(**{**self.values, **internal, **own}), {name: origins[field] for name, field in _FIELDS.items()}
        )


def kept_for_its_topic(
    topic: str, config: TopicConfig, *, include_internal: bool, what_if: bool, looks_compacted: bool
) -> Reason | None:
    """Why none of a topic's segments goes, whatever its limits; None where that is not so.

    Args:
        what_if: Kafka's own defaults are good enough where nobody said anything.
        looks_compacted: some of its segments lack offsets, as only compaction leaves them.
    """
    if topic == METADATA_TOPIC or config.policy.remote_storage:
        return Reason.NOT_MODELLED
    if topic in INTERNAL_TOPICS and not include_internal:
        return Reason.INTERNAL_TOPIC
    if config.unknown and not what_if:
        return Reason.POLICY_UNKNOWN
    return Reason.LOOKS_COMPACTED if looks_compacted and config.assumes_delete else None


def read_policies(path: Path) -> tuple[Policy, ...]:
    """The policies of a file.

    Raises:
        UsageError: it cannot be read or parsed, or a line says something that it may not.
    """
    text = read_text(path)
    if is_described(path, text):
        return (Policy(described=_described(path, read_described(path, text)), where=str(path)),)
    file = PolicyFile.parse(path, text)
    shared = {key: value for key, value in file.document.items() if key not in ("policy", "topic")}
    values = file.values(shared, (), _OF_TOPIC)
    named = file.document.get("policy", {})
    if not isinstance(named, dict) or not all(isinstance(table, dict) for table in named.values()):
        file.refuse(("policy",), "policy: expected tables [policy.NAME]")
    if not named:
        return (Policy(values=values, patterns=_patterns(file, file.document, ()), where=str(path)),)
    if "topic" in file.document:
        file.refuse(("topic",), "[[topic]] beside [policy.NAME]; put it into each as [[policy.NAME.topic]]")
    return tuple(_policy(file, name, table, values) for name, table in named.items())


def _policy(file: PolicyFile, name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Policy:
    path: Place = ("policy", name)
    own = file.values({key: value for key, value in table.items() if key != "topic"}, path, _OF_TOPIC)
    return Policy(name, {**shared, **own}, patterns=_patterns(file, table, path), where=str(file.path))


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

#: The fields of `TopicPolicy` that a deletion rests on, by Kafka's names.
_FIELDS: Final = {name: _OF_TOPIC[name].field for name in RESTED_ON}


def _described(path: Path, found: Described) -> dict[str, TopicConfig]:
    return {topic: _described_topic(path, topic, told) for topic, told in found.items()}


def _described_topic(path: Path, topic: str, told: Mapping[str, Said]) -> TopicConfig:
    values = {}
    origins = dict.fromkeys(RESTED_ON, Origin.KAFKA)
    for name, said in told.items():
        setting = _OF_TOPIC[name]
        try:
            values[setting.field] = setting.check(_value(said.value))
        except ValueError as expected:
            line = f"line {said.line}: " if said.line else ""
            raise UsageError(f"{path}: {line}topic {topic}: {name}={said.value}; expected {expected}") from expected
        origins[name] = Origin.TOPIC if said.of_topic else Origin.BROKER
    return TopicConfig(TopicPolicy(**values), origins)


def _value(text: str) -> object:
    """What TOML would have in place of a text."""
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)
