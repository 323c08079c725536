"""Retention policies: each topic's configuration from a file, a broker or an option, with Kafka's names and defaults,
who set each value, and the reasons that retention has for a segment.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from kidxlib.errors import UsageError

#: The name of the only policy, if a file names none or there are only options.
_DEFAULT_NAME: Final = "default"

#: Kafka's own default of `retention.ms`.
RETENTION_MS_DEFAULT: Final = 7 * 24 * 60 * 60 * 1000
#: The value of a limit in a policy that means no limit; Kafka's own default of `retention.bytes`.
UNLIMITED: Final = -1
#: The config of a topic that is tiered (KIP-405).
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
#: The settings of a topic that a deletion rests on, by Kafka's names.
DECIDING_CONFIGS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", REMOTE_STORAGE_ENABLE)


class Cleanup(enum.StrEnum):
    """A value of `cleanup.policy`; a topic may have both, or none."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """The retention settings of a topic's configuration, with Kafka's names.

    Attributes:
        retention_ms, retention_bytes: −1: no limit.
        cleanup: `cleanup.policy`: by limits, by compaction, by both or by none.
        log_start_offsets: by partition, the offset below which records were deleted, or are to be.
        remote_storage: the topic is tiered, which is not modelled.
    """

    retention_ms: int = RETENTION_MS_DEFAULT
    retention_bytes: int = UNLIMITED
    cleanup: frozenset[Cleanup] = frozenset({Cleanup.DELETE})
    log_start_offsets: tuple[tuple[int, int], ...] = ()
    remote_storage: bool = False

    @property
    def cleanup_text(self) -> str:
        """`cleanup.policy` as Kafka writes it."""
        return ",".join(sorted(value.value for value in self.cleanup))

    def log_start_asked_for(self, partition: int) -> int | None:
        """The offset below which records of a partition are to be deleted; None if none was asked for."""
        return dict(self.log_start_offsets).get(partition)


#: Kafka's own topics, with the settings that a broker gives them.
INTERNAL_TOPIC_SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
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

    TOPIC = "topic"  # the value was given for this very topic
    BROKER = "broker"  # the topic's broker, or all brokers, for topics without a value of their own
    PATTERN = "pattern"  # for all topics whose names match
    DEFAULT = "default"  # for all topics of the file
    OPTION = "option"  # for all topics, on the command line
    KAFKA = "kafka-default"  # nobody; Kafka's own default stands in


#: Origins of values that were set for the topic alone.
_OF_ONE_TOPIC: Final = (Origin.TOPIC, Origin.BROKER)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configuration.

    Attributes:
        policy: the values; Kafka's own default if nobody set a value.
        origins: who set each value that a deletion depends on, by Kafka's names.
    """

    policy: TopicPolicy
    origins: Mapping[str, Origin]

    @property
    def unknown(self) -> tuple[str, ...]:
        """The settings that nobody gave and that a deletion would depend on, by Kafka's names. The limits do not count
        if `cleanup.policy` is known to be without `delete`.
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
        """The settings that are known in both configurations and differ, by Kafka's names."""
        return [
            name
            for name in DECIDING_CONFIGS
            if Origin.KAFKA not in (self.origins[name], other.origins[name])
            and getattr(self.policy, _FIELDS[name]) != getattr(other.policy, _FIELDS[name])
        ]

    def without(self, names: Collection[str]) -> TopicConfig:
        """This configuration as if nobody had set some values."""
        return replace(self, origins={**self.origins, **dict.fromkeys(names, Origin.KAFKA)})

    def keeping_what_is_compacted(self, own: TopicConfig) -> TopicConfig:
        """This configuration. If its `delete` was set for several topics, and the topic has its own `cleanup.policy`
        without `delete`, the topic's own counts.
        """
        origin = own.origins["cleanup.policy"]
        if not self.assumes_delete or origin is Origin.KAFKA or Cleanup.DELETE in own.policy.cleanup:
            return self
        return TopicConfig(replace(self.policy, cleanup=own.policy.cleanup), {**self.origins, "cleanup.policy": origin})

    def keeping_what_is_tiered(self, own: TopicConfig) -> TopicConfig:
        """This configuration. If the topic's own says that it is tiered, that counts before a value that was set for
        several topics: a broker keeps what it has not copied yet.
        """
        name = REMOTE_STORAGE_ENABLE
        if not own.policy.remote_storage or own.origins[name] is Origin.KAFKA or self.origins[name] in _OF_ONE_TOPIC:
            return self
        return TopicConfig(replace(self.policy, remote_storage=True), {**self.origins, name: own.origins[name]})

    def completed(self, other: TopicConfig) -> TopicConfig:
        """This configuration, with the values of another where nobody set one here."""
        names = [
            name
            for name in DECIDING_CONFIGS
            if self.origins[name] is Origin.KAFKA and other.origins[name] is not Origin.KAFKA
        ]
        values = {_FIELDS[name]: getattr(other.policy, _FIELDS[name]) for name in names}
        origins = {**self.origins, **{name: other.origins[name] for name in names}}
        return TopicConfig(replace(self.policy, **values), origins)


#: The configuration of a topic for which nobody has set anything.
NOTHING_KNOWN: Final = TopicConfig(TopicPolicy(), dict.fromkeys(DECIDING_CONFIGS, Origin.KAFKA))


