"""The cluster that a restore makes: the partitions that directories were found of, and around them what surviving
metadata or the logs say of the cluster (`restored_cluster`); the settings that topics get (`with_topic_settings`); and
the records of its metadata (`cluster_metadata_records`). Node ids are those of the new brokers. UUIDs are texts as
Kafka shows them (`Uuid.toString`).

No topic is deleted by a guess: where nobody says what a setting was, the value with which nothing is removed stands in
its place (`SAFE_CONFIGS`), and never Kafka's default. Held topics have these values, whatever is proven, until somebody
has checked the cluster. A compacted topic stays compacted, as coordinators and clients rely on that; no cleaner works
on it while `min.compaction.lag.ms` is at its largest value.

In the records is no broker, no controller and no voter: each node registers at its start, and gets its epoch then. A
registration that was carried over would be of a process that is gone. A partition's leader need not be registered:
as the leader registers, the controller gives the partition no leader in a new epoch, and elects one of those in sync
once that is unfenced (`ReplicationControlManager.handleBrokerShutdown`, `handleBrokerUnfenced`).
"""

from __future__ import annotations

import enum
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import UsageError
from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS, TopicPartition
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    FramedMessage,
)
from kidxlib.operations.restore.inventory import LogEvidence
from kidxlib.operations.restore.new_nodes import FormattedController
from kidxlib.operations.restore.surviving_metadata import (
    TOPIC_RESOURCE,
    CannotComeBack,
    MetadataSource,
    SurvivingMetadata,
    lost_without_metadata,
)
from kidxlib.retention.described_configs import OwnSettings, read_own_settings
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import shell_option

#: Settings that each topic of a restored cluster has a value of, as brokers' defaults may delete records; and the
#: values with which none is deleted. `unclean.leader.election.enable` is among them: with it, a replica that lacks
#: records leads as soon as it starts before the leader does, and the leader cuts its own log.
SAFE_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
#: The id of a log dir that the broker chooses itself (`DirectoryId.UNASSIGNED`).
UNASSIGNED: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
#: Ids that were handed out and in no log yet, or in a block that was handed out after the metadata's end, are known to
#: nobody: a broker takes blocks of 1,000 (`ProducerIdsBlock`). There are 2^63 ids.
PRODUCER_IDS_SKIPPED: Final = 1_000_000
_PRODUCER_IDS_PER_BLOCK: Final = 1_000
#: No cluster has handed out so many: a larger id is in damaged bytes.
_PRODUCER_ID_MAX: Final = 2**62
_ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
MIN_IN_SYNC: Final = "min.insync.replicas"
_MIN_IN_SYNC_DEFAULT: Final = "1"
#: How the values of a coordinator's records are called that prove a level of 1.
_FEATURES_PROVEN_BY_RECORDS: Final = (
    ("group.version", CONSUMER_OFFSETS, "ConsumerGroup"),
    ("share.version", CONSUMER_OFFSETS, "ShareGroup"),
    ("share.version", SHARE_GROUP_STATE, "Share"),
    ("streams.version", CONSUMER_OFFSETS, "StreamsGroup"),
)
_CLEANUP: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_LEAST_LAG: Final = "min.compaction.lag.ms"
_MOST_LAG: Final = "max.compaction.lag.ms"
#: With it a shorter replica whose broker starts first leads, and the others cut acknowledged records. So it is held
#: where retention is not, too.
_UNCLEAN: Final = "unclean.leader.election.enable"
_FOREVER: Final = str(2**63 - 1)
#: With it nothing is uploaded. Kafka takes no local retention of its own beside it, so it is lifted first
#: (`LogConfig.validateRemoteStorageRetentionTime`).
_NO_COPY: Final = "remote.log.copy.disable"
#: A log dir keeps what the topic keeps.
_LOCAL_AS_ALL: Final = {"local.retention.bytes": "-2", "local.retention.ms": "-2"}
#: The levels of `metadata.version` from which on a `PartitionRecord` has directories, and eligible leader replicas
#: (`MetadataVersion.partitionRecordVersion`).
_PARTITION_VERSIONS: Final = ((23, 2), (17, 1))
_NO_BROKER: Final = -1
_NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """A partition, with those of its replicas that a directory was found of.

    Attributes:
        replicas: the brokers that get a copy; the preferred leader is the first.
        in_sync: those that hold the same batches as the leader up to the leader's end, the leader among them.
        leader: the broker with the longest log, by leader epoch and then end.
        leader_epoch: above every epoch in any source.
        directories: for each replica the id of its new log dir (`directory.id`).
        begins_empty: no source has a directory: the partition is there because the topic's partitions have no gaps.
    """

    topic: str
    topic_id: str
    partition: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[str, ...]
    begins_empty: bool = False


