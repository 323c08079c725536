"""Finds the partitions of log dirs that have remote segments, and what a leader that starts with them does to the
segments.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from kidxlib.audit.finding import Finding
from kidxlib.audit.startup.last_stop import last_stop_by_directories
from kidxlib.audit.tiered.local_log import (
    TieredPartition,
    finding_on_local_epochs,
    finding_on_local_start,
    local_log,
)
from kidxlib.audit.tiered.remote_finding import RemoteFindingRow, RemoteSegmentKey
from kidxlib.errors import CheckpointError, RemoteLogMetadataError, UsageError, describe_error
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, EpochEntry
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.indexing.listing import SkippedEntries, list_source_partitions
from kidxlib.indexing.source import ANY_TOPIC, Source
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.log.remote.segments import readable_segments
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.tiered.remote_metadata import RemoteMetadata, RemoteMetadataReader, split_by_partition
from kidxlib.storage.location import Location
from kidxlib.storage.lock import is_locked
from kidxlib.storage.log_dir import read_leader_epochs, topic_id_or_none, usable_meta_properties
from kidxlib.terminal.console import warn, warn_of_first
from kidxlib.text.words import counted


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A partition in a log dir.

    Attributes:
        topic_id: None if its directory does not have it.
        is_tiered: whether its topic's segments are copied, by the cluster's metadata.
    """

    log_dir: Location
    topic_partition: TopicPartition
    topic_id: str | None
    is_tiered: bool = False

    @property
    def directory(self) -> Location:
        return self.log_dir / self.topic_partition.directory


@dataclass(frozen=True, slots=True)
class TieredPartitions:
    """The partitions of log dirs that have remote segments; the warnings say what could not be compared, and why."""

    found: Mapping[LocalPartition, TieredPartition]
    warnings: Sequence[str]


def tiered_partitions(
    log_dirs: Iterable[Location], partitions: Iterable[LocalPartition], topics: re.Pattern[str]
) -> TieredPartitions:
    """Find which partitions have remote segments. The metadata in one log dir of a cluster serves its other log dirs.
    `topics` matches the names of wanted topics.
    """
    by_cluster: defaultdict[str, list[LocalPartition]] = defaultdict(list)
    # If a partition's directory was named, its log dir is the directory above.
    partitions = list(partitions)
    places = _log_dirs_by_cluster(dict.fromkeys([*log_dirs, *(partition.log_dir for partition in partitions)]))
    clusters = {log_dir: cluster for cluster, of_cluster in places.items() for log_dir in of_cluster}
    for partition in partitions:
        by_cluster[clusters[partition.log_dir]].append(partition)
    found: dict[LocalPartition, TieredPartition] = {}
    warnings: list[str] = []
    for cluster, of_cluster in by_cluster.items():
        try:
            metadata, tiered = _with_remote_segments(RemoteMetadataReader(places[cluster], topics), of_cluster)
        except (RemoteLogMetadataError, OSError) as error:
            warnings.append(f"leader epochs are not compared with remote segments: {describe_error(error)}")
            continue
        found |= tiered
        without_segments = [partition for partition in of_cluster if partition.is_tiered and partition not in tiered]
        warnings += _missing_metadata_warnings(metadata, without_segments)
    return TieredPartitions(found, warnings)


def local_partitions_in(source: Source, topics: re.Pattern[str]) -> list[LocalPartition]:
    return [
        LocalPartition(directory.log_dir, directory.topic_partition, topic_id_or_none(directory.path))
        for directory in list_source_partitions(source, SkippedEntries())
        if topics.fullmatch(directory.topic_partition.topic)
    ]


def findings_on_log_dirs(log_dirs: Iterable[Source], reader: RemoteMetadataReader) -> Iterator[RemoteFindingRow]:
    """Findings on what leaders that start with the metadata's log dirs would do to remote segments. Warns of log dirs
    that cannot be listed.
    """
    for source in log_dirs:
        try:
            _, tiered = _with_remote_segments(reader, local_partitions_in(source, reader.topics))
            for local, found in _findings_on_local(tiered):
                if isinstance(found, OSError):
                    not_compared = f"leader epochs in {local.directory} are not compared with remote segments"
                    warn(f"{describe_error(found)}; {not_compared}")
                    continue
                key, finding = found
                path = str(local.directory / finding.file) if finding.file == LEADER_EPOCH_CHECKPOINT else None
                yield RemoteFindingRow.found(tiered[local].partition, key, finding, path)
        except (UsageError, OSError) as error:
            warn(f"{describe_error(error)}; leader epochs in {source.path} are not compared with remote segments")


def _findings_on_local(
    tiered: Mapping[LocalPartition, TieredPartition],
) -> Iterator[tuple[LocalPartition, tuple[RemoteSegmentKey, Finding] | OSError]]:
    """The harm that leaders which start with these partitions do to remote segments, and offsets that neither side has;
    each with the first segment that it is about. A directory that cannot be read is a finding, too.
    """
    log_dirs = {local.log_dir for local in tiered}
    stops = {log_dir: last_stop_by_directories(log_dir, (), None, None) for log_dir in log_dirs}
    for local, partition in tiered.items():
        try:
            log = local_log(local.directory, partition, stops[local.log_dir].of(local.topic_partition))
        except OSError as error:
            yield local, error
            continue
        for found in (
            finding_on_local_epochs(partition.segments, log),
            finding_on_local_start(partition.segments, log),
        ):
            if found is not None:
                yield local, found


