"""The cluster's metadata as one node has it: topics, ids, configs, assignments and nodes, as the records of
`__cluster_metadata` leave them, and up to which offset; and the value that a topic's setting has on a broker.

Sources: `MetadataDelta`, `TopicsDelta`, `ConfigurationsDelta`, `MetadataBatchLoader`; for values
`ServerTopicConfigSynonyms`, `KafkaConfig.extractLogConfigMap`, `DynamicBrokerConfig.overrideProps`,
`ConfigHelper.createTopicConfigEntry`.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kidxlib.errors import CheckpointError, ClusterMetadataError, UnreadableMessageError
from kidxlib.format import segment_files
from kidxlib.format.kafka_release import METADATA_VERSION, KafkaRelease, NodeRelease, release_of_level
from kidxlib.format.segment_files import SnapshotId
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.java import parse_long
from kidxlib.log.metadata_replica import (
    METADATA_DIRECTORY,
    Endpoint,
    MetadataBatch,
    MetadataReplica,
    endpoints_of,
    read_replica,
)
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, read_framed
from kidxlib.records.reader import Record
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import read_meta_properties
from kidxlib.text.times import show_time
from kidxlib.text.words import quoted

#: `ConfigResource.Type`.
_TOPIC: Final = 2
_BROKER: Final = 4

_CHANGES: Final = ("TopicRecord", "RemoveTopicRecord", "ConfigRecord", "FeatureLevelRecord")
_NODE_CHANGES: Final = (
    "RegisterBrokerRecord",
    "BrokerRegistrationChangeRecord",
    "UnregisterBrokerRecord",
    "RegisterControllerRecord",
    "UnregisterControllerRecord",
)
_PARTITION_CHANGES: Final = ("PartitionRecord", "PartitionChangeRecord")
#: In a `PartitionChangeRecord` (`NO_LEADER_CHANGE`). Any other value begins a leader epoch, even with the same leader.
_SAME_LEADER: Final = -2
#: `LeaderConstants.NO_LEADER`.
_NO_LEADER: Final = -1
_TRANSACTION_MARKS: Final = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")

_MS_PER_MINUTE: Final = 60 * 1000
_MS_PER_HOUR: Final = 60 * _MS_PER_MINUTE
_UNLIMITED: Final = "-1"
#: A value with this prefix comes from a config provider (KIP-297).
_CONFIG_PROVIDER: Final = "${"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the replicas of a partition are (`PartitionRegistration`).

    Attributes:
        replicas: node ids; during a reassignment both the old and the new nodes.
        directories: for each replica the id of its log dir (`directory.id`); empty in metadata from before 3.7.
        leader_epoch: the partition's current epoch.
        last_leader, led_epoch: the last node that led the partition, and its epoch. When the leader stops, the
            partition has no leader in an epoch of its own. −1: not known, as a snapshot does not say it.
        in_sync: the nodes whose replicas have all acknowledged records.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    leader_epoch: int = 0
    last_leader: int = _NO_LEADER
    led_epoch: int = -1
    in_sync: tuple[int, ...] = ()

    @property
    def places(self) -> Iterator[tuple[int, str]]:
        """The node and the log dir of each replica, as far as the metadata names log dirs."""
        return zip(self.replicas, self.directories, strict=False)

    def changed(self, values: dict[str, Any]) -> Assignment:
        """The assignment after a change; fields that the change omits stay (`PartitionRegistration.merge`)."""
        replicas, directories, in_sync = values.get("replicas"), values.get("directories"), values.get("isr")
        leader = values.get("leader", _SAME_LEADER)
        epoch = values.get("leaderEpoch", self.leader_epoch + (leader != _SAME_LEADER))
        is_led = leader not in (_SAME_LEADER, _NO_LEADER)
        return Assignment(
            replicas=self.replicas if replicas is None else tuple(replicas),
            directories=self.directories if directories is None else tuple(directories),
            leader_epoch=epoch,
            last_leader=leader if is_led else self.last_leader,
            led_epoch=epoch if is_led else self.led_epoch,
            in_sync=self.in_sync if in_sync is None else tuple(in_sync),
        )


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker registered when it last started (`BrokerLifecycleManager`).

    Attributes:
        rack: `broker.rack`; None: not set.
        endpoints: the advertised listeners, without those of a controller.
    """

    rack: str | None
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class NewerRecord:
    """A record that Kafka only knows since a release: an older node ends over it.

    Attributes:
        offset: None: it is in the snapshot.
        found: what it is.
        exception: what the older node throws.
    """

    offset: int | None
    found: str
    since: KafkaRelease
    exception: str

    @classmethod
    def of(cls, offset: int | None, change: FramedMessage) -> NewerRecord | None:
        """The change as one that not all releases take into their image of the metadata: by its type, or by the
        `metadata.version` that it sets (`FeatureControlManager.replay`); None for others.
        """
        message, values = change.message, change.values
        if message.since is not None:
            found = f"{message.name} (type {message.api_key})"
            throws = f"UnsupportedVersionException: Unknown metadata id {message.api_key}"
            return cls(offset, found, message.since, throws)
        if message.name == "FeatureLevelRecord" and values["name"] == METADATA_VERSION:
            level = values["featureLevel"]
            throws = f"IllegalArgumentException: No MetadataVersion with feature level {level}"
            return cls(offset, f"{METADATA_VERSION} {level}", release_of_level(level), throws)
        return None