@dataclass(frozen=True, slots=True)
class Written:
    """When a partition was last written to, in ms since the epoch.

    Attributes:
        written_ms: by the files of the logs.
        last_ms: by the last record; as `written_ms` if no record has a time.
    """

    written_ms: int
    last_ms: int


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
        """`TOPIC` if the pattern names this topic alone, `PATTERN` if it may match several."""
        return Origin.TOPIC if re.sub(r"\\([.-])", r"\1", self.match.pattern) == topic else Origin.PATTERN


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for all topics.

    Attributes:
        values: the fields of `TopicPolicy` that the policy sets.
        origin: who set these fields.
        described: topics' configurations that a broker gave.
        where: the file that has the policy, and the policy's key in it.
    """

    name: str = _DEFAULT_NAME
    values: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = Origin.DEFAULT
    patterns: tuple[TopicPattern, ...] = ()
    described: Mapping[str, TopicConfig] = field(default_factory=dict)
    where: str = ""

    def of_topic(self, topic: str) -> TopicConfig:
        """The configuration of a topic. Refuses two patterns that match it without an order that says which wins."""
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
        internal = INTERNAL_TOPIC_SETTINGS.get(topic, {})
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


class Decision(enum.StrEnum):
    """What retention does with a segment."""

    DELETE = "delete"
    KEEP = "keep"
    UNDECIDED = "undecided"  # nobody set the values that a decision would depend on


class _Word(enum.StrEnum):
    """A word of plans, with its meaning for `docs/retention.md`."""

    meaning: str

    # A member is also looked up by its word alone.
    def __new__(cls, word: str, meaning: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


class Reason(_Word):
    """Why a segment is deleted or stays."""

    # it goes
    LOG_START = "log-start", "it lies below the log start offset"
    SIZE = "size", "without it the partition still has `retention.bytes`"
    TIME = "time", "its largest timestamp is older than `retention.ms`"
    # it stays
    ACTIVE = "active", "it is the last, and empty"
    HIGH_WATERMARK = "high-watermark", "it reaches above the high watermark"
    AFTER_KEPT = "behind", "it would go, but an earlier segment stays"
    TIME_NOT_REACHED = "time-not-reached", "its largest timestamp is not that old"
    FUTURE_TIMESTAMP = "future-timestamp", "its largest timestamp lies in the future"
    NO_TIMESTAMPS = "no-timestamps", "no batch has one, and the log was modified within `retention.ms`"
    SIZE_NOT_REACHED = "size-not-reached", "the only limit, `retention.bytes`, is not reached"
    NO_LIMIT = "no-limit", "the topic has neither limit"
    COMPACTED = "compacted", "`cleanup.policy` is `compact` alone"
    NO_POLICY = "no-policy", "`cleanup.policy` is empty"
    NOT_WELL = (
        "not-well",
        "its [status](catalog.md#the-status-of-a-segment) is `quarantined`, `changed` or `unreadable`",
    )
    LOOKS_COMPACTED = (
        "looks-compacted",
        "its topic looks compacted, and no setting of origin `topic` or `broker` says `delete`",
    )
    INTERNAL_TOPIC = (
        "internal-topic",
        "its topic is one of Kafka's internal topics; `--include-internal` decides on these, too",
    )
    NOT_MODELLED = (
        "not modelled",
        "`__cluster_metadata`, a topic with remote storage, or a [bucket of tiered storage](tiered.md)",
    )
    # it is not decided on
    POLICY_UNKNOWN = "policy-unknown", "a value that a deletion rests on is not set; the segment stays"


#: The reasons by the numbers that stand for them in columns.
REASONS: Final = tuple(Reason)


class PlanWarning(_Word):
    """A decision, or the reason for it, that a person would not expect."""

    WHOLE_PARTITION = "whole-partition", "all segments of the partition go"
    LOOKS_COMPACTED = (
        "looks-compacted",
        "the segment goes although its topic looks compacted: its `cleanup.policy` is set to `delete`",
    )
    FUTURE_TIMESTAMP = (
        "future-timestamp",
        "its largest timestamp lies in the future: by time, the segment stays until that time and `retention.ms` more"
        " (the local log of a tiered topic, too, up to Kafka 4.4.0: KAFKA-20609). If it may be in µs or ns, the line"
        " says so",
    )
    TIMESTAMPS_IN_SECONDS = (
        "timestamps-in-seconds",
        "the segment goes by time, and its largest timestamp may be in seconds. A broker deletes it at once, too",
    )
    TIMESTAMPS_BACKWARDS = (
        "timestamps-backwards",
        "the segment is old enough and stays, because an earlier segment has a newer timestamp",
    )
    ONLY_REPLICA = (
        "only-replica",
        "the segment reaches above the checkpoint's high watermark, and goes, as there is no other replica; `--apply`"
        " leaves it to the broker",
    )
    LATE_HIGH_WATERMARK = (
        "late-high-watermark",
        "only the checkpoint's high watermark keeps the segment: a broker that learns a later one deletes it",
    )
    TIME_INDEX_PADDED = (
        "time-index-padded",
        "with `--from-files`: the time index ends in zeros, and a broker takes 1970 for the largest timestamp",
    )
    TIME_INDEX_INCOMPLETE = (
        "time-index-cut-short",
        "with `--from-files`: the time index ends before the largest timestamp, or is missing or empty",
    )
