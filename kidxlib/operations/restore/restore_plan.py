"""The plan of a restore: which replica goes where, who leads, what is lost or left out, and why the plan is refused."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kidxlib.engine.protocol import Engine
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.indexing.source import ANY_TOPIC
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.operations.recover.stopped_broker import Refusal
from kidxlib.operations.restore.bucket import RestoreBucket, Taken, TakenBucket, take_from_bucket
from kidxlib.operations.restore.choose_replicas import (
    ChosenReplica,
    ReplicaChoice,
    ReplicaPlacement,
    choose_leaders,
    sort_out_replicas,
)
from kidxlib.operations.restore.coordinators import OFFSETS_TOPIC, TRANSACTION_TOPIC, GroupOffsets, group_offsets
from kidxlib.operations.restore.inventory import Inventory, InventoryReplica
from kidxlib.operations.restore.new_nodes import (
    FormattedController,
    NewBroker,
    SpaceForNewLogDirs,
    space_needed,
    why_not_into_brokers,
    why_not_into_controllers,
)
from kidxlib.operations.restore.restored_cluster import (
    MIN_IN_SYNC,
    UNASSIGNED,
    ClusterEvidence,
    RestoredCluster,
    RestoredPartition,
    RestoredTopic,
    hold_lifting_arguments,
    restored_cluster,
    why_cluster_is_not_written,
    will_be_tiered,
    with_topic_settings,
)
from kidxlib.operations.restore.surviving_metadata import (
    CannotComeBack,
    SurvivingMetadata,
    only_topics,
    surviving_or_refused,
)
from kidxlib.operations.restore.until_offsets import (
    GivenEnds,
    commits_cut_by_given_ends,
    open_without_given_end,
    plan_ends,
)
from kidxlib.retention.described_configs import OwnSettings
from kidxlib.text.words import counted


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What somebody has decided.

    Attributes:
        holds: everything by which Kafka removes records is held.
        keeps_cluster_id: no node of the old cluster lives.
        accepts_loss: go on without records that are gone.
        accepts_divergence: of replicas that disagree, the leader's records are taken.
        topics: only topics whose full names match.
        until: the offset before which a partition ends; None where none is given at all.
        resets: the file for groups' offsets that lie behind the ends; None for none.
    """

    holds: bool
    keeps_cluster_id: bool
    accepts_loss: bool
    accepts_divergence: bool
    topics: re.Pattern[str] = ANY_TOPIC
    until: Mapping[TopicPartition, int] | None = None
    resets: Path | None = None


