"""What the clusters of the metadata say of the topics whose segments are audited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from kidxlib.audit.tiered.finding import METADATA, RemoteFindingRow, RemoteSegmentKey, broken
from kidxlib.audit.tiered.metadata import Copying
from kidxlib.build.source import PartitionDirectory, Source
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.java import parse_integer
from kidxlib.log.remote.metadata_record import REMOTE_LOG_METADATA_TOPIC
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.audit.tiered.numbers.settings import LOCAL_RETENTION_BYTES, LOCAL_RETENTION_MS
from kidxlib.operations.audit.tiered.request import TieredRequest
from kidxlib.recovery.options import RecoverOptions
from kidxlib.run.index_options import options_of_topic
from kidxlib.storage.location import Location

_RETENTION_MS = "retention.ms"
_ENABLE = "remote.storage.enable"
_COPY_DISABLE = "remote.log.copy.disable"
_COPY_LAG_MS, _COPY_LAG_BYTES = "remote.copy.lag.ms", "remote.copy.lag.bytes"
#: A lag that is what `local.retention` keeps.
_AS_LOCAL = -2


@dataclass(frozen=True, slots=True)
class TopicsOfTiered:
    """What is known of topics, by their ids: one of the same name may be another one."""

    request: TieredRequest

    def retention_ms(self, partition: TopicIdPartition) -> int | None:
        """How long the topic of a partition keeps records, ms; below 0 for ever. None where nobody knows it."""
        source = self._source_of(partition)
        return None if source is None else self._retention_ms(source, partition.topic)

    def setting(self, topic: str, topic_id: str, name: str) -> int | None:
        """A topic's setting that is a number; None where nobody knows it."""
        source = self._source_of(TopicIdPartition(topic_id, topic, 0))
        config = None if source is None else self.request.known_topics.config(source.name, topic, name)
        return None if config is None else parse_integer(config.value, 64)

    def is_copied(self, topic: str, topic_id: str) -> bool | None:
        """Whether brokers copy a topic's segments (`remote.storage.enable`); None where nobody knows it."""
        source = self._source_of(TopicIdPartition(topic_id, topic, 0))
        config = None if source is None else self.request.known_topics.config(source.name, topic, _ENABLE)
        return None if config is None else config.value == "true"

    def copying(self, topic: str, topic_id: str) -> Copying:
        """Whether and when brokers copy a topic's segments, by what was set for it."""
        source = self._source_of(TopicIdPartition(topic_id, topic, 0))
        if source is None:
            return Copying()
        own = self.request.known_topics.of_sources[source.name].metadata.topic_configs.get(topic, {})
        is_on = self.is_copied(topic, topic_id) is not False and own.get(_COPY_DISABLE) != "true"
        lags = [parse_integer(own.get(name, "0"), 64) or 0 for name in (_COPY_LAG_MS, _COPY_LAG_BYTES)]
        of_local = (self.setting(topic, topic_id, name) for name in (LOCAL_RETENTION_MS, LOCAL_RETENTION_BYTES))
        ms, bytes_ = (
            max((local or 0) if lag == _AS_LOCAL else lag, 0) for lag, local in zip(lags, of_local, strict=True)
        )
        return Copying(is_on, ms, bytes_)

    def copied(self) -> Iterator[tuple[str, str]]:
        """Names and ids of the topics of which a cluster says that brokers copy them."""
        known = self.request.known_topics
        for of_source in known.of_sources.values():
            for topic, topic_id in of_source.metadata.topics.items():
                if self.request.topics.fullmatch(topic) and self.is_copied(topic, topic_id):
                    yield topic, topic_id

    def options(self, partition: TopicIdPartition, directory: Location) -> RecoverOptions:
        """What the indexes of a partition depend on."""
        source = self._source_of(partition) or self.request.metadata[0]
        place = PartitionDirectory(source, TopicPartition(partition.topic, partition.partition), directory)
        interval_bytes, known = self.request.interval_bytes, self.request.known_topics
        options = options_of_topic(known, place, interval_bytes=interval_bytes, max_index_bytes=None)
        return options.of_id(partition.topic_id)

    def outliving_metadata(self, partitions: frozenset[TopicIdPartition]) -> Iterator[RemoteFindingRow]:
        """A finding on each topic whose records are kept for longer than the metadata of its segments."""
        topics = {(each.topic, each.topic_id): each for each in partitions if self.request.topics.fullmatch(each.topic)}
        for _, partition in sorted(topics.items()):
            source = self._source_of(partition)
            if source is None:
                continue
            of_metadata = self._retention_ms(source, REMOTE_LOG_METADATA_TOPIC)
            of_topic = self._retention_ms(source, partition.topic)
            if of_metadata is None or of_topic is None or not 0 <= of_metadata < (of_topic if of_topic >= 0 else 2**63):
                continue
            kept = "for ever" if of_topic < 0 else f"for {timedelta(milliseconds=of_topic)}"
            finding = broken(
                METADATA,
                "metadata-expires-first",
                f"{REMOTE_LOG_METADATA_TOPIC} keeps records for {timedelta(milliseconds=of_metadata)}, this one {kept}",
                "a segment whose metadata has gone is lost to brokers: nobody reads its records or deletes its objects",
            )
            of = TopicIdPartition(partition.topic_id, partition.topic, -1)
            yield RemoteFindingRow.found(of, RemoteSegmentKey(start_offset=0, segment_id=None), finding)

    def _source_of(self, partition: TopicIdPartition) -> Source | None:
        known = self.request.known_topics
        sources = self.request.metadata
        return next(
            (each for each in sources if known.topic_id(each.name, partition.topic) == partition.topic_id), None
        )

    def _retention_ms(self, source: Source, topic: str) -> int | None:
        config = self.request.known_topics.config(source.name, topic, _RETENTION_MS)
        return None if config is None else parse_integer(config.value, 64)