def _is_wanted(record: Record) -> bool:
    """Whether an image reads a record. One that is not a metadata record is read too, so that its error is reported."""
    return record.value is None or record.value[:1] != b"\1" or record.value.startswith(_wanted_prefixes())


@functools.cache
def _wanted_prefixes() -> tuple[bytes, ...]:
    """How the values of the records begin that are read: frame version and record type, and for records of nodes and
    partitions each known version. All three are varints of one byte.
    """
    messages = messages_of(CLUSTER_METADATA)
    prefixes = [bytes([1, messages[name].api_key or 0]) for name in (*_CHANGES, *_TRANSACTION_MARKS)]
    for message in map(messages.__getitem__, (*_NODE_CHANGES, *_PARTITION_CHANGES)):
        versions = range(message.versions.lowest, message.versions.highest + 1)
        prefixes += [bytes([1, message.api_key or 0, version]) for version in versions]
    return tuple(prefixes)


class _Image:
    """The metadata after the batches so far.

    Attributes:
        topics: topic ids by name.
        topic_configs: the topic's own settings, by topic.
        assignments: where the replicas of each partition are.
        broker_configs: dynamic settings of a broker by node id, and of all brokers by "".
        log_dirs: by node id, the ids of the log dirs that the broker last registered; without brokers whose log dirs
            have no ids. Records of brokers from a newer Kafka are skipped.
        releases: by node id, the Kafka that the node was of at least as it last registered, as far as it has said so.
        newer_records: by the release that first knows it, the first such record.
    """

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.log_dirs: dict[int, tuple[str, ...]] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, tuple[Endpoint, ...]] = {}
        self.releases: dict[int, KafkaRelease] = {}
        self.newer_records: dict[KafkaRelease, NewerRecord] = {}
        self.topic_configs: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.broker_configs: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.assignments: dict[TopicPartition, Assignment] = {}
        self._names: dict[str, str] = {}

    def copy(self) -> _Image:
        """A copy that changes by itself: to read the records of 100,000 partitions again takes seconds."""
        image = _Image()
        for name, values in vars(self).items():
            setattr(image, name, values.copy())
        for configs in (image.topic_configs, image.broker_configs):
            for resource, values in configs.items():
                configs[resource] = values.copy()
        return image

    def apply(self, batches: Iterable[MetadataBatch], *, is_snapshot: bool = False) -> None:
        """Apply batches. The changes of a transaction count once it has ended."""
        for change in _settled(self._read(batches, is_snapshot=is_snapshot)):
            self._change(change)

    def _read(self, batches: Iterable[MetadataBatch], *, is_snapshot: bool) -> Iterator[FramedMessage]:
        for batch in batches:
            for record in batch.records:
                change = _read(record)
                newer = NewerRecord.of(None if is_snapshot else record.offset, change)
                if newer is not None:
                    self.newer_records.setdefault(newer.since, newer)
                yield change

    def _change(self, change: FramedMessage) -> None:
        values = change.values
        match change.message.name:
            case "TopicRecord":
                self.topics[values["name"]] = values["topicId"]
                self._names[values["topicId"]] = values["name"]
            case "PartitionRecord" | "PartitionChangeRecord":
                self._assign(values)
            case "RegisterBrokerRecord" | "BrokerRegistrationChangeRecord" | "UnregisterBrokerRecord":
                self._register(change)
            case "RegisterControllerRecord":
                self.controllers[values["controllerId"]] = endpoints_of(values["endPoints"])
                self._add_release(values["controllerId"], values["features"])
            case "UnregisterControllerRecord":
                self.controllers.pop(values["controllerId"], None)
                self.releases.pop(values["controllerId"], None)
            case "RemoveTopicRecord":
                name = self._names.pop(values["topicId"], None)
                if name is not None:
                    self.topics.pop(name, None)
                    self.topic_configs.pop(name, None)
                    self._forget_partitions(name)
            case "ConfigRecord":
                self._configure(values["resourceType"], values["resourceName"], values["name"], values["value"])

    def _assign(self, values: dict[str, Any]) -> None:
        name = self._names.get(values["topicId"])
        if name is not None:
            partition = TopicPartition(name, values["partitionId"])
            self.assignments[partition] = self.assignments.get(partition, Assignment((), ())).changed(values)

    def _forget_partitions(self, topic: str) -> None:
        number = 0  # a topic's partitions are numbered from 0 on, without gaps
        while self.assignments.pop(TopicPartition(topic, number), None) is not None:
            number += 1

    def _register(self, change: FramedMessage) -> None:
        """Register a broker and its log dirs. A change that names no log dirs leaves them as they were
        (`ClusterDelta`).
        """
        values, kind = change.values, change.message.name
        log_dirs = tuple(values.get("logDirs", ()))
        if log_dirs:
            self.log_dirs[values["brokerId"]] = log_dirs
        elif kind != "BrokerRegistrationChangeRecord":
            self.log_dirs.pop(values["brokerId"], None)
        if kind == "RegisterBrokerRecord":
            self.brokers[values["brokerId"]] = BrokerRegistration(values["rack"], endpoints_of(values["endPoints"]))
            self._add_release(values["brokerId"], values["features"])
        elif kind == "UnregisterBrokerRecord":
            self.brokers.pop(values["brokerId"], None)
            self.releases.pop(values["brokerId"], None)

    def _add_release(self, node_id: int, features: Iterable[Mapping[str, Any]]) -> None:
        for feature in features:
            if feature["name"] == METADATA_VERSION:
                self.releases[node_id] = release_of_level(feature["maxSupportedVersion"])

    def _configure(self, kind: int, resource: str, name: str, value: str | None) -> None:
        if kind not in (_TOPIC, _BROKER):
            return
        configs = (self.topic_configs if kind == _TOPIC else self.broker_configs)[resource]
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = value


