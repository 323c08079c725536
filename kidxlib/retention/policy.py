"""Retention policies: each topic's configuration from a file, a broker or an option, and who set each value."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import METADATA_TOPIC
from kidxlib.retention.reasons import Reason
from kidxlib.retention.topic_policy import DECIDING_CONFIGS, UNLIMITED, Cleanup, TopicPolicy

#: The one policy of a file that names none, or of none but options.
_DEFAULT_NAME: Final = "default"

#: Kafka's own topics, with what a broker sets when it makes them.
_INTERNAL_TOPICS: Final[Mapping[str, Mapping[str, object]]] = {
    "__consumer_offsets": {"cleanup": frozenset({Cleanup.COMPACT})},
    "__transaction_state": {"cleanup": frozenset({Cleanup.COMPACT})},
    "__share_group_state": {"retention_ms": UNLIMITED},
    "__remote_log_metadata": {"retention_ms": UNLIMITED},
}

#: The fields of `TopicPolicy` that a deletion rests on, by Kafka's names.
_FIELDS: Final = {
    "cleanup.policy": "cleanup",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "remote.storage.enable": "remote_storage",
}


class Origin(enum.StrEnum):
    """Who set a value of a topic's configuration."""

    TOPIC = "topic"  # it was said of this very topic
    BROKER = "broker"  # the topic's broker, or all brokers, for topics without a value of their own
    PATTERN = "pattern"  # for all topics whose names match
    DEFAULT = "default"  # for all topics of the file
    OPTION = "option"  # for all topics, on the command line
    KAFKA = "kafka-default"  # nobody; Kafka's own default stands in


#: With these a value was said of the topic, and not of others with it.
_OF_ONE_TOPIC: Final = (Origin.TOPIC, Origin.BROKER)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configuration.

    Attributes:
        policy: the values; Kafka's own defaults for those that nobody set.
        origins: who set each value that a deletion depends on, by Kafka's names.
    """

    policy: TopicPolicy
    origins: Mapping[str, Origin]

    @property
    def unknown(self) -> tuple[str, ...]:
        """The values that nobody set, of all that a deletion would depend on; by Kafka's names.

        The limits do not count if `cleanup.policy` is known to be without `delete`.
        """
        names: tuple[str, ...] = DECIDING_CONFIGS
        if self.origins["cleanup.policy"] is not Origin.KAFKA and Cleanup.DELETE not in self.policy.cleanup:
            names = ("cleanup.policy", "remote.storage.enable")
        return tuple(name for name in names if self.origins[name] is Origin.KAFKA)

    @property
    def assumes_delete(self) -> bool:
        """Whether segments are deleted by a `cleanup.policy` that was set not for this topic alone, but for several."""
        return Cleanup.DELETE in self.policy.cleanup and self.origins["cleanup.policy"] not in _OF_ONE_TOPIC

    def contradicted_by(self, other: TopicConfig) -> list[str]:
        """The values that both know, and that are not the same; by Kafka's names."""
        return [
            name
            for name in DECIDING_CONFIGS
            if Origin.KAFKA not in (self.origins[name], other.origins[name])
            and getattr(self.policy, _FIELDS[name]) != getattr(other.policy, _FIELDS[name])
        ]

    def without(self, names: Collection[str]) -> TopicConfig:
        """This configuration, of which some values are not known."""
        return replace(self, origins={**self.origins, **dict.fromkeys(names, Origin.KAFKA)})

    def keeping_what_is_compacted(self, own: TopicConfig) -> TopicConfig:
        """This configuration; of a topic that has its own `cleanup.policy`, and none with `delete`, with that one where
        `delete` was said for several topics.
        """
        origin = own.origins["cleanup.policy"]
        if not self.assumes_delete or origin is Origin.KAFKA or Cleanup.DELETE in own.policy.cleanup:
            return self
        return TopicConfig(replace(self.policy, cleanup=own.policy.cleanup), {**self.origins, "cleanup.policy": origin})

    def keeping_what_is_tiered(self, own: TopicConfig) -> TopicConfig:
        """This configuration; of a topic that is tiered itself, with that, where something else was said for several
        topics: a broker keeps what it has not copied yet.
        """
        name = "remote.storage.enable"
        if not own.policy.remote_storage or own.origins[name] is Origin.KAFKA or self.origins[name] in _OF_ONE_TOPIC:
            return self
        return TopicConfig(replace(self.policy, remote_storage=True), {**self.origins, name: own.origins[name]})

    def completed(self, other: TopicConfig) -> TopicConfig:
        """This configuration, with what another says for values that nobody set."""
        names = [
            name
            for name in DECIDING_CONFIGS
            if self.origins[name] is Origin.KAFKA and other.origins[name] is not Origin.KAFKA
        ]
        values = {_FIELDS[name]: getattr(other.policy, _FIELDS[name]) for name in names}
        origins = {**self.origins, **{name: other.origins[name] for name in names}}
        return TopicConfig(replace(self.policy, **values), origins)


#: Of a topic of which nobody has said anything.
NOTHING_KNOWN: Final = TopicConfig(TopicPolicy(), dict.fromkeys(DECIDING_CONFIGS, Origin.KAFKA))


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """The values that differ for the topics whose full name matches.

    Attributes:
        order: if several patterns match, each needs an order, and the smallest wins.
    """

    match: re.Pattern[str]
    order: int | None
    values: Mapping[str, Any]

    def origin_for(self, topic: str) -> Origin:
        """Whether it names this topic alone, or several."""
        return Origin.TOPIC if re.sub(r"\\([.-])", r"\1", self.match.pattern) == topic else Origin.PATTERN


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for all topics.

    Attributes:
        values: fields of `TopicPolicy` that differ from Kafka's defaults.
        origin: who set these.
        described: topics' configurations that a broker gave.
        where: the file that it stands in, and there its key.
    """

    name: str = _DEFAULT_NAME
    values: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = Origin.DEFAULT
    patterns: tuple[TopicPattern, ...] = ()
    described: Mapping[str, TopicConfig] = field(default_factory=dict)
    where: str = ""

    def of_topic(self, topic: str) -> TopicConfig:
        """The configuration of a topic.

        Raises:
            UsageError: two patterns match it, and no order says which wins.
        """
        if (described := self.described.get(topic)) is not None:
            return described
        matching = [pattern for pattern in self.patterns if pattern.match.fullmatch(topic)]
        matching.sort(key=lambda pattern: (pattern.order is None, pattern.order))
        for first, second in itertools.pairwise(matching):
            if second.order is None or first.order == second.order:
                raise UsageError(
                    f"{self.where}: topic {topic} matches {first.match.pattern!r} and {second.match.pattern!r}; "
                    "give each an order, the smaller wins"
                )
        internal = _INTERNAL_TOPICS.get(topic, {})
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
    """Why none of a topic's segments is deleted, whatever its limits; None if they may be.

    Args:
        what_if: use Kafka's own defaults for values that nobody set.
        looks_compacted: some of its segments lack offsets, which only compaction does.
    """
    # Of the controller's log a broker removes what its snapshots cover, and asks no policy.
    if topic == METADATA_TOPIC or config.policy.remote_storage:
        return Reason.NOT_MODELLED
    if topic in _INTERNAL_TOPICS and not include_internal:
        return Reason.INTERNAL_TOPIC
    if config.unknown and not what_if:
        return Reason.POLICY_UNKNOWN
    return Reason.LOOKS_COMPACTED if looks_compacted and config.assumes_delete else None