@dataclass(frozen=True, kw_only=True)
class RestorePlan:
    """
    Attributes:
        replicas: in the order of partitions and of their replicas.
        lost: records that the old cluster had, and the restored one lacks, a line each.
        disagreements: how replicas differ from the leader's, a line each.
        left_out: directories that are not restored, a line each.
        space: of each file system with new log dirs.
        refusals: why the plan is not applied, each with what to do.
        ends: of partitions for which somebody has given one.
        groups: committed offsets behind the ends of logs.
        bucket: what is taken from a bucket of tiered storage; None: none is given.
    """

    options: RestoreOptions
    inventory: Inventory
    brokers: Sequence[NewBroker]
    controllers: Sequence[FormattedController]
    surviving: SurvivingMetadata | None
    cluster: RestoredCluster
    replicas: Sequence[ChosenReplica]
    lost: Sequence[str]
    disagreements: Sequence[str]
    left_out: Sequence[str]
    space: Sequence[SpaceForNewLogDirs]
    refusals: Sequence[str]
    ends: GivenEnds
    groups: GroupOffsets
    bucket: TakenBucket | None = None

    @cached_property
    def id(self) -> str:
        """A digest of what the plan does: two plans that would do the same have the same one."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def copied(self) -> list[ChosenReplica]:
        return [replica for replica in self.replicas if replica.source is not None]

    @property
    def copied_leaders(self) -> list[InventoryReplica]:
        return [replica.copied_from for replica in self.copied if replica.is_leader]

    @property
    def not_known(self) -> Iterator[str]:
        """What lost checkpoints do not say of the brokers' log dirs, nor damaged metadata, nor producer snapshots."""
        yield from () if self.surviving is None else self.surviving.behind_damage
        if (unread := self.inventory.unread_snapshots) is not None:
            yield unread
        for broker in self.inventory.brokers:
            for log_dir in broker.log_dirs if broker.bucket is None and broker.replicas else ():
                for name, what in _TOLD_BY_CHECKPOINTS.items():
                    if name in log_dir.stop.missing | log_dir.stop.unusable:
                        how = "missing" if name in log_dir.stop.missing else "cannot be read"
                        yield f"{log_dir.path / name}: {how}, so that nobody knows {what}; copy it from the disk, too"

    @property
    def copied_bytes(self) -> int:
        return sum(replica.kept_bytes for replica in self.replicas)

    @property
    def cut(self) -> list[str]:
        """What of the copied logs is left out: what no start would keep."""
        return [
            f"{source.directory}: {dropped.amount} of segment {dropped.base_offset} ({dropped.why}); the copy ends at "
            f"offset {source.end_offset}"
            for source in (replica.copied_from for replica in self.copied)
            for dropped in source.forecast.dropped
        ]

    @property
    def gaps(self) -> list[str]:
        """What is missing within logs that are copied."""
        sources = (each.copied_from for each in self.copied)
        ends = {(str(each.place.name), each.topic_partition): each.end_offset for each in sources}
        between = [
            f"{TopicPartition(gap.topic, gap.partition).directory} of broker {broker.node_id}: {gap.detail}"
            for broker in self.inventory.brokers
            for gap in broker.plan.gaps.lost
            if gap.first_offset < ends.get((str(broker.place.name), TopicPartition(gap.topic, gap.partition)), 0)
        ]
        around = [
            f"{leader.topic_partition.directory} of broker {leader.node_id}: {text}"
            for leader in self.copied_leaders
            for text in leader.missing
        ]
        return [*between, *around]

    @property
    def too_few_replicas(self) -> Iterator[str]:
        """Topics that have fewer replicas than before, or than those who write to them ask for."""
        assignments = {} if self.surviving is None else self.surviving.metadata.assignments
        for topic in self.cluster.topics:
            names = (TopicPartition(topic.name, each.partition) for each in topic.partitions)
            had = max((len(assignments[name].replicas) for name in names if name in assignments), default=0)
            least = min(len(each.replicas) for each in topic.partitions)
            asked = next((config.value for config in topic.configs if config.name == MIN_IN_SYNC), None)
            fewer = f"topic {topic.name}: {counted(least, 'replica')}{f' of {had}' if had > least else ''}"
            if least < int(asked or 0):
                yield (
                    f"{fewer}, and {MIN_IN_SYNC}={asked}: nobody writes there with acks=all, nor do coordinators, "
                    "until it has more (kafka-reassign-partitions), or you set that lower"
                )
            elif least < had:
                yield f"{fewer}: give it more (kafka-reassign-partitions) before you rely on it"

    @property
    def not_in_metadata(self) -> list[str]:
        """Topics that are restored, and that surviving metadata does not know."""
        if self.surviving is None:
            return []
        return [topic.name for topic in self.cluster.topics if topic.name not in self.surviving.metadata.topics]

    def as_json(self) -> dict[str, Any]:
        """What the plan does, without anything that another run would say otherwise."""
        source = self.cluster.source
        return {
            "cluster_id": self.cluster.cluster_id,
            "metadata": None
            if source is None
            else {
                "directory": str(source.directory),
                "node_id": source.node_id,
                "epoch": source.epoch,
                "end_offset": source.end_offset,
                "timestamp_ms": source.timestamp_ms,
                "committed": source.is_committed,
                "older": [str(older.directory) for older in source.older],
            },
            "features": dict(self.cluster.features),
            "next_producer_id": self.cluster.next_producer_id,
            "holds_retention": self.options.holds,
            "sources": [
                {
                    "node_id": None if broker.bucket is not None else broker.node_id,
                    "cluster_id": broker.cluster_id,
                    "log_dirs": broker.shown,
                    "partitions": len(broker.replicas),
                }
                for broker in self.inventory.brokers
            ],
            "bucket": None if self.bucket is None else self.bucket.as_json(),
            "controllers": [str(controller.path) for controller in self.controllers],
            "topics": [_topic_as_json(topic) for topic in self.cluster.topics],
            "replicas": [_replica_as_json(replica) for replica in self.replicas],
            "cut": self.cut,
            "gaps": self.gaps,
            "lost": list(self.lost),
            "disagreements": list(self.disagreements),
            "left_out": list(self.left_out),
            "not_in_metadata": self.not_in_metadata,
            "too_few_replicas": list(self.too_few_replicas),
            "ends": [end.as_json() for _, end in sorted(self.ends.by_partition.items())],
            "without_end": list(self.ends.without_end),
            "groups_behind": [each.as_json() for each in self.groups.behind],
            "groups_not_restored": dict(self.groups.not_restored),
            "cannot_come_back": [
                {"kind": each.kind, "count": each.count, "why": each.why} for each in self.cluster.cannot_come_back
            ],
        }