def changes_in(batches: Iterable[MetadataBatch]) -> Iterator[FramedMessage]:
    """The changes of the cluster's metadata by the records of batches, in order. Those of a transaction count once it
    has ended.
    """
    return _settled(_read(record) for batch in batches for record in batch.records)


def _settled(changes: Iterable[FramedMessage]) -> Iterator[FramedMessage]:
    opened: list[FramedMessage] | None = None
    for change in changes:
        match change.message.name:
            case "BeginTransactionRecord":
                opened = []
            case "AbortTransactionRecord":
                opened = None
            case "EndTransactionRecord":
                yield from opened or ()
                opened = None
            case _ if opened is not None:
                opened.append(change)
            case _:
                yield change


def _read(record: Record) -> FramedMessage:
    try:
        framed = read_framed(record.value, CLUSTER_METADATA)
    except UnreadableMessageError as error:
        raise ClusterMetadataError(
            f"record at offset {record.offset}: found {quoted(record.value)}, expected {error.expected}"
        ) from error
    if framed.version not in framed.message.versions:
        versions = framed.message.versions
        raise ClusterMetadataError(
            f"record at offset {record.offset}: {framed.message.name} of version {framed.version}, expected "
            f"{versions.lowest} to {versions.highest}; it is of a newer Kafka"
        )
    return framed


