"""What to audit in a plan's partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from kidxlib.audit.startup.last_stop import PartitionStop, last_stop
from kidxlib.audit.tiered.local_epochs import TieredPartition
from kidxlib.build.plan import Plan
from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import UsageError
from kidxlib.format import topic_partition
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Location, location


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """One partition to audit.

    Attributes:
        directory: where its logs are, and the broker's snapshots.
        index_directory: where its index and auxiliary files are; may be the same.
        options: those with which a starting broker would make indexes.
        last_stop: how the broker of its log dir stopped.
        tiering: say which segments are not ready for tiered storage.
        is_brokers: a broker starts with it. With what lies in a bucket of tiered storage none does.
        tiered: its remote segments; None where none are known.
    """

    topic_partition: topic_partition.TopicPartition
    directory: Location
    index_directory: Location
    options: RecoverOptions
    last_stop: PartitionStop
    tiering: bool
    is_brokers: bool = True
    tiered: TieredPartition | None = None


def partition_audits(
    plan: Plan,
    options_for: Callable[[PartitionDirectory], OptionsOfTopic],
    *,
    clean_shutdown: bool | None,
    tiering: bool,
    topics: re.Pattern[str] | None = None,
) -> tuple[dict[PartitionKey, PartitionAudit], list[str]]:
    """What to audit in a plan's partitions after their segments were read, and warnings for a person.

    Args:
        options_for: as for `find_segments`.
        clean_shutdown: of their log dirs; None reads it from each log dir.
        topics: as for `find_segments`: of these, partitions that a log dir's recovery points name are audited even if
            their directory is not there. None: only those of the plan.

    Raises:
        UsageError: as `_remote_directories`.
    """
    log_dirs, remote = {partition.directory.log_dir for partition in plan.partitions}, _remote_directories(plan)
    listed = {
        partition.directory.log_dir for partition in plan.partitions if partition.directory.source.name in plan.log_dirs
    }
    stops = {log_dir: last_stop(log_dir, clean_shutdown, is_listed=log_dir in listed) for log_dir in log_dirs - remote}
    # What is copied ends with a whole batch.
    stops |= {log_dir: last_stop(log_dir, True, is_listed=False) for log_dir in remote}
    audits = {
        partition.key: PartitionAudit(
            topic_partition=partition.directory.topic_partition,
            directory=partition.directory.path,
            index_directory=location(str(partition.index_directory)),
            options=replace(partition.options, verify_crc=True),
            last_stop=stops[partition.directory.log_dir].of(partition.directory.topic_partition),
            tiering=tiering,
            is_brokers=partition.directory.remote is None,
        )
        for partition in plan.partitions
        if partition.key not in plan.unlistable
    }
    if topics is not None:
        there = {partition.key for partition in plan.partitions}
        sources = {
            partition.directory.log_dir: partition.directory.source
            for partition in plan.partitions
            if partition.directory.source.name in plan.log_dirs
        }
        for log_dir, source in sources.items():
            for topic_partition, offset in stops[log_dir].recovery_points.items():
                key = source.name, topic_partition.topic, topic_partition.partition
                if offset > 0 and key not in there and topics.fullmatch(topic_partition.topic):
                    directory = log_dir / topic_partition.directory
                    audits[key] = PartitionAudit(
                        topic_partition=topic_partition,
                        directory=directory,
                        index_directory=directory,
                        options=options_for(PartitionDirectory(source, topic_partition, directory)).of_id(None),
                        last_stop=stops[log_dir].of(topic_partition),
                        tiering=tiering,
                    )
    return audits, [note for log_dir in sorted(log_dirs - remote, key=str) for note in stops[log_dir].notes]


def _remote_directories(plan: Plan) -> set[Location]:
    """The directories above those of partitions in buckets of tiered storage.

    Raises:
        UsageError: index files of one are looked for beside its logs.
    """
    remote = [partition for partition in plan.partitions if partition.directory.remote is not None]
    for partition in remote:
        if partition.in_place:
            raise UsageError(
                f"{partition.directory.path}: in a bucket of tiered storage, whose own indexes kidx verify --tiered "
                "audits; for those that a build has made name --index-dir, or the catalog"
            )
    return {partition.directory.log_dir for partition in remote}