def _topic_as_json(topic: RestoredTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "begins_empty": partition.begins_empty,
            }
            for partition in topic.partitions
        ],
        "configs": [
            {"name": config.name, "value": config.value, "proof": config.proof.value, "was": config.was}
            for config in topic.configs
        ],
        "lift": hold_lifting_arguments(topic),
    }


def _replica_as_json(replica: ChosenReplica) -> dict[str, Any]:
    source = replica.source
    return {
        "partition": replica.topic_partition.directory,
        "node_id": replica.node_id,
        "log_dir": None if replica.log_dir is None else str(replica.log_dir),
        "from": None if source is None else source.shown,
        "start_offset": None if source is None else source.first_offset,
        "end_offset": None if source is None else source.end_offset,
        "last_epoch": None if source is None else source.last_epoch,
        "log_bytes": None if source is None else source.kept_bytes,
        "leader": replica.is_leader,
        "in_sync": replica.in_sync,
        "why": replica.why,
    }


def plan_restore(
    options: RestoreOptions,
    inventory: Inventory,
    brokers: Sequence[NewBroker],
    controllers: Sequence[FormattedController],
    proven: Mapping[str, OwnSettings],
    engine: Engine,
    bucket: RestoreBucket | None = None,
) -> RestorePlan:
    """Plan a restore. Nothing is written, but for what is made of a bucket, into the bucket's `log_dir`."""
    newest = surviving_or_refused(inventory.paths)
    surviving = only_topics(newest, options.topics)
    taken = take_from_bucket(bucket, inventory, newest, options.topics, brokers, controllers, engine)
    inventory = taken.inventory
    sorted_out = sort_out_replicas(inventory, newest, options.topics)
    ends, choices = _planned_ends_and_leaders(options, inventory, sorted_out.partitions, surviving, engine)
    placement = ReplicaPlacement(brokers, surviving)
    placed = [list(placement.place(choice)) for choice in choices]
    replicas = list(chain.from_iterable(placed))
    known = ClusterEvidence(
        surviving=surviving,
        found=list(_partitions_found(choices, placed, brokers)),
        brokers=[broker.node_id for broker in brokers],
        controllers=controllers,
        evidence=inventory.evidence(),
        has_bucket=bucket is not None,
    )
    settled = {} if surviving is None else surviving.metadata.topics
    cluster = with_topic_settings(restored_cluster(known), proven, settled, taken.topics, holds=options.holds)
    cluster = _with_replaced_values_lost(cluster, ends)
    groups = _planned_group_offsets(inventory, choices, cluster)
    lost = [
        *_lost_records(choices, inventory, ends),
        *_first_records_of_followers(choices),
        *_partitions_without_in_sync(choices, surviving),
        *_partitions_beginning_empty(cluster, inventory),
        *_partitions_named_elsewhere(inventory, cluster, options.topics, groups),
        *taken.lost,
    ]
    copies = [(each.log_dir, each.source) for each in replicas if each.log_dir is not None and each.source is not None]
    plan = RestorePlan(
        options=options,
        inventory=inventory,
        brokers=brokers,
        controllers=controllers,
        surviving=surviving,
        cluster=cluster,
        replicas=replicas,
        lost=lost,
        disagreements=[text for choice in choices for text in choice.disagreements],
        left_out=[*sorted_out.left_out, *taken.left_out],
        space=space_needed((path for broker in brokers for path in broker.log_dirs), copies),
        refusals=(),
        ends=ends,
        groups=groups,
        bucket=taken if isinstance(taken, TakenBucket) else None,
    )
    of_bucket = _why_not_tiered(choices) if bucket is None else [*taken.refusals, *_topics_tiered_since(cluster, taken)]
    of_sources = [*sorted_out.refusals, *of_bucket]
    return replace(plan, refusals=list(dict.fromkeys(_plan_refusals(plan, known, choices, of_sources))))