@dataclass(frozen=True, slots=True)
class AsOf:
    """How far metadata was read.

    Attributes:
        offset: the first offset that was not read; all records below it are committed.
        timestamp_ms: the time of the last record below it, in ms since the epoch; None if there is none.
    """

    offset: int
    timestamp_ms: int | None

    def __str__(self) -> str:
        time = "no time" if self.timestamp_ms is None else show_time(self.timestamp_ms)
        return f"offset {self.offset}, {time}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """A cluster's topics and brokers, from one copy of its metadata.

    Attributes:
        directory: the directory of the copy.
        as_of: how far the copy was read.
        end_offset: where the copy ends; records from `as_of` on may not be committed.
        last_epoch: the epoch of the copy's last record.
        topics: topic ids by name, as in `partition.metadata`.
        topic_configs, assignments, broker_configs, log_dirs, releases, newer_records: as in `_Image`.
        brokers, controllers: by node id, what the node registered.
        static_voters, dynamic_voters, only_voter: as in `MetadataReplica`.
        at_end: the metadata if all of the copy is committed; None: all is known to be committed.
        left_out: the name of the latest snapshot, if it is damaged and was not read.
    """

    directory: Location
    as_of: AsOf
    end_offset: int
    topics: Mapping[str, str]
    topic_configs: Mapping[str, Mapping[str, str]]
    assignments: Mapping[TopicPartition, Assignment]
    broker_configs: Mapping[str, Mapping[str, str]]
    log_dirs: Mapping[int, tuple[str, ...]]
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, tuple[Endpoint, ...]] = field(default_factory=dict)
    releases: Mapping[int, KafkaRelease] = field(default_factory=dict)
    newer_records: tuple[NewerRecord, ...] = ()
    static_voters: frozenset[int] | None = None
    dynamic_voters: Mapping[int, tuple[Endpoint, ...]] | None = None
    only_voter: int | None = None
    at_end: ClusterMetadata | None = None
    last_epoch: int = 0
    left_out: str | None = None

    @property
    def how_far(self) -> tuple[int, int]:
        """The last epoch, and where the copy ends in it. Of a quorum's copies that with the largest goes furthest."""
        return self.last_epoch, self.end_offset

    @property
    def topic_names(self) -> dict[str, str]:
        """Topic names by id."""
        return {topic_id: name for name, topic_id in self.topics.items()}

    @property
    def to_end(self) -> ClusterMetadata:
        """The metadata to the end of the copy. A broker's directories follow what was committed when it stopped. With
        several voters only the snapshot is known to be committed, and it may be an hour older.
        """
        return self.at_end or self

    def instead_of(self, why: str, *, has_settings: bool = False) -> str:
        """The line on another copy of the cluster's metadata that cannot be read, and `why`: this one counts. Topics'
        settings, if these count, are those of the committed part.
        """
        as_of = str(self.to_end.as_of)
        if has_settings and self.at_end is not None:
            as_of = f"{as_of}, and for topics' settings as of {self.as_of}"
        return f"{why}; {self.directory} counts instead, as of {as_of}: what was changed after that is not known"


def read_cluster_metadata(directory: Location, high_watermark: int | None = None) -> ClusterMetadata:
    """The image of the cluster's metadata, as far as a copy of it is known to be committed: to the end of its snapshot
    or to the given high watermark; to the end of the log if the quorum has one voter, which commits what it writes.

    Args:
        directory: `__cluster_metadata-0`.
        high_watermark: the quorum's, as `kafka-metadata-quorum describe --status` prints it. No file holds it.
    """
    return _of_replica(directory, read_replica(directory, _is_wanted), high_watermark)


