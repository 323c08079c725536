"""The configuration that a deletion rests on, from a cluster's metadata where nobody else has set it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import METADATA_TOPIC, PartitionKey, TopicPartition
from kidxlib.log.metadata_image import ConfigOrigin, ConfigValue
from kidxlib.log.metadata_replica import METADATA_DIRECTORY, newest_ms
from kidxlib.retention.described_configs import ConfigEntry
from kidxlib.retention.policy import DECIDING_CONFIGS, NOTHING_KNOWN, Origin, TopicConfig, Written
from kidxlib.retention.policy_file import checked_config
from kidxlib.run.known_topics import (
    KnownTopics,
    counted_by_origin,
    ensure_proven,
    metadata_as_json,
    read_known_topics,
)
from kidxlib.run.log_dirs_at_hand import log_dirs_not_at_hand
from kidxlib.run.sources import as_sources
from kidxlib.terminal.options import MetadataOptions
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

#: For each topic its configurations by name of policy.
Configs: TypeAlias = Mapping[str, Mapping[str, TopicConfig]]

_NEWER: Final = (
    "Name a newer copy with --cluster-metadata, give --metadata-high-watermark, or a longer --max-metadata-lag"
)
#: The most topics without metadata that a message names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class RetentionConfigs:
    """The configurations of topics in their clusters' metadata.

    Attributes:
        values: by topic, the values that a deletion rests on, by Kafka's names. Values that differ between sources are
            left out.
        unknown: by topic, why its metadata is not used.
        others: topics among `unknown` whose id is not that of the cluster's topic with the same name.
        unsettled: by topic, values that the uncommitted end of the metadata may change.
        at_end: by topic, the values at the uncommitted end.
        other_log_dirs: log dirs of the brokers that are not in the catalog, a line for each broker.
    """

    known: KnownTopics
    values: Mapping[str, Mapping[str, ConfigValue]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    unsettled: Mapping[str, Sequence[str]] = field(default_factory=dict)
    at_end: Mapping[str, Mapping[str, ConfigValue]] = field(default_factory=dict)
    other_log_dirs: Sequence[str] = ()

    @classmethod
    def from_metadata(
        cls,
        options: MetadataOptions,
        paths: Mapping[str, str],
        names: Collection[str],
        read_ids: Callable[[], pa.Table],
        *,
        deletes: bool = False,
        same_broker: bool = False,
    ) -> Self:
        """Read the metadata of the sources `names`. Any source of the catalog, all of which `paths` has, may have the
        metadata of another's cluster. `read_ids` returns `source`, `topic` and `topic_id` of segments, and is called
        only if there is metadata. If a deletion rests on the result (`deletes`), a server.properties must be proven to
        be the broker's; `same_broker` is that of `ensure_proven`.
        """
        of_catalog = as_sources(paths)
        sources = [source for source in of_catalog if source.name in names]
        known = read_known_topics(sources, lambda: of_catalog, options=options)
        if deletes:
            ensure_proven(options, known, sources, same_broker=same_broker)
        if not known.of_sources:
            return cls(known)
        columns = ["topic", "source", "topic_id"]
        of_topics: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        ids = read_ids().group_by(columns).aggregate([]).sort_by([(name, "ascending") for name in columns])
        for topic, source, topic_id in zip(*(ids[name].to_pylist() for name in columns), strict=True):
            of_topics[topic].append((source, topic_id))
        unknown = {topic: why for topic, ids in of_topics.items() if (why := _why_unknown(known, topic, ids))}
        values = {topic: _agreed(known, topic, ids) for topic, ids in of_topics.items() if topic not in unknown}
        others = frozenset(topic for topic in unknown if _is_another(known, topic, of_topics[topic]))
        unsettled = {topic: _unsettled(known, topic, ids) for topic, ids in of_topics.items() if topic in values}
        to_end = known.to_end
        at_end = {
            topic: _agreed(to_end, topic, ids)
            for topic, ids in of_topics.items()
            if not _why_unknown(to_end, topic, ids)
        }
        return cls(known, values, unknown, others, unsettled, at_end, log_dirs_not_at_hand(known, sources, of_catalog))

    def complete(
        self, configs: Configs, *, deletes: bool, described: Collection[str] = ()
    ) -> dict[str, dict[str, TopicConfig]]:
        """Configurations, with values from the metadata where the user set none.

        If a deletion rests on them (`deletes`), doubtful values count as unknown, and a policy for many topics does not
        give a topic `delete`, or make it untiered, if its cluster's metadata has another value, committed or not. The
        policies named in `described` are from the output of Kafka's tools.
        """
        completed = {}
        for topic, by_policy in configs.items():
            committed = self._config(topic, self.values)
            if not deletes:
                completed[topic] = {name: config.completed(committed) for name, config in by_policy.items()}
                continue
            settled = committed.without(self.unsettled.get(topic, ()))
            of_cluster = (committed, self._config(topic, self.at_end))
            completed[topic] = {
                name: NOTHING_KNOWN
                if name in described and self._doubt(topic, config, settled)
                else _keeping_what_cluster_keeps(config, of_cluster).completed(settled)
                for name, config in by_policy.items()
            }
        return completed

    def _doubt(self, topic: str, described: TopicConfig, own: TopicConfig) -> str | None:
        """Why the output of Kafka's tools for a topic may be about another topic, or from another time."""
        if topic in self.others:
            return self.unknown[topic]
        differing = described.contradicted_by(own)
        if not differing:
            return None
        return (
            f"topic {topic}: {', '.join(differing)}: --policy and {self.known.as_of} differ: one is older, or another "
            "cluster's; name newer metadata with --cluster-metadata, or write the policy yourself"
        )

    def doubts(self, configs: Configs, described: Collection[str]) -> list[str]:
        """The values that `complete` leaves unknown for a deletion, in words."""
        doubts = []
        for topic, by_policy in sorted(configs.items()):
            own = self._config(topic, self.values).without(self.unsettled.get(topic, ()))
            doubts += [why for name in described if (why := self._doubt(topic, by_policy[name], own)) is not None]
            if self.unsettled.get(topic) and _is_open(configs, topic):
                doubts.append(
                    f"topic {topic}: {', '.join(self.unsettled[topic])}: the end of {self.known.as_of} changes it, and "
                    "may not be committed; give --metadata-high-watermark"
                )
        more = [f"… and {len(doubts) - _NAMED:,} more such topics"] if len(doubts) > _NAMED else []
        return [*doubts[:_NAMED], *more]

    def remedy(self, topic: str) -> str:
        """Which option to give if not all of a topic's configuration is known."""
        if (why := self.unknown.get(topic)) is not None:
            return f"{why}; --policy says it, too"
        if not self.known.of_sources:
            return "name --cluster-metadata and --server-properties, or --policy"
        return (
            "the cluster's metadata has no such values, so the broker's own hold: name --server-properties, or --policy"
        )

    def lines(self, configs: Configs) -> list[str]:
        """How far metadata was read, for how many topics it gave each value, and which topics it lacks. The `configs`
        are those before `complete`.
        """
        if self.known.as_of is None:
            return []
        taken = ", ".join(
            f"{name} for {counted_by_origin(origins)}" for name, origins in self._counts_by_origin(configs).items()
        )
        lines = [
            f"{self.known.as_of}: it gave, for {counted(len(configs), 'topic')} in all: {taken}; values of options and "
            "policies go before these"
        ]
        needed = [topic for topic in sorted(self.unknown) if topic != METADATA_TOPIC and _is_open(configs, topic)]
        lines += [self.unknown[topic] for topic in needed[:_NAMED]]
        if len(needed) > _NAMED:
            lines.append(f"… and {len(needed) - _NAMED:,} more topics of which it says nothing")
        return [*lines, *self.other_log_dirs]

    def as_json(self, configs: Configs) -> list[dict[str, Any]]:
        """`lines` as JSON, an object for each copy of metadata."""
        taken = self._counts_by_origin(configs)
        return [metadata_as_json(metadata, len(configs), taken) for metadata in self.known.read()]

    def ensure_recent(self, written: Mapping[PartitionKey, Written], limit: timedelta) -> None:
        """Refuse metadata that ends long before a partition does: the topic's settings may have changed since. The
        partitions are those of topics whose configurations were completed.
        """
        for (source, topic, number), partition in written.items():
            metadata = self.known.of_sources[source].metadata
            last_ms, read_to_ms = partition.last_ms, metadata.as_of.timestamp_ms
            if read_to_ms is None or last_ms - read_to_ms > limit / timedelta(milliseconds=1):
                raise UsageError(
                    f"{metadata.directory} as of {metadata.as_of}: {TopicPartition(topic, number).directory} goes on "
                    f"to {show_time(last_ms)}, expected {limit} later at most: its topic may have been configured anew "
                    f"since. {_NEWER}"
                )
            written_ms, metadata_ms = partition.written_ms, newest_ms(metadata.directory)
            if metadata_ms is not None and written_ms - metadata_ms > limit / timedelta(milliseconds=1):
                raise UsageError(
                    f"{metadata.directory}: its files were written until {show_time(metadata_ms)}, and the logs of "
                    f"{TopicPartition(topic, number).directory} until {show_time(written_ms)}, expected {limit} later "
                    f"at most: its topic may have been configured anew since. {_NEWER}"
                )

    def _config(self, topic: str, values: Mapping[str, Mapping[str, ConfigValue]]) -> TopicConfig:
        entries = {
            name: ConfigEntry(value.value, of_topic=value.origin is ConfigOrigin.TOPIC, line=0)
            for name, value in values.get(topic, {}).items()
        }
        return checked_config(self.known.as_of, topic, entries)

    def _counts_by_origin(self, configs: Configs) -> dict[str, Counter[str]]:
        """For how many topics each value was taken, by who set it."""
        taken: dict[str, Counter[str]] = {name: Counter() for name in DECIDING_CONFIGS}
        for topic, by_policy in configs.items():
            for name, value in self.values.get(topic, {}).items():
                if any(config.origins[name] is Origin.KAFKA for config in by_policy.values()):
                    taken[name][value.origin.value] += 1
        return taken