def _planned_ends_and_leaders(
    options: RestoreOptions,
    inventory: Inventory,
    partitions: Sequence[Sequence[InventoryReplica]],
    surviving: SurvivingMetadata | None,
    engine: Engine,
) -> tuple[GivenEnds, list[ReplicaChoice]]:
    elsewhere = {partition for broker in inventory.brokers for partition in broker.partitions}
    assignments = {} if surviving is None else surviving.metadata.assignments
    ends = plan_ends(options.until, partitions, elsewhere, engine.cores, assignments)
    return ends, choose_leaders(
        [ends.cut(replicas) for replicas in partitions], inventory.known, engine, assignments, settled=ends.by_partition
    )


def _plan_refusals(
    plan: RestorePlan, known: ClusterEvidence, choices: Sequence[ReplicaChoice], of_sources: Iterable[str]
) -> Iterator[str]:
    options, brokers = plan.options, plan.brokers
    yield from why_not_into_brokers(brokers, plan.inventory.brokers, keeps_cluster_id=options.keeps_cluster_id)
    yield from why_cluster_is_not_written(known, plan.cluster)
    yield from why_not_into_controllers(plan.controllers, brokers, plan.inventory.brokers)
    yield from of_sources
    yield from (_no_start(refusal) for choice in choices for refusal in choice.leader.forecast.refusals)
    yield from _why_not_ends(options, plan.inventory, choices, plan.ends)
    yield from plan.groups.why_not(options.resets)
    yield from (each.why_not for each in plan.space if each.why_not is not None)
    if not options.accepts_loss:
        yield from (
            f"{text}: look for another copy, and name it as a source; else --accept-loss goes on without"
            for text in plan.lost
        )
    if not options.accepts_divergence:
        takes = "--accept-divergence takes the leader's records, and this broker fetches them anew"
        yield from (f"{text}: {takes}" for text in plan.disagreements)


def _topics_tiered_since(cluster: RestoredCluster, taken: Taken) -> Iterator[str]:
    """Topics that became tiered after the end of the metadata that survives."""
    for topic in cluster.topics:
        if topic.name in taken.not_tiered and will_be_tiered(topic):
            yield (
                f"topic {topic.name}: --topic-configs says that it is tiered, and the metadata does not, so that its "
                "remote segments were not compared: leave it out (--topics), or name a log dir with newer metadata"
            )


def _no_start(refusal: Refusal) -> str:
    """A refusal of `recover`, which may say that the broker is to start: here it would set its directories aside."""
    no_start = "; but start no old node: restore this partition from another copy, or take the directory out"
    return refusal.text + (no_start if refusal.recovers else "")


#: What nobody knows without a checkpoint.
_TOLD_BY_CHECKPOINTS: Final = {
    HIGH_WATERMARK_CHECKPOINT: "whether records are lost that consumers have seen",
    RECOVERY_POINT_CHECKPOINT: "whether records are lost that were flushed",
    LOG_START_OFFSET_CHECKPOINT: "what DeleteRecords has deleted, and it may be served again",
}


def _partitions_found(
    choices: Iterable[ReplicaChoice], placed: Iterable[Sequence[ChosenReplica]], brokers: Iterable[NewBroker]
) -> Iterator[RestoredPartition]:
    ids = {path: id_ for broker in brokers for path, id_ in broker.directory_ids.items()}
    for choice, replicas in zip(choices, placed, strict=True):
        leader = choice.leader
        epochs = [leader.highest_epoch, *(other.replica.highest_epoch for other in choice.others)]
        assert leader.topic_id is not None
        yield RestoredPartition(
            topic=leader.topic_partition.topic,
            topic_id=leader.topic_id,
            partition=leader.topic_partition.partition,
            replicas=tuple(replica.node_id for replica in replicas),
            in_sync=tuple(replica.node_id for replica in replicas if replica.in_sync),
            leader=next(replica.node_id for replica in replicas if replica.is_leader),
            leader_epoch=max(epochs) + 1,
            directories=tuple(ids.get(str(replica.log_dir), UNASSIGNED) for replica in replicas),
        )