def read_despite_damage(directory: Location, high_watermark: int | None = None) -> ClusterMetadata:
    """The image of the cluster's metadata (`read_cluster_metadata`), without the latest snapshot if that is damaged,
    and the one before it and the log reach the damaged one's end: a node makes snapshots of committed records of its
    log (`SnapshotGenerator`, `KafkaRaftClient.createSnapshot`).
    """
    try:
        return read_cluster_metadata(directory, high_watermark)
    except ClusterMetadataError:
        latest = max(filter(None, map(segment_files.parse_kraft_snapshot, files_in(directory))), default=None)
        metadata = None if latest is None else _without(directory, latest, high_watermark)
        if metadata is None:
            raise
        return metadata


def release_of_node(path: Location, given: KafkaRelease | None) -> NodeRelease:
    """The release of a node by the image of the cluster's metadata in its log dir: which Kafka counts for a file there,
    or a partition's directory. What the node has registered is read where the user has not `given` one. `path` is
    absolute.
    """
    return NodeRelease(given, _registered_release(path) if given is None else None)


def _registered_release(path: Location) -> KafkaRelease | None:
    for log_dir in (path.parent, path.parent.parent):
        with contextlib.suppress(CheckpointError, ClusterMetadataError, OSError):
            node_id = read_meta_properties(log_dir).node_id
            if node_id is not None:
                return read_despite_damage(log_dir / METADATA_DIRECTORY).to_end.releases.get(node_id)
    return None


def _without(directory: Location, latest: SnapshotId, high_watermark: int | None) -> ClusterMetadata | None:
    """The metadata of a copy without its latest snapshot; None if the rest ends before that snapshot does."""
    left_out = segment_files.kraft_snapshot_file(latest)
    try:
        replica = read_replica(directory, _is_wanted, left_out=left_out)
    except (ClusterMetadataError, OSError):
        return None
    if replica.end_offset < latest.end_offset:
        return None
    metadata = _of_replica(directory, replica, max(high_watermark or 0, latest.end_offset))
    at_end = metadata.at_end and replace(metadata.at_end, left_out=left_out)
    return replace(metadata, left_out=left_out, at_end=at_end)


def _of_replica(directory: Location, replica: MetadataReplica, high_watermark: int | None) -> ClusterMetadata:
    # All records below it are known to be committed: a quorum of one voter commits what it writes.
    committed_end = max(replica.snapshot_end, high_watermark or 0) if replica.only_voter is None else replica.end_offset
    committed = [batch for batch in replica.log if batch.last_offset < committed_end]
    image = _Image()
    try:
        image.apply(replica.snapshot, is_snapshot=True)
        if len(committed) == len(replica.log):
            return _metadata(directory, replica, image, committed)
        metadata = _metadata(directory, replica, image.copy(), committed)
        return replace(metadata, at_end=_metadata(directory, replica, image, replica.log))
    except ClusterMetadataError as error:  # of a record
        raise ClusterMetadataError(f"{directory}: {error}") from error


def _metadata(
    directory: Location, replica: MetadataReplica, image: _Image, log: Sequence[MetadataBatch]
) -> ClusterMetadata:
    """The metadata after some batches of a copy's log, which change the image of its snapshot."""
    image.apply(log)
    offset, timestamp_ms = replica.snapshot_end, replica.snapshot_ms
    if log:
        offset = log[-1].last_offset + 1
        timestamp_ms = max(batch.timestamp_ms for batch in log)
    return ClusterMetadata(
        directory=directory,
        as_of=AsOf(offset, timestamp_ms),
        end_offset=replica.end_offset,
        last_epoch=replica.last_epoch,
        topics=image.topics,
        topic_configs=dict(image.topic_configs),
        assignments=image.assignments,
        broker_configs=dict(image.broker_configs),
        log_dirs=dict(image.log_dirs),
        brokers=dict(image.brokers),
        controllers=dict(image.controllers),
        releases=dict(image.releases),
        newer_records=tuple(image.newer_records.values()),
        dynamic_voters=replica.dynamic_voters,
        static_voters=replica.static_voters,
        only_voter=replica.only_voter,
    )


class ConfigOrigin(enum.StrEnum):
    """Who set a value."""

    TOPIC = "topic"  # it was set for the topic itself
    BROKER = "broker"  # for this broker, while it ran
    BROKERS = "brokers"  # for all brokers, while they ran
    FILE = "server.properties"
    KAFKA = "kafka-default"  # nobody


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value as Kafka's tools print it."""

    value: str
    origin: ConfigOrigin