def _keeping_what_cluster_keeps(config: TopicConfig, of_cluster: Iterable[TopicConfig]) -> TopicConfig:
    """A topic's configuration, without values where the cluster's own value keeps more."""
    for own in of_cluster:
        config = config.keeping_what_is_compacted(own).keeping_what_is_tiered(own)
    return config


def _why_unknown(known: KnownTopics, topic: str, ids: Iterable[tuple[str, str | None]]) -> str | None:
    for source, topic_id in ids:
        of_source = known.of_sources.get(source)
        if of_source is None:
            return (
                f"topic {topic}: not known what it is configured to: source {source} has no {METADATA_DIRECTORY}, nor "
                "has another source of its cluster; name a copy with --cluster-metadata"
            )
        if topic_id is None:
            return f"topic {topic}: source {source} has no partition.metadata of it, so nobody knows which topic it is"
        in_cluster = known.topic_id(source, topic)
        if in_cluster != topic_id:
            other = "no such topic" if in_cluster is None else f"the topic id {in_cluster}"
            return (
                f"topic {topic}: its topic id is {topic_id} in source {source}, and "
                f"{of_source.metadata.directory} has {other}"
            )
    return None


def _is_another(known: KnownTopics, topic: str, ids: Iterable[tuple[str, str | None]]) -> bool:
    return any(
        topic_id is not None and known.topic_id(source, topic) not in (None, topic_id) for source, topic_id in ids
    )


def _unsettled(known: KnownTopics, topic: str, ids: Iterable[tuple[str, str | None]]) -> list[str]:
    sources = [source for source, _ in ids]
    return [name for name in DECIDING_CONFIGS if not all(known.is_settled(source, topic, name) for source in sources)]


def _agreed(known: KnownTopics, topic: str, ids: Sequence[tuple[str, str | None]]) -> dict[str, ConfigValue]:
    """The values that are the same in all sources of a topic."""
    agreed = {}
    for name in DECIDING_CONFIGS:
        values = [known.config(source, topic, name) for source, _ in ids]
        first = values[0]
        if first is not None and all(value is not None and value.value == first.value for value in values):
            agreed[name] = first
    return agreed


def _is_open(configs: Configs, topic: str) -> bool:
    return any(config.unknown for config in configs.get(topic, {}).values())