def _lost_records(choices: Iterable[ReplicaChoice], inventory: Inventory, ends: GivenEnds) -> Iterator[str]:
    """Records that consumers have seen, or whole batches, that no copied log has; but for those behind a given end."""
    marks: Counter[TopicPartition] = Counter()
    for broker in inventory.brokers:
        for log_dir in broker.log_dirs:
            for partition, offset in log_dir.stop.high_watermarks.items():
                marks[partition] = max(marks[partition], offset)
    for choice in choices:
        given = ends.by_partition.get(choice.leader.topic_partition)
        leader, until = (choice.leader, OFFSET_MAX) if given is None else (given.leader, given.given)
        name, end = leader.topic_partition.directory, leader.end_offset
        if leader.forecast.refusals:
            continue
        for dropped in leader.forecast.dropped:
            if not dropped.is_torn and dropped.from_offset < until:
                yield f"{leader.directory}: {dropped.amount} of segment {dropped.base_offset} ({dropped.why})"
        known_end = min(max(marks[leader.topic_partition], leader.forecast.stop.known_end), until)
        if end < known_end:
            yield (
                f"{name}: offsets {end} to {known_end - 1} are in no log, and checkpoints say that consumers have seen "
                f"them, or that they were flushed; the log of {leader} ends at {end}"
            )


def _first_records_of_followers(choices: Iterable[ReplicaChoice]) -> Iterator[str]:
    """Records before the leader's first log, which it has lost by its leader epochs: another replica that has them
    deletes them as it follows (`UnifiedLog.maybeIncrementLogStartOffset`).
    """
    for choice in choices:
        leader, lost = choice.leader, choice.leader.lost_first
        others = [other.replica for other in choice.others if other.is_copied]
        first = min(others, key=lambda other: other.start_offset, default=leader)
        if lost and first.start_offset < lost.stop:
            yield (
                f"{leader.topic_partition.directory}: {leader} has lost offsets {lost.start} to {lost.stop - 1}, and "
                f"{first} begins at {first.start_offset}, and deletes them once it follows: put its first logs into a "
                "copy of the leader's directory"
            )


def _partitions_without_in_sync(choices: Iterable[ReplicaChoice], surviving: SurvivingMetadata | None) -> Iterator[str]:
    """Partitions of which no source has a replica that was in sync: acknowledged records may be in none."""
    for choice in choices if surviving is not None else ():
        if choice.leader.origin is not None:
            continue  # the bucket's lines say so
        partition = choice.leader.topic_partition
        assignment = surviving.metadata.assignments.get(partition) if surviving is not None else None
        nodes = {choice.leader.node_id, *(other.replica.node_id for other in choice.others)}
        if assignment is not None and assignment.in_sync and not nodes & set(assignment.in_sync):
            alone = ", ".join(map(str, assignment.in_sync))
            yield (
                f"{partition.directory}: by the metadata only brokers {alone} were in sync, and no source has their "
                f"directories of this topic id: records after offset {choice.leader.end_offset} may be gone"
            )


def _partitions_beginning_empty(cluster: RestoredCluster, inventory: Inventory) -> Iterator[str]:
    for topic in cluster.topics:
        for partition in filter(lambda partition: partition.begins_empty, topic.partitions):
            name = TopicPartition(topic.name, partition.partition)
            of_others = [
                each for each in inventory.replicas.get(name, ()) if each.topic_id not in (None, topic.topic_id)
            ]
            if of_others:
                yield (
                    f"{name.directory}: no source has a directory of topic id {topic.topic_id}, as the metadata has: "
                    f"it begins empty, at offset 0; {of_others[0].directory} is left out, whose records are those of "
                    "the topic if it was made again after the end of the metadata"
                )
            else:
                yield f"{name.directory}: no source has its directory: it begins empty, at offset 0"