@dataclass(frozen=True, slots=True)
class _Synonyms:
    """What a broker calls a topic's setting.

    Attributes:
        names: in order of precedence. The name of a time has its unit in ms; any negative time means no limit (-1).
            Other names have None.
        default: Kafka's default.
    """

    names: Sequence[tuple[str, int | None]]
    default: str


#: By the topic's name of the setting. Only topics have `remote.storage.enable`.
_SYNONYMS: Final[Mapping[str, _Synonyms]] = {
    "cleanup.policy": _Synonyms([("log.cleanup.policy", None)], "delete"),
    "index.interval.bytes": _Synonyms([("log.index.interval.bytes", None)], "4096"),
    "local.retention.bytes": _Synonyms([("log.local.retention.bytes", None)], "-2"),
    "local.retention.ms": _Synonyms([("log.local.retention.ms", None)], "-2"),
    "message.timestamp.type": _Synonyms([("log.message.timestamp.type", None)], "CreateTime"),
    "remote.storage.enable": _Synonyms([], "false"),
    "retention.bytes": _Synonyms([("log.retention.bytes", None)], "-1"),
    "retention.ms": _Synonyms(
        [("log.retention.ms", 1), ("log.retention.minutes", _MS_PER_MINUTE), ("log.retention.hours", _MS_PER_HOUR)],
        str(7 * 24 * _MS_PER_HOUR),
    ),
    "segment.index.bytes": _Synonyms([("log.index.size.max.bytes", None)], str(10 * 1024 * 1024)),
}
#: The topic settings that kidx knows.
TOPIC_CONFIGS: Final = tuple(_SYNONYMS)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A broker, with the settings it was started with.

    Attributes:
        node_id: None: not known.
        server_properties: None: not known.
    """

    node_id: int | None
    server_properties: Mapping[str, str] | None


def topic_config(metadata: ClusterMetadata, broker: BrokerSettings, topic: str, name: str) -> ConfigValue | None:
    """A topic's setting on a broker, as an image of the cluster's metadata and the broker's own settings have it.

    Args:
        topic: a topic of the metadata.
        name: one of `TOPIC_CONFIGS`.

    Returns:
        None: not known, because the topic does not set it and the broker's setting is not known.
    """
    own = metadata.topic_configs.get(topic, {}).get(name)
    if own is not None:
        return ConfigValue(own, ConfigOrigin.TOPIC)
    synonyms = _SYNONYMS[name]
    if not synonyms.names:
        return ConfigValue(synonyms.default, ConfigOrigin.KAFKA)
    of_nodes = (configs for node, configs in metadata.broker_configs.items() if node)
    if broker.node_id is None and any(_set_in(configs, synonyms) for configs in of_nodes):
        return None
    for configs, origin in (
        (metadata.broker_configs.get(str(broker.node_id), {}), ConfigOrigin.BROKER),
        (metadata.broker_configs.get("", {}), ConfigOrigin.BROKERS),
    ):
        values = _set_in(configs, synonyms)
        if len(values) > 1:  # the order in which a broker happens to apply them decides
            return None
        if values:
            return ConfigValue(values[0], origin)
    if broker.server_properties is None:
        return None
    values = _set_in(broker.server_properties, synonyms)
    if any(value.startswith(_CONFIG_PROVIDER) for value in values):
        return None
    return ConfigValue(values[0], ConfigOrigin.FILE) if values else ConfigValue(synonyms.default, ConfigOrigin.KAFKA)


def _set_in(configs: Mapping[str, str], synonyms: _Synonyms) -> list[str]:
    """The values that some settings give for a topic's, in the topic's unit and in order of precedence."""
    return [_in_topic_unit(configs[name].strip(), unit) for name, unit in synonyms.names if name in configs]


def _in_topic_unit(text: str, unit: int | None) -> str:
    number = parse_long(text)
    if unit is None or number is None:
        return text
    return str(number * unit) if number >= 0 else _UNLIMITED
