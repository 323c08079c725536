"""The partitions of a plan to audit, and how their brokers stopped."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kidxlib.audit.gaps import explains_gaps
from kidxlib.audit.startup.absent import absent_partitions_of_nodes, log_dirs_by_node
from kidxlib.audit.startup.last_stop import LastStop, PartitionStop, last_stop_of_folders, last_stops
from kidxlib.audit.startup.node import directory_ids_of, with_directory_ids
from kidxlib.audit.tiered.local_epochs import TieredPartition
from kidxlib.errors import UsageError
from kidxlib.format import topic_partition
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.log.metadata_image import BrokerSettings, ClusterMetadata, topic_config
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Location, location


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """One partition to audit.

    Attributes:
        directory: where its logs and the broker's snapshots are.
        index_directory: where its index and auxiliary files are; may be the same directory.
        options: the options with which a starting broker would make indexes.
        last_stop: how the broker of its log dir stopped.
        tiering: whether to say which segments are not ready for tiered storage.
        known_to: what names the partition if its directory is missing; None if the directory exists.
        remedy: what to do if the directory is missing.
        is_brokers: whether a broker starts with it. False for partitions in a bucket of tiered storage.
        tiered: its remote segments; None if none are known.
        log_dirs: all log dirs at hand, any of which may have logs of it.
        is_compacted: whether its topic is; None: nobody knows.
    """

    topic_partition: topic_partition.TopicPartition
    directory: Location
    index_directory: Location
    options: RecoverOptions
    last_stop: PartitionStop
    tiering: bool
    known_to: str | None = None
    remedy: str = ""
    is_brokers: bool = True
    tiered: TieredPartition | None = None
    log_dirs: tuple[Location, ...] = ()
    is_compacted: bool | None = None


def partition_audits(
    plan: Plan,
    sources: Iterable[Source],
    options_for: Callable[[PartitionDirectory], OptionsOfTopic],
    *,
    clean_shutdown: bool | None,
    tiering: bool,
    topics: re.Pattern[str] | None = None,
    metadata: Mapping[str, ClusterMetadata] = MappingProxyType({}),
    kafka_version: KafkaRelease | None = None,
) -> tuple[dict[PartitionKey, PartitionAudit], Mapping[Location, LastStop]]:
    """What to audit in a plan's partitions once their segments were read, and how the broker of each log dir stopped,
    in the log dirs' order; the notes there are warnings to show.

    A log dir without any segment counts, too: another one may know what it should have. Partitions of `topics` that
    checkpoints or the cluster's metadata name are audited even if their directory is not there; None leaves them out.
    `metadata` is by the source's name, `clean_shutdown` None reads the answer from each log dir, and `kafka_version`
    None what each node has registered.
    """
    remote = _directories_above_remote(plan)
    source_of = {source.path: source for source in sources if source.name in plan.log_dirs and source.remote is None}
    log_dirs = {*source_of, *(partition.directory.log_dir for partition in plan.partitions)}
    stops = _last_stops_of_log_dirs(plan, log_dirs - remote, source_of, clean_shutdown, metadata, kafka_version)
    at_hand = tuple(sorted(log_dirs - remote, key=str))
    # A copied log ends with a whole batch.
    stops |= {log_dir: last_stop_of_folders(log_dir, (), True, None, kafka_version) for log_dir in remote}
    audits = {
        partition.key: PartitionAudit(
            topic_partition=partition.directory.topic_partition,
            directory=partition.directory.path,
            index_directory=location(str(partition.index_directory)),
            options=replace(partition.options, verify_crc=True),
            last_stop=stops[partition.directory.log_dir].of(partition.directory.topic_partition),
            tiering=tiering,
            is_brokers=partition.directory.remote is None,
            log_dirs=at_hand,
            is_compacted=_is_topic_compacted(partition.directory, metadata, stops[partition.directory.log_dir]),
        )
        for partition in plan.partitions
        if partition.key not in plan.unlistable
    }
    if topics is not None:
        known = {log_dir: metadata.get(source.name) for log_dir, source in source_of.items()}
        for absent in absent_partitions_of_nodes({log_dir: stops[log_dir] for log_dir in source_of}, known):
            source, partition = source_of[absent.log_dir], absent.partition
            if topics.fullmatch(partition.topic):
                audits[source.name, partition.topic, partition.partition] = PartitionAudit(
                    topic_partition=partition,
                    directory=absent.directory,
                    index_directory=absent.directory,
                    options=options_for(PartitionDirectory(source, partition, absent.directory)).of_id(None),
                    last_stop=stops[absent.log_dir].of(partition),
                    tiering=tiering,
                    known_to=absent.known_to,
                    remedy=absent.remedy,
                    log_dirs=at_hand,
                )
    return audits, {log_dir: stops[log_dir] for log_dir in at_hand}


def _is_topic_compacted(
    directory: PartitionDirectory, metadata: Mapping[str, ClusterMetadata], stop: LastStop
) -> bool | None:
    """Whether a partition's topic is compacted, by the cluster's metadata; where that does not tell, by the cleaner's
    checkpoint, in which a topic may stay that is no longer compacted.
    """
    topic, of_cluster = directory.topic_partition.topic, metadata.get(directory.source.name)
    if of_cluster is not None and topic in of_cluster.to_end.topics:
        policy = topic_config(of_cluster.to_end, BrokerSettings(None, None), topic, "cleanup.policy")
        if policy is not None:
            return explains_gaps(topic, policy)
    return True if explains_gaps(topic, None) or directory.topic_partition in stop.cleaner_offsets else None


def _last_stops_of_log_dirs(
    plan: Plan,
    log_dirs: Collection[Location],
    source_of: Mapping[Location, Source],
    clean_shutdown: bool | None,
    metadata: Mapping[str, ClusterMetadata],
    kafka_version: KafkaRelease | None,
) -> dict[Location, LastStop]:
    """How the brokers of log dirs stopped. The log dirs of one node are judged together. `source_of` has the log dirs
    that were listed in full; of the others only the plan's directories are looked at.
    """
    folders = defaultdict[Location, list[Location]](list)
    source_names = {log_dir: source.name for log_dir, source in source_of.items()}
    for partition in plan.partitions:
        folders[partition.directory.log_dir].append(partition.directory.path)
        source_names.setdefault(partition.directory.log_dir, partition.directory.source.name)
    # With what may not be committed yet: the node has directories of that, too.
    read = {name: of_source.to_end for name, of_source in metadata.items()}
    stops: dict[Location, LastStop] = {}
    clusters = list({str(copy.directory): copy for copy in read.values()}.values())
    for node_log_dirs in log_dirs_by_node(sorted(set(log_dirs) & source_of.keys(), key=str), clusters):
        of_cluster = next(filter(None, (read.get(source_names[log_dir]) for log_dir in node_log_dirs)), None)
        stops |= last_stops(node_log_dirs, clean_shutdown, of_cluster, kafka_version)
    if len(clusters) == 1:  # a log dir without the file is looked at by itself, and may be another one's
        ids = directory_ids_of(sorted(stops, key=str), clusters[0])
        for log_dir in ids:
            stop = stops[log_dir]
            stops[log_dir] = replace(stop, obstacles=tuple(with_directory_ids(stop.obstacles, ids)))
    for log_dir in set(log_dirs) - source_of.keys():
        of_cluster = read.get(source_names[log_dir])
        stops[log_dir] = last_stop_of_folders(log_dir, folders[log_dir], clean_shutdown, of_cluster, kafka_version)
    return stops


def _directories_above_remote(plan: Plan) -> set[Location]:
    """The directories above those of partitions in buckets of tiered storage."""
    remote = [partition for partition in plan.partitions if partition.directory.remote is not None]
    for partition in remote:
        if partition.in_place:
            raise UsageError(
                f"{partition.directory.path}: in a bucket of tiered storage, whose own indexes kidx verify-tiered "
                "audits; for those that a build has made name --index-dir, or the catalog"
            )
    return {partition.directory.log_dir for partition in remote}