class ConfigProof(enum.StrEnum):
    """Which source says what a setting of a topic was."""

    METADATA = "metadata"  # surviving metadata
    DESCRIBED = "topic-configs"  # the file given as --topic-configs
    BUCKET = "bucket"  # the topic has remote segments
    KAFKA = "kafka"  # brokers make this topic of their own so
    NOTHING = "nothing"  # no source does


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredConfig:
    """A setting of a topic.

    Attributes:
        value: the value in the restored metadata; None: the topic does not set it.
        proof: which source says what the setting was.
        was: the value that this source has; None: no source says, or the topic did not set it. Then the brokers' own
            setting decided, which is in their `server.properties`: metadata does not prove its value.
    """

    name: str
    value: str | None
    proof: ConfigProof
    was: str | None

    @property
    def is_held(self) -> bool:
        """Whether the restored value is another one than the proven value, or than a value that nobody knows."""
        return self.proof is ConfigProof.NOTHING or self.value != self.was


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """
    Attributes:
        partitions: in order of their numbers, from 0 on without gaps.
        configs: the settings of the topic itself, by name.
    """

    name: str
    topic_id: str
    partitions: tuple[RestoredPartition, ...]
    configs: tuple[RestoredConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCluster:
    """
    Attributes:
        source: where the metadata comes from; None: it was made from the directories.
        topics: in order of their names.
        features: levels by name, `metadata.version` among them.
        next_producer_id: above every producer id that a source knows.
        carried: records of surviving metadata that are taken over as they are: ACLs, quotas, SCRAM credentials, …
        cannot_come_back: what the restored cluster lacks.
    """

    cluster_id: str
    source: MetadataSource | None
    topics: tuple[RestoredTopic, ...]
    features: Mapping[str, int]
    next_producer_id: int
    carried: tuple[FramedMessage, ...] = ()
    cannot_come_back: tuple[CannotComeBack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvidence:
    """What the restored cluster is made of: what is known of the old cluster and of the new nodes.

    Attributes:
        surviving: None: no copy of the metadata survives.
        found: the partitions that directories were found of.
        brokers: their node ids, in order.
        controllers: one or more, formatted alike.
        has_bucket: whether tiered topics come back with their bucket.
    """

    surviving: SurvivingMetadata | None
    found: Sequence[RestoredPartition]
    brokers: Sequence[int]
    controllers: Sequence[FormattedController]
    evidence: LogEvidence
    has_bucket: bool = False

    @property
    def old_levels(self) -> Mapping[str, int]:
        """The levels of features that the restored cluster takes over from the old one, as far as they are known."""
        return proven_levels(self.evidence) if self.surviving is None else self.surviving.features


def restored_cluster(known: ClusterEvidence) -> RestoredCluster:
    """The restored cluster, with each topic's settings as surviving metadata has them."""
    surviving = known.surviving
    metadata = None if surviving is None else surviving.metadata
    topics, cannot = _restored_topics(known, metadata)
    formatted = known.controllers[0].features
    if surviving is None:
        proven = known.old_levels
        features = {name: max(formatted.get(name, 0), proven.get(name, 0)) for name in formatted.keys() | proven.keys()}
        cannot += lost_without_metadata()
    else:
        features = dict(surviving.features)
        cannot += [*surviving.left_out, *_overridden_min_in_sync(surviving)]
        why = f"the copy ends at {surviving.metadata.as_of}"
        cannot.append(CannotComeBack("what was set after the copy's end", None, why))
    next_id = max(known.evidence.highest_producer_id + 1, 0 if surviving is None else surviving.next_producer_id)
    cluster_id = known.controllers[0].properties.cluster_id
    assert cluster_id is not None
    return RestoredCluster(
        cluster_id=cluster_id,
        source=None if surviving is None else surviving.source,
        topics=tuple(topics),
        features=features,
        next_producer_id=-(-next_id // _PRODUCER_IDS_PER_BLOCK) * _PRODUCER_IDS_PER_BLOCK + PRODUCER_IDS_SKIPPED,
        carried=() if surviving is None else surviving.carried,
        cannot_come_back=tuple(cannot),
    )


def proven_levels(evidence: LogEvidence) -> dict[str, int]:
    """The levels of features that the restored cluster gets where no metadata survives: those that the old one had at
    least, by the records that its coordinators have written.
    """
    levels: dict[str, int] = {}
    for (module, record_type), version in evidence.coordinator_records.items():
        name = next(
            (
                message.name
                for message in messages_of(module).values()
                if message.kind == "coordinator-value" and message.api_key == record_type
            ),
            "",
        )
        if module == TRANSACTION_STATE and version >= 1:
            levels["transaction.version"] = 1
        for feature, of_module, prefix in _FEATURES_PROVEN_BY_RECORDS:
            if module == of_module and name.startswith(prefix):
                levels[feature] = 1
    return levels


def _restored_topics(
    known: ClusterEvidence, metadata: ClusterMetadata | None
) -> tuple[list[RestoredTopic], list[CannotComeBack]]:
    found: defaultdict[str, dict[int, RestoredPartition]] = defaultdict(dict)
    of_other_ids: list[RestoredPartition] = []
    for partition in known.found:
        id_now = partition.topic_id if metadata is None else metadata.topics.get(partition.topic, partition.topic_id)
        if partition.topic_id == id_now:
            found[partition.topic][partition.partition] = partition
        else:
            of_other_ids.append(partition)
    counts = {name: max(numbers) + 1 for name, numbers in found.items()}
    for name, count in known.evidence.partitions.items():
        if name in counts and (metadata is None or name not in metadata.topics):
            counts[name] = max(counts[name], count)  # with fewer, coordinators would look for names elsewhere
    for assigned in () if metadata is None else metadata.assignments:
        counts[assigned.topic] = max(counts.get(assigned.topic, 0), assigned.partition + 1)
    settings = {} if metadata is None else metadata.topic_configs
    topics = []
    for name, count in sorted(counts.items()):
        ids = {partition.topic_id for partition in found[name].values()}
        topic_id = metadata.topics[name] if metadata is not None and name in metadata.topics else min(ids)
        partitions = tuple(
            _restored_partition(
                TopicPartition(name, number), topic_id, found[name].get(number), metadata, known.brokers
            )
            for number in range(count)
        )
        configs = tuple(
            RestoredConfig(name=config, value=value, proof=ConfigProof.METADATA, was=value)
            for config, value in sorted(settings.get(name, {}).items())
        )
        topics.append(RestoredTopic(name=name, topic_id=topic_id, partitions=partitions, configs=configs))
    return topics, list(_partitions_not_found(topics, of_other_ids))


def _restored_partition(
    partition: TopicPartition,
    topic_id: str,
    found: RestoredPartition | None,
    metadata: ClusterMetadata | None,
    brokers: Sequence[int],
) -> RestoredPartition:
    assignment = None if metadata is None else metadata.assignments.get(partition)
    above = 0 if assignment is None else assignment.leader_epoch + 1
    if found is not None:
        return replace(found, leader_epoch=max(found.leader_epoch, above))
    was_on = () if assignment is None else assignment.replicas
    replicas = tuple(node for node in was_on if node in brokers) or (brokers[partition.partition % len(brokers)],)
    return RestoredPartition(
        topic=partition.topic,
        topic_id=topic_id,
        partition=partition.partition,
        replicas=replicas,
        in_sync=replicas,
        leader=replicas[0],
        leader_epoch=above,
        directories=(UNASSIGNED,) * len(replicas),
        begins_empty=True,
    )


def _partitions_not_found(
    topics: Sequence[RestoredTopic], of_other_ids: Sequence[RestoredPartition]
) -> Iterator[CannotComeBack]:
    empty = [partition for topic in topics for partition in topic.partitions if partition.begins_empty]
    if empty:
        names = _first_names(f"{partition.topic}-{partition.partition}" for partition in empty)
        yield CannotComeBack(
            "records of partitions", len(empty), f"no source has a directory with their topic id: {names} begin empty"
        )
    if of_other_ids:
        names = _first_names(f"{partition.topic}-{partition.partition}" for partition in of_other_ids)
        yield CannotComeBack(
            "directories of older topics", len(of_other_ids), f"the metadata has another id for these topics: {names}"
        )


def _first_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _NAMES_SHOWN
    return ", ".join(listed[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _overridden_min_in_sync(surviving: SurvivingMetadata) -> Iterator[CannotComeBack]:
    """A controller that begins a cluster with eligible leader replicas sets `min.insync.replicas` of all brokers to its
    own value, behind all records that it is given (`ActivationRecordsGenerator.recordsForEmptyLog`). So each such
    cluster has a value, and 1, Kafka's default, is not told.
    """
    value = next((record.values["value"] for record in surviving.carried if _is_min_in_sync(record)), None)
    if value not in (None, _MIN_IN_SYNC_DEFAULT) and surviving.features.get(_ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        yield CannotComeBack(
            f"{MIN_IN_SYNC} of all brokers",
            1,
            f"it was {value}, and the first controller sets it to its own: write {MIN_IN_SYNC}={value} into the "
            "server.properties of all controllers before they start",
        )


def _is_min_in_sync(record: FramedMessage) -> bool:
    values = record.values
    return record.message.name == "ConfigRecord" and (values["resourceName"], values["name"]) == ("", MIN_IN_SYNC)


def why_cluster_is_not_written(known: ClusterEvidence, cluster: RestoredCluster) -> Iterator[str]:
    """Why a restored cluster is not written, each with what to do."""
    yield from _why_not_these_controllers(known.controllers)
    formatted = known.controllers[0]
    for name, level in sorted(known.old_levels.items()):
        target = formatted.features.get(name, 0)
        if known.surviving is not None and level > target:
            yield (
                f"{formatted.path}: {name} {target}, and the old cluster had {level}: format with a Kafka that has it"
                + ("" if name == METADATA_VERSION else f", and --feature {name}={level}")
            )
    if known.surviving is not None and METADATA_VERSION not in known.surviving.features:
        yield (
            f"{known.surviving.source.directory}: no {METADATA_VERSION} in it; it is of a Kafka before 3.3, whose "
            "metadata Kafka 4 does not take"
        )
    if known.evidence.highest_producer_id >= _PRODUCER_ID_MAX:
        yield (
            f"producer id {known.evidence.highest_producer_id} in a log or a snapshot: no cluster has handed out so "
            "many; find the damaged file with kidx verify, and leave its log dir out"
        )
    for line in () if known.surviving is None else known.surviving.unread_copies:
        yield (
            f"{line}: what cannot be read may be newer; look for another copy of it; or take the {METADATA_DIRECTORY} "
            "that cannot be read out of a copy of its log dir, and go on with the one that counts instead"
        )
    for topic in () if known.has_bucket else cluster.topics:
        if any(config.name == REMOTE_STORAGE_ENABLE and config.was == "true" for config in topic.configs):
            yield (
                f"topic {topic.name}: {REMOTE_STORAGE_ENABLE}=true, and its older records are in a bucket: name it "
                "with --bucket"
            )


def _why_not_these_controllers(controllers: Sequence[FormattedController]) -> Iterator[str]:
    """Whichever controller leads first writes its file's records, and decides: all need the same."""
    first = controllers[0]
    for other in controllers[1:]:
        if (other.properties.cluster_id, other.features) != (first.properties.cluster_id, first.features):
            yield f"{other.path}: formatted otherwise than {first.path}; format all controllers with the same options"
        if (other.voters is None) != (first.voters is None) or other.voters != first.voters:
            yield f"{other.path}: other voters than in {first.path}; format all with the same --initial-controllers"
    given = {controller.properties.node_id for controller in controllers}
    missing = sorted((first.voters or {}).keys() - given)
    if missing:
        yield (
            f"{first.path}: controller {missing[0]} is a voter, and its directory is not given: if it leads first, "
            "brokers set all partitions aside; name the metadata log dirs of all controllers"
        )


#: `TopicBasedRemoteLogMetadataManager.createTopic`. What would be removed there, brokers would no longer find.
_REMOTE_METADATA_CONFIGS: Final = (
    ("cleanup.policy", "delete", ConfigProof.KAFKA),
    ("retention.ms", "-1", ConfigProof.KAFKA),
    ("retention.bytes", "-1", ConfigProof.KAFKA),
    ("unclean.leader.election.enable", "false", ConfigProof.KAFKA),
)


def read_proven_settings(files: Sequence[Path]) -> dict[str, OwnSettings]:
    """The settings that topics of the restored cluster had, by the files of `--topic-configs`."""
    by_topic: dict[str, OwnSettings] = {}
    for path in files:
        try:
            text = small_file(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--topic-configs {path}: cannot be read: {error}") from error
        settings = read_own_settings(path, text)
        if not settings:
            raise UsageError(
                f"--topic-configs {path}: no topic in it; expected the output of kafka-configs --describe --all "
                "--entity-type topics"
            )
        for topic, own in settings.items():
            if by_topic.setdefault(topic, own) != own:
                raise UsageError(f"--topic-configs {path}: topic {topic}: another file says otherwise; keep one")
    return by_topic


def with_topic_settings(
    cluster: RestoredCluster,
    proven: Mapping[str, OwnSettings],
    known: Mapping[str, str],
    tiered: Collection[str] = (),
    *,
    holds: bool,
) -> RestoredCluster:
    """The cluster, with the settings that each topic gets.

    Args:
        known: topic ids by name of the metadata that survives. Of a topic that was made later it says nothing, so that
            a setting which is not there may have been set.
        tiered: the topics with segments in a bucket.
    """
    topics = []
    for topic in cluster.topics:
        is_in_metadata = known.get(topic.name) == topic.topic_id
        configs = _proven_configs(topic, proven.get(topic.name), is_in_metadata, holds, topic.name in tiered)
        topics.append(replace(topic, configs=tuple(configs)))
    return replace(cluster, topics=tuple(topics))


def _proven_configs(
    topic: RestoredTopic, described: OwnSettings | None, is_in_metadata: bool, holds: bool, is_tiered: bool
) -> Iterator[RestoredConfig]:
    own = {config.name: config for config in topic.configs}
    if described is not None:
        for name, value in described.of_topic.items():
            own.setdefault(name, RestoredConfig(name=name, value=value, proof=ConfigProof.DESCRIBED, was=value))
    for name, value, proof in (
        *([(REMOTE_STORAGE_ENABLE, "true", ConfigProof.BUCKET)] if is_tiered else ()),
        *(_REMOTE_METADATA_CONFIGS if topic.name == REMOTE_LOG_METADATA_TOPIC else ()),
    ):
        own.setdefault(name, RestoredConfig(name=name, value=value, proof=proof, was=value))
    # Brokers give some of their own topics a policy (`GroupCoordinatorConfig`, `TransactionLog`).
    by_default = _COMPACT if topic.name in COMPACTED_BY_BROKERS else None
    policy = own[_CLEANUP].was if _CLEANUP in own else by_default
    held = {**SAFE_CONFIGS, _CLEANUP: policy or SAFE_CONFIGS[_CLEANUP]}
    if _COMPACT in held[_CLEANUP] and holds:
        held[_LEAST_LAG] = _FOREVER
    is_tiered = is_tiered or (REMOTE_STORAGE_ENABLE in own and own[REMOTE_STORAGE_ENABLE].was == "true")
    if is_tiered and (holds or not is_in_metadata):
        held |= _LOCAL_AS_ALL
    if is_tiered and holds:
        held[_NO_COPY] = "true"
    nobody = ConfigProof.METADATA if is_in_metadata else ConfigProof.NOTHING
    for name, safe in held.items():
        config = own.pop(name, None)
        if config is None:
            is_listed = described is not None and name in described.listed
            yield RestoredConfig(name=name, value=safe, proof=ConfigProof.DESCRIBED if is_listed else nobody, was=None)
        else:
            yield replace(config, value=safe) if holds or name == _UNCLEAN else config
    if holds and _MOST_LAG in own:  # a broker refuses one below `min.compaction.lag.ms`
        yield replace(own.pop(_MOST_LAG), value=None)
    yield from own.values()


def hold_lifting_arguments(topic: RestoredTopic) -> list[str]:
    """The arguments of `kafka-configs --alter`, as a shell takes them, that give a topic the settings that a source
    proves, and let cleaners work again.
    """
    add = [
        f"{config.name}={config.was}"
        for config in topic.configs
        if config.is_held and config.was is not None and config.name != _NO_COPY
    ]
    delete = [
        config.name
        for config in topic.configs
        if config.is_held
        and config.was is None
        and (config.proof is not ConfigProof.NOTHING or config.name == _LEAST_LAG)
        and config.name != _NO_COPY
    ]
    for_topic = f"--alter --entity-type topics {shell_option('--entity-name', topic.name)}"
    copies = [config for config in topic.configs if config.name == _NO_COPY and config.value != config.was]
    return [
        *([f"{for_topic} --add-config {_NO_COPY}={copies[0].was or 'false'}"] if copies else []),
        *([f"{for_topic} --add-config {shlex.quote(','.join(map(_as_kafka_configs_takes, add)))}"] if add else []),
        *([f"{for_topic} --delete-config {','.join(delete)}"] if delete else []),
    ]


def _as_kafka_configs_takes(setting: str) -> str:
    """A setting whose value has commas, as `kafka-configs` takes it."""
    name, _, value = setting.partition("=")
    return f"{name}=[{value}]" if "," in value else setting


def will_be_tiered(topic: RestoredTopic) -> bool:
    """Whether a topic of the restored cluster is tiered, so that its brokers read what a bucket has of it."""
    return any(config.name == REMOTE_STORAGE_ENABLE and config.value == "true" for config in topic.configs)


def unproven_settings(topic: RestoredTopic) -> list[str]:
    """The settings of a restored cluster's topic that no source proves."""
    return [config.name for config in topic.configs if config.proof is ConfigProof.NOTHING]


def cluster_metadata_records(cluster: RestoredCluster, formatted: Sequence[FramedMessage]) -> list[FramedMessage]:
    """The metadata records of a restored cluster, in an order in which each names only what is before it. A topic
    without a value for a setting by which Kafka deletes records is a `ValueError`: it would get Kafka's default.

    Args:
        formatted: the records of `kafka-storage format` in the target. Its users (`--add-scram`) win over those of the
            old cluster; its levels are not taken over.
    """
    users = [record for record in formatted if record.message.name == "UserScramCredentialRecord"]
    made = {_scram_user(record) for record in users}
    carried = [record for record in cluster.carried if _scram_user(record) not in made]
    levels = sorted(cluster.features.items(), key=lambda level: (level[0] != METADATA_VERSION, level[0]))
    return [
        *(_framed_record("FeatureLevelRecord", name=name, featureLevel=level) for name, level in levels if level > 0),
        *carried,
        *users,
        *(record for topic in cluster.topics for record in _topic_records(topic, cluster.features[METADATA_VERSION])),
        _framed_record("ProducerIdsRecord", brokerId=_NO_BROKER, nextProducerId=cluster.next_producer_id),
    ]


def _scram_user(record: FramedMessage) -> tuple[str, int] | None:
    """The user and mechanism of SCRAM credentials; None for another record."""
    if record.message.name != "UserScramCredentialRecord":
        return None
    return record.values["name"], record.values["mechanism"]


def _topic_records(topic: RestoredTopic, metadata_version: int) -> Iterator[FramedMessage]:
    if missing := sorted(SAFE_CONFIGS.keys() - {config.name for config in topic.configs if config.value is not None}):
        raise ValueError(f"topic {topic.name}: no value of {missing[0]}, so that Kafka's default would decide")
    yield _framed_record("TopicRecord", name=topic.name, topicId=topic.topic_id)
    for partition in topic.partitions:
        yield _partition_record(partition, metadata_version)
    for config in topic.configs:
        if config.value is not None:
            resource = {"resourceType": TOPIC_RESOURCE, "resourceName": topic.name}
            yield _framed_record("ConfigRecord", **resource, name=config.name, value=config.value)


def _partition_record(partition: RestoredPartition, metadata_version: int) -> FramedMessage:
    version = next((version for level, version in _PARTITION_VERSIONS if metadata_version >= level), 0)
    directories = {"directories": list(partition.directories)} if version > 0 else {}
    return _framed_record(
        "PartitionRecord",
        version,
        partitionId=partition.partition,
        topicId=partition.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.in_sync),
        leader=partition.leader,
        leaderEpoch=partition.leader_epoch,
        partitionEpoch=0,
        **directories,
    )


def _framed_record(message: str, version: int = 0, /, **values: Any) -> FramedMessage:
    return FramedMessage(messages_of(CLUSTER_METADATA)[message], version, values)
