"""The restored cluster as a whole: the partitions that directories were found of, and around them what surviving
metadata or the logs say of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, FramedMessage
from kidxlib.operations.restore.cluster import (
    UNASSIGNED,
    CannotComeBack,
    ConfigProof,
    LogEvidence,
    RestoredBroker,
    RestoredCluster,
    RestoredConfig,
    RestoredPartition,
    RestoredTopic,
)
from kidxlib.operations.restore.formatted import FormattedController
from kidxlib.operations.restore.surviving import SurvivingMetadata, made_from_folders
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a restore knows of the old cluster and the new one.

    Attributes:
        surviving: None: no copy of the metadata survives.
        found: the partitions that directories were found of.
        brokers: in order of their node ids.
        controllers: one or more, formatted alike.
        has_bucket: whether tiered topics come back with their bucket.
    """

    surviving: SurvivingMetadata | None
    found: Sequence[RestoredPartition]
    brokers: Sequence[RestoredBroker]
    controllers: Sequence[FormattedController]
    evidence: LogEvidence
    has_bucket: bool = False

    @property
    def old_levels(self) -> Mapping[str, int]:
        """The levels of features that the old cluster had, as far as they are known."""
        return proven_levels(self.evidence) if self.surviving is None else self.surviving.features


def restored_cluster(known: Known) -> RestoredCluster:
    """The restored cluster, with each topic's settings as surviving metadata has them."""
    surviving = known.surviving
    metadata = None if surviving is None else surviving.metadata
    topics, cannot = _restored_topics(known, metadata)
    formatted = known.controllers[0].features
    if surviving is None:
        proven = known.old_levels
        features = {name: max(formatted.get(name, 0), proven.get(name, 0)) for name in formatted.keys() | proven.keys()}
        cannot += made_from_folders()
    else:
        features = dict(surviving.features)
        cannot += [*surviving.left_out, *_overridden_min_in_sync(surviving), *_set_after_metadata_end(surviving)]
    next_id = max(known.evidence.highest_producer_id + 1, 0 if surviving is None else surviving.next_producer_id)
    cluster_id = known.controllers[0].properties.cluster_id
    assert cluster_id is not None
    return RestoredCluster(
        cluster_id=cluster_id,
        source=None if surviving is None else surviving.source,
        topics=tuple(topics),
        brokers=tuple(known.brokers),
        features=features,
        next_producer_id=-(-next_id // _PRODUCER_IDS_PER_BLOCK) * _PRODUCER_IDS_PER_BLOCK + PRODUCER_IDS_SKIPPED,
        carried=() if surviving is None else surviving.carried,
        cannot_come_back=tuple(cannot),
    )


def proven_levels(evidence: LogEvidence) -> dict[str, int]:
    """The levels of features that a cluster had at least, by the records that its coordinators have written."""
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
    known: Known, metadata: ClusterMetadata | None
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
        topics.append(
            RestoredTopic(
                name=name, topic_id=topic_id, partitions=partitions, configs=_configs_in_metadata(name, metadata)
            )
        )
    return topics, list(_partitions_not_found(topics, of_other_ids))


def _restored_partition(
    partition: TopicPartition,
    topic_id: str,
    found: RestoredPartition | None,
    metadata: ClusterMetadata | None,
    brokers: Sequence[RestoredBroker],
) -> RestoredPartition:
    assignment = None if metadata is None else metadata.assignments.get(partition)
    above = 0 if assignment is None else assignment.leader_epoch + 1
    if found is not None:
        return replace(found, leader_epoch=max(found.leader_epoch, above))
    ids = [broker.node_id for broker in brokers]
    was_on = () if assignment is None else assignment.replicas
    replicas = tuple(node for node in was_on if node in ids) or (ids[partition.partition % len(ids)],)
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


def _configs_in_metadata(topic: str, metadata: ClusterMetadata | None) -> tuple[RestoredConfig, ...]:
    if metadata is None:
        return ()
    configs = metadata.topic_configs.get(topic, {})
    return tuple(
        RestoredConfig(name=name, value=value, proof=ConfigProof.METADATA, was=value)
        for name, value in sorted(configs.items())
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


def _first_names(names: Iterable[str], shown: int = 5) -> str:
    listed = list(names)
    more = len(listed) - shown
    return ", ".join(listed[:shown]) + (f" and {more} more" if more > 0 else "")


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


def _set_after_metadata_end(surviving: SurvivingMetadata) -> Iterator[CannotComeBack]:
    yield CannotComeBack("what was set after the copy's end", None, f"the copy ends at {surviving.metadata.as_of}")


def why_not(known: Known, cluster: RestoredCluster) -> Iterator[str]:
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