def lost_epochs_of_local_partitions(log_dirs: Iterable[Location], absent: Iterable[Location]) -> Iterator[str]:
    """Why no broker should start with these log dirs: leaders would delete remote segments, or not find them. A line
    for each `leader-epoch-checkpoint`, and for each directory that cannot be read. Warns of what is not compared.
    `absent` are directories of partitions that a broker would make anew in these log dirs.
    """
    sources = [Source(str(log_dir), log_dir) for log_dir in log_dirs]
    partitions = [partition for source in sources for partition in local_partitions_in(source, ANY_TOPIC)]
    partitions += [
        LocalPartition(directory.parent, named, None)
        for directory in absent
        if (named := parse_partition_directory(directory.name)) is not None
    ]
    tiered = tiered_partitions([source.path for source in sources], partitions, ANY_TOPIC)
    warn_of_first(tiered.warnings)
    for partition, found in _findings_on_local(tiered.found):
        if isinstance(found, OSError):
            yield f"{describe_error(found)}; it has remote segments, and what a leader does to these is not known"
            continue
        finding = found[1]
        if finding.file == LEADER_EPOCH_CHECKPOINT:
            path = partition.directory / finding.file
            yield f"{path}: {finding.detail}: {finding.consequence}; write the epochs again first"


def _log_dirs_by_cluster(log_dirs: Iterable[Location]) -> dict[str, list[Location]]:
    """Log dirs by cluster id; a log dir without one is a group of its own."""
    by_cluster: defaultdict[str, list[Location]] = defaultdict(list)
    for log_dir in log_dirs:
        by_cluster[usable_meta_properties(log_dir).cluster_id or str(log_dir)].append(log_dir)
    return by_cluster


def _with_remote_segments(
    reader: RemoteMetadataReader, partitions: Sequence[LocalPartition]
) -> tuple[RemoteMetadata, dict[LocalPartition, TieredPartition]]:
    """The partitions of one cluster that have remote segments. Its brokers may be running: the metadata is read again
    after the leader epochs, so that segments which were deleted in between do not seem to lack epochs.
    """
    metadata = reader.read()
    tiered = [
        partition
        for partition, rows in _segments_by_local_partition(metadata, partitions).items()
        if readable_segments(rows)
    ]
    if not tiered:
        return metadata, {}
    entries = {partition: _epoch_entries_or_none(partition.directory) for partition in tiered}
    starts = {partition: _moved_log_start(partition, entries[partition]) for partition in tiered}
    metadata = reader.read()
    return metadata, {
        partition: TieredPartition(rows, entries[partition], starts[partition])
        for partition, rows in _segments_by_local_partition(metadata, tiered).items()
    }


def _segments_by_local_partition(
    metadata: RemoteMetadata, partitions: Iterable[LocalPartition]
) -> dict[LocalPartition, pa.Table]:
    """The rows of `REMOTE_METADATA` of each partition that has some."""
    rows = split_by_partition(metadata.segments, "start_offset")
    by_name: defaultdict[tuple[str, int], list[TopicIdPartition]] = defaultdict(list)
    for key, segments in rows.items():
        if readable_segments(segments):
            by_name[key.topic, key.partition].append(key)
    segments_of = {}
    for local in partitions:
        topic, partition = local.topic_partition.topic, local.topic_partition.partition
        if local.topic_id is not None:
            known: TopicIdPartition | None = TopicIdPartition(local.topic_id, topic, partition)
        else:  # its partition.metadata is lost; brokers read no segment of a deleted topic, so the only id is its own
            [known] = named if len(named := by_name[topic, partition]) == 1 else [None]
        if known in rows:
            segments_of[local] = rows[known]
    return segments_of


def _epoch_entries_or_none(directory: Location) -> Sequence[EpochEntry] | None:
    try:
        epochs = read_leader_epochs(directory)
    except (CheckpointError, OSError):  # another finding says so
        return None
    return None if epochs is None else epochs.entries


def _moved_log_start(partition: LocalPartition, entries: Sequence[EpochEntry] | None) -> int:
    """Where the log of a running broker may begin now. Retention and `DeleteRecords` cut the epochs at the new log
    start at once (`UnifiedLog.maybeIncrementLogStartOffset`); the checkpoint of log starts follows within a minute
    (`log.flush.start.offset.checkpoint.interval.ms`).
    """
    log_dir, folder = partition.log_dir, partition.topic_partition.directory
    if not entries or not isinstance(log_dir, Path):  # object stores have no locks
        return 0
    try:
        if not is_locked(log_dir):
            return 0
        cut = (log_dir / folder / LEADER_EPOCH_CHECKPOINT).stat().st_mtime
        started = (log_dir / LOG_START_OFFSET_CHECKPOINT).stat().st_mtime
    except (OSError, UsageError):
        return 0
    return entries[0].start_offset if cut >= started else 0


def _missing_metadata_warnings(metadata: RemoteMetadata, partitions: Sequence[LocalPartition]) -> Iterator[str]:
    """A warning if the metadata of tiered partitions is missing."""
    unknown = [
        local
        for local in partitions
        if local.topic_id is None
        or not metadata.knows(
            TopicIdPartition(local.topic_id, local.topic_partition.topic, local.topic_partition.partition)
        )
    ]
    if unknown:
        yield (
            f"leader epochs of {counted(len(unknown), 'partition')} (the first: {unknown[0].directory}) are not "
            f"compared with remote segments: their partition of {REMOTE_LOG_METADATA_TOPIC} is not in these log dirs; "
            "name one that has it with kidx verify-tiered … --tiered-metadata"
        )