def _partitions_named_elsewhere(
    inventory: Inventory, cluster: RestoredCluster, topics: re.Pattern[str], groups: GroupOffsets
) -> Iterator[str]:
    """Partitions that the sources' checkpoints or the offsets of groups alone name: no metadata has them, and no source
    has their directory.
    """
    told = {TopicPartition(topic.name, each.partition) for topic in cluster.topics for each in topic.partitions}
    for broker in inventory.brokers:
        for absent in broker.plan.absent:
            found, partition = absent.found, parse_partition_directory(absent.directory.name)
            if partition is None or partition in told or found.aside or topics.fullmatch(partition.topic) is None:
                continue
            told.add(partition)
            had = f", with offsets up to {absent.stop.known_end - 1}" if absent.stop.known_end else ""
            yield (
                f"{partition.directory}: {found.known_to} in {absent.directory.parent} names it{had}, and no source "
                "has its directory"
            )
    for partition, offset in groups.missing.items():
        if partition not in told:
            yield (
                f"{partition.directory}: {OFFSETS_TOPIC} has a committed offset of it, {offset}, and no source has its "
                "directory"
            )


def _planned_group_offsets(
    inventory: Inventory, choices: Iterable[ReplicaChoice], cluster: RestoredCluster
) -> GroupOffsets:
    ends = {TopicPartition(topic.name, each.partition): 0 for topic in cluster.topics for each in topic.partitions}
    leaders = {choice.leader.topic_partition: choice.leader for choice in choices}
    ends |= {partition: leader.end_offset for partition, leader in leaders.items()}
    of_groups = (leader for partition, leader in leaders.items() if partition.topic == OFFSETS_TOPIC)
    return group_offsets((inventory.coordinator_logs[leader.directory] for leader in of_groups), ends)


def _why_not_ends(
    options: RestoreOptions, inventory: Inventory, choices: Iterable[ReplicaChoice], ends: GivenEnds
) -> Iterator[str]:
    """Refusals of given ends, and of transactions that nobody would end as they were meant to be."""
    leaders = [choice.leader for choice in choices]
    yield from ends.refusals
    for leader in leaders:
        if leader.topic_partition.topic == TRANSACTION_TOPIC:
            yield from commits_cut_by_given_ends(inventory.coordinator_logs[leader.directory].prepared.values(), ends)
    if options.topics.fullmatch(TRANSACTION_TOPIC) is None:
        yield from open_without_given_end(leaders, ends)


def _with_replaced_values_lost(cluster: RestoredCluster, ends: GivenEnds) -> RestoredCluster:
    """The cluster, with what no end brings back: a cleaner has removed values that were replaced."""
    compacted = {
        topic.name
        for topic in cluster.topics
        if any(config.name == "cleanup.policy" and "compact" in (config.value or "") for config in topic.configs)
    }
    cut = {
        partition.topic
        for partition, end in ends.by_partition.items()
        if end.is_cut and (partition.topic in compacted or partition in end.leader.last_stop.cleaner_offsets)
    }
    if not cut:
        return cluster
    why = f"{', '.join(sorted(cut))}: a value that was replaced after the given end may be gone: its key has none"
    replaced = CannotComeBack("older values of compacted topics", None, why)
    return replace(cluster, cannot_come_back=(*cluster.cannot_come_back, replaced))


def _why_not_tiered(choices: Iterable[ReplicaChoice]) -> Iterator[str]:
    """Refusals for partitions that look tiered where no metadata says so: their log begins in a bucket
    (`LogManager.checkpointLogStartOffsets`).
    """
    for choice in choices:
        leader = choice.leader
        segments = leader.forecast.simulation.segments
        start = leader.forecast.stop.log_start_offset
        if leader.topic_partition.topic == REMOTE_LOG_METADATA_TOPIC and leader.end_offset > 0:
            yield (
                f"{leader.directory}: the cluster had tiered storage: name its bucket with --bucket; or take this "
                "directory and those of tiered topics out of the sources"
            )
        elif segments and 0 < start < segments[0].base_offset:
            yield (
                f"{leader.directory}: its log begins at offset {start}, and its first segment at "
                f"{segments[0].base_offset}: the rest is in a bucket: name it with --bucket; or take the directory "
                "out of the source"
            )
