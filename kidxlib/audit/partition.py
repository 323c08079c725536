"""Audits a partition as a whole: what depends on the segments before and after, and on its directory; its transaction
indexes, producer snapshots and leader epochs against what its logs show.

`partition_audits` says which partitions of a plan are audited, and how their brokers stopped; `audit_partition` runs
after all segments of one were read (`kidxlib.audit.segment`). It opens a log again only if the start-up simulation
needs it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import DAMAGE, IN_USE, Finding, SegmentFinding, Verdict
from kidxlib.audit.gaps import explains_gaps, with_logs_aside
from kidxlib.audit.index_files.index_file import (
    finding_on_unreadable_file,
    read_index,
)
from kidxlib.audit.index_files.leader_epochs import (
    FIRST_LOGS_MISSING,
    ExpectedLeaderEpochs,
    are_of_broker,
    audit_epochs,
)
from kidxlib.audit.index_files.snapshot import CleanedLogs, audit_snapshot
from kidxlib.audit.index_files.transaction_index import TransactionsOfSegment, abort_markers, audit_transaction_index
from kidxlib.audit.partition_logs import PartitionLogEpochs, SwappedLogs, audit_logs, is_missing, logs_replaced_by_swaps
from kidxlib.audit.segment import AuditedLog, SegmentForPartition
from kidxlib.audit.startup.absent import absent_partitions_of_nodes
from kidxlib.audit.startup.last_stop import (
    BELOW_CHECKPOINT_REASONS,
    LastStop,
    PartitionStop,
    last_stop_by_directories,
    last_stops,
)
from kidxlib.audit.startup.loader import forgotten_producers, simulate_startup
from kidxlib.audit.startup.meta_properties import directory_ids_of, log_dirs_by_node, with_directory_ids
from kidxlib.audit.startup.obstacles import obstacles_in_partition
from kidxlib.audit.startup.simulation import SegmentRecovery, StartupSimulation
from kidxlib.audit.tiered.local_log import (
    LocalLog,
    NotReady,
    TieredPartition,
    finding_on_local_epochs,
    not_ready_for_tiering,
)
from kidxlib.errors import CheckpointError, LogChangedError, UsageError, describe_error
from kidxlib.format import checkpoint_files, segment_files, topic_partition
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.layouts import ABORTED_TRANSACTION
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.listing import list_offset_indexes
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.log.metadata_image import BrokerSettings, ClusterMetadata, topic_config
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status, end_of_unread_log
from kidxlib.recovery.partition_fold import FoldedSegment, PartitionFold, StateSource
from kidxlib.storage.location import Location, listed_in, location, size_of, version_at
from kidxlib.storage.log_dir import META_PROPERTIES, may_be_deleting, read_leader_epochs
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.small_files import snapshot_file

#: How many times a partition is audited at most if a broker changes its files in the meantime.
_ATTEMPTS: Final = 3


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


@dataclass(slots=True)
class AuditedPartition:
    """The results of a partition's audit, besides the findings on its segments. `not_ready` are the segments that are
    not ready for tiering; None if nobody asked.
    """

    simulation: StartupSimulation
    findings: list[SegmentFinding] = field(default_factory=list)
    not_ready: list[NotReady] | None = None


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """A readable segment, as far as it is needed once all segments of the partition were read."""

    base_offset: int
    folded: FoldedSegment
    markers: frozenset[tuple[int, int]]


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
    stops |= {log_dir: last_stop_by_directories(log_dir, (), True, None, kafka_version) for log_dir in remote}
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
        stops[log_dir] = last_stop_by_directories(log_dir, folders[log_dir], clean_shutdown, of_cluster, kafka_version)
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


def audit_partition(task: PartitionAudit, segments: Iterable[SegmentForPartition]) -> AuditedPartition:
    """Audit a partition whose segments were all read, in order."""
    fold = PartitionFold(
        lambda offset: snapshot_file(task.directory / segment_files.segment_file(offset, segment_files.SNAPSHOT_SUFFIX))
    )
    read: list[_ReadSegment] = []
    broken: dict[tuple[int, str], str | None] = {}
    base_offsets: list[int] = []
    logs: list[AuditedLog] = []
    recoveries: dict[int, SegmentRecovery] = {}
    epoch_changes: dict[int, NDArray[np.void]] = {}
    for segment in segments:
        folded = fold.add(segment.scanned)
        base_offset, recovery = segment.scanned.base_offset, segment.log.recovery
        base_offsets.append(base_offset)
        logs.append(segment.log)
        if len(segment.scanned.leader_epochs):
            epoch_changes[base_offset] = segment.scanned.leader_epochs
        broken |= {(base_offset, suffix): reason for suffix, reason in segment.broken.items()}
        if recovery is not None:
            recoveries[base_offset] = recovery
            if recovery.end.status is not Status.QUARANTINED:
                read.append(_ReadSegment(base_offset, folded, abort_markers(segment.scanned.producer_events)))
    in_place = task.index_directory == task.directory
    simulation = _simulate(task, recoveries, is_empty=not logs)
    if simulation.forgets_producers and (why := forgotten_producers(fold, task.directory)) is not None:
        simulation.failures.append(why)
    indexed = None if in_place else _indexed_base_offsets(task, base_offsets)
    log_epochs = _log_epochs(task, fold, logs, simulation, epoch_changes)
    epochs = _epochs_or_error(task.index_directory)
    epochs_of_logs = PartitionLogEpochs(epoch_changes, by_broker=_epochs_are_of_broker(task, log_epochs, epochs))
    swapped = _read_swapped(task, simulation) if logs_replaced_by_swaps(logs, simulation) else SwappedLogs()
    on_logs = dict(
        audit_logs(logs, epochs_of_logs, simulation, _stop_as_listed(task, logs, simulation), indexed, swapped)
    )
    findings = [SegmentFinding(base_offset, finding) for base_offset, finding in on_logs.items()]
    findings += _audit_transaction_indexes(task, read, logs, fold)
    cleaned = CleanedLogs(task.directory, task.index_directory, logs, broken.keys())
    findings += _audit_snapshots(read, fold, task.index_directory, cleaned)
    harm = _harm_to_remote(task, base_offsets, simulation, epoch_changes)
    if in_place:
        findings += _audit_leader_epochs(read, epochs, log_epochs, in_place=True, remote=harm)
    else:
        findings += _audit_leader_epochs(read, epochs, replace(log_epochs, first_offset=None), in_place=False)
        findings = _with_findings_beside_logs(
            findings, _findings_beside_logs(task, read, fold, cleaned, log_epochs, harm)
        )
    audited = AuditedPartition(simulation, _with_logs_aside(task, logs, epochs, findings))
    if task.tiering:
        audited.not_ready = list(
            _not_ready_for_tiering(task, base_offsets, on_logs, broken, audited.findings, epochs, fold)
        )
    return audited


def _simulate(task: PartitionAudit, recoveries: dict[int, SegmentRecovery], *, is_empty: bool) -> StartupSimulation:
    if not task.is_brokers:
        return StartupSimulation()
    return _simulate_empty(task) if is_empty else _simulate_segments(task, recoveries)


def _simulate_empty(task: PartitionAudit) -> StartupSimulation:
    named = "" if task.known_to is None else f"; there is no such directory, and {task.known_to} names it"
    remedy = (
        LogsAside().remedy_of_empty(task.directory)
        or task.remedy
        or "restore it from a copy; where other replicas have the partition, the broker fetches it"
    )
    others = map(str, obstacles_in_partition(task.directory))
    return StartupSimulation(failures=[f"{task.last_stop.why_empty}{named}; {remedy}", *others])


def _simulate_segments(task: PartitionAudit, recoveries: dict[int, SegmentRecovery]) -> StartupSimulation:
    stop, failure = task.last_stop, ""
    for _ in range(_ATTEMPTS):
        try:
            return simulate_startup(
                task.directory,
                task.options,
                clean_shutdown=stop.clean_shutdown,
                recovery_point=stop.recovery_point,
                log_start_offset=stop.log_start_offset,
                kafka=stop.kafka,
                recoveries=recoveries,
            )
        except (LogChangedError, OSError) as error:
            failure = describe_error(error)
            if not isinstance(error, LogChangedError | FileNotFoundError):
                break  # otherwise a running broker has deleted or rolled it, and the files have changed
    return StartupSimulation(failures=[failure])


def _stop_as_listed(task: PartitionAudit, logs: Sequence[AuditedLog], simulation: StartupSimulation) -> PartitionStop:
    """How the broker stopped, without offsets of a segment that it has begun since the listing: the listed logs cannot
    be compared with these.
    """
    is_rolled = bool(logs and simulation.segments) and simulation.segments[-1].base_offset > logs[-1].base_offset
    return replace(task.last_stop, recovery_point=0, high_watermark=0) if is_rolled else task.last_stop


def _read_swapped(task: PartitionAudit, simulation: StartupSimulation) -> SwappedLogs:
    """Read the logs that a starting broker puts in the place of others."""
    recoveries: dict[int, SegmentRecovery] = {}
    not_read: dict[int, ScanEnd] = {}
    for name in simulation.renamed:
        base_offset = segment_files.parse_segment_log(name.removesuffix(segment_files.SWAP_SUFFIX))
        if base_offset is None:
            continue
        place = task.directory / name
        path = str(place)
        try:
            size = size_of(path if isinstance(place, Path) else place)
            recoveries[base_offset] = SegmentRecovery.read(path, size, base_offset, task.options)
        except (LogChangedError, OSError) as error:
            not_read[base_offset] = end_of_unread_log(path, error)
            if not_read[base_offset].status is Status.GONE:  # a running broker has renamed it since
                return SwappedLogs()
    return SwappedLogs(recoveries, not_read, task.is_compacted)


def _log_epochs(
    task: PartitionAudit,
    fold: PartitionFold,
    logs: Sequence[AuditedLog],
    simulation: StartupSimulation,
    changes: Mapping[int, NDArray[np.void]],
) -> ExpectedLeaderEpochs:
    # If retention has deleted the first logs in the meantime, epochs begin with the logs that are left.
    left = min((segment.base_offset for segment in simulation.segments), default=0)
    in_order = tuple(
        EpochEntry(epoch, start_offset)
        for changes_of_log in changes.values()
        for epoch, start_offset, _ in changes_of_log.tolist()
        if start_offset >= 0
    )
    ends = [log.recovery.next_offset for log in logs if log.recovery is not None]
    names = (path.name for path in task.directory.glob(f"*{segment_files.KRAFT_SNAPSHOT_SUFFIX}"))
    snapshots = [snapshot.end_offset for name in names if (snapshot := segment_files.parse_kraft_snapshot(name))]
    return ExpectedLeaderEpochs(
        recovered=fold.leader_epochs,
        changes=in_order,
        all_are_known=fold.epochs_are_known,
        log_starts=tuple(sorted({start for start in (task.last_stop.log_start_offset, left, *snapshots) if start > 0})),
        log_end_offset=max(ends, default=0),
        remote=frozenset() if task.tiered is None else task.tiered.remote_epochs,
        lost_log_starts=task.last_stop.lost_log_starts,
        first_offset=_first_offset_of_logs(task, logs),
        may_begin_in_bucket=not task.last_stop.begins_with_first_log,
    )


def _first_offset_of_logs(task: PartitionAudit, logs: Sequence[AuditedLog]) -> int | None:
    """Where the logs begin; None if logs before the first one are in a bucket, or may just be being deleted."""
    if not logs or task.tiered is not None or may_be_deleting(task.directory, listed_in(task.directory)):
        return None
    return min(log.base_offset for log in logs)


def _epochs_are_of_broker(
    task: PartitionAudit, log_epochs: ExpectedLeaderEpochs, in_index_directory: LeaderEpochs | CheckpointError | None
) -> bool:
    """Whether epochs go back in the logs, and the broker's own file shows that the broker appended them so."""
    if not log_epochs.go_back():
        return False
    is_in_place = task.index_directory == task.directory
    brokers = in_index_directory if is_in_place else _epochs_or_error(task.directory)
    return not isinstance(brokers, CheckpointError) and are_of_broker(brokers, log_epochs)


def _indexed_base_offsets(task: PartitionAudit, base_offsets: Sequence[int]) -> set[int]:
    """The base offsets of the offset indexes in an index directory. Those of logs that were begun since the listing,
    and that a build has indexed already, are left out.
    """
    last = max(base_offsets, default=-1)

    def was_begun(offset: int) -> bool:
        return (
            offset > last and (task.directory / segment_files.segment_file(offset, segment_files.LOG_SUFFIX)).exists()
        )

    return {offset for offset in list_offset_indexes(task.index_directory) if not was_begun(offset)}


def _audit_transaction_indexes(
    task: PartitionAudit, read: list[_ReadSegment], logs: Sequence[AuditedLog], fold: PartitionFold
) -> Iterator[SegmentFinding]:
    later = min(fold.ongoing, default=None)
    findings = []
    for segment in reversed(read):
        aborted = segment.folded.aborted
        name = segment_files.segment_file(segment.base_offset, segment_files.TRANSACTION_INDEX_SUFFIX)
        content = read_index(task.index_directory / name, use_mmap=False)
        if content is not None and not isinstance(content, OSError) and segment.base_offset == logs[-1].base_offset:
            content = _without_later_aborts(content, task, logs[-1])
        by_logs = TransactionsOfSegment(
            base_offset=segment.base_offset,
            aborted=aborted,
            state_source=segment.folded.state_source,
            markers=segment.markers,
            later_first_offset=later,
            kafka=task.last_stop.kafka,
        )
        if isinstance(content, OSError):
            finding = finding_on_unreadable_file(segment_files.TRANSACTION_INDEX_SUFFIX, content)
            findings.append(SegmentFinding(segment.base_offset, finding))
        elif content is not None or len(aborted):
            findings.append(SegmentFinding(segment.base_offset, audit_transaction_index(content, by_logs)))
        firsts = aborted["first_offset"].tolist()
        later = min(firsts if later is None else [*firsts, later], default=None)
    yield from reversed(findings)


def _without_later_aborts(content: NDArray[np.uint8], task: PartitionAudit, log: AuditedLog) -> NDArray[np.uint8]:
    """The last `.txnindex`, without the transactions that a running broker has aborted since the log was read."""
    entries = np.frombuffer(content.data, ABORTED_TRANSACTION, len(content) // ABORTED_TRANSACTION.itemsize)
    if log.recovery is None or not len(later := np.flatnonzero(entries["last_offset"] >= log.recovery.next_offset)):
        return content
    if log.finding is None or log.finding.reason != IN_USE:
        path = task.directory / segment_files.segment_file(log.base_offset, segment_files.LOG_SUFFIX)
        if (now := version_at(path)) is None or now.size <= log.recovery.log_bytes:
            return content
    return content[: later[0] * ABORTED_TRANSACTION.itemsize]


def _snapshot_files(directory: Location) -> list[Location]:
    return sorted(directory.glob(f"*{segment_files.SNAPSHOT_SUFFIX}"), key=str)


def _audit_snapshots(
    read: list[_ReadSegment], fold: PartitionFold, index_directory: Location, cleaned: CleanedLogs
) -> Iterator[SegmentFinding]:
    states = {segment.base_offset: (segment.folded.snapshot, segment.folded.state_source) for segment in read}
    states.setdefault(fold.map_end_offset, (fold.end_snapshot, fold.end_source))
    for path in _snapshot_files(index_directory):
        offset = segment_files.parse_snapshot(path.name)
        content = snapshot_file(path)
        if offset is None or content is None:
            continue
        if offset in states:
            expected, source = states[offset]
            is_known = source is not StateSource.UNKNOWN
            finding = audit_snapshot(content, expected, state_is_known=is_known, offset=offset, cleaned=cleaned)
        else:
            finding = Finding(
                file=segment_files.SNAPSHOT_SUFFIX,
                verdict=Verdict.SAFE,
                reason="stray",
                detail="no segment begins at its offset",
                consequence="a broker that starts removes it, unless no other is of a later offset",
            )
        yield SegmentFinding(offset, finding)


def _epochs_or_error(directory: Location) -> LeaderEpochs | CheckpointError | None:
    try:
        return read_leader_epochs(directory)
    except CheckpointError as error:
        return error


def _audit_leader_epochs(
    read: list[_ReadSegment],
    epochs: LeaderEpochs | CheckpointError | None,
    logs: ExpectedLeaderEpochs,
    *,
    in_place: bool,
    remote: Finding | None = None,
) -> Iterator[SegmentFinding]:
    """`remote` is the harm that a leader which starts with this file does to remote segments; None if it does none."""
    first = read[0].base_offset if read else 0
    if isinstance(epochs, CheckpointError):
        without = "" if remote is None else f"; without the file {remote.consequence}"
        finding = Finding(
            file=checkpoint_files.LEADER_EPOCH_CHECKPOINT,
            verdict=Verdict.BROKEN,
            reason="unreadable",
            detail=str(epochs),
            consequence=f"a broker that starts takes the log dir out of use{without}",
        )
    elif remote is not None:
        finding = remote
    else:
        # A broker certainly has one. An index directory has one only if it was asked for.
        if epochs is None and not (in_place and logs.recovered.entries):
            return
        finding = audit_epochs(epochs, logs)
    yield SegmentFinding(first, finding)


def _not_ready_for_tiering(
    task: PartitionAudit,
    base_offsets: Sequence[int],
    on_logs: Mapping[int, Finding],
    broken: Mapping[tuple[int, str], str | None],
    findings: Sequence[SegmentFinding],
    epochs: LeaderEpochs | CheckpointError | None,
    fold: PartitionFold,
) -> Iterator[NotReady]:
    broken_files = {
        (on_file.base_offset, on_file.finding.file): on_file.finding.reason
        for on_file in findings
        if on_file.finding.verdict is Verdict.BROKEN
    }
    names = (path.name for path in _snapshot_files(task.index_directory))
    return not_ready_for_tiering(
        sorted({*base_offsets, *(offset for offset, log in on_logs.items() if log.verdict is Verdict.BROKEN)}),
        on_logs,
        {**broken, **broken_files},
        {offset for name in names if (offset := segment_files.parse_snapshot(name)) is not None},
        None if isinstance(epochs, CheckpointError) else epochs,
        min(fold.ongoing, default=None),
    )


def _with_logs_aside(
    task: PartitionAudit,
    logs: Sequence[AuditedLog],
    epochs: LeaderEpochs | CheckpointError | None,
    findings: Sequence[SegmentFinding],
) -> list[SegmentFinding]:
    """The findings; those on missing logs also name logs under other names that begin among the missing offsets."""
    if not logs:
        return list(findings)
    first = None if epochs is None or isinstance(epochs, CheckpointError) else epochs.first
    ends = [log.recovery.next_offset for log in logs if log.recovery is not None]
    missing_offsets = {
        **dict.fromkeys(BELOW_CHECKPOINT_REASONS, (max(ends, default=0), segment_files.OFFSET_MAX)),
        FIRST_LOGS_MISSING: (0 if first is None else first.start_offset, logs[0].base_offset),
    }
    aside = LogsAside(task.log_dirs)

    def with_aside(base_offset: int, finding: Finding) -> Finding:
        is_log = is_missing(finding)
        offsets = (base_offset, base_offset + 1) if is_log else missing_offsets.get(finding.reason or "")
        return finding if offsets is None else with_logs_aside(finding, aside, task.directory, *offsets)

    return [replace(on_file, finding=with_aside(on_file.base_offset, on_file.finding)) for on_file in findings]


def _findings_beside_logs(
    task: PartitionAudit,
    read: list[_ReadSegment],
    fold: PartitionFold,
    cleaned: CleanedLogs,
    log_epochs: ExpectedLeaderEpochs,
    harm: Finding | None,
) -> Iterator[SegmentFinding]:
    """The findings on the broker's own leader epochs and producer snapshots, if index files are looked for in another
    directory. A starting broker believes the files beside the logs, whatever was built elsewhere.
    """
    if task.is_brokers:
        # A broker certainly has leader epochs; an archive of logs may have none.
        epochs, is_certain = _epochs_or_error(task.directory), (task.directory.parent / META_PROPERTIES).exists()
        yield from _audit_snapshots(read, fold, task.directory, cleaned)
        yield from _audit_leader_epochs(read, epochs, log_epochs, in_place=is_certain, remote=harm)


def _with_findings_beside_logs(
    findings: Sequence[SegmentFinding], beside_logs: Iterable[SegmentFinding]
) -> list[SegmentFinding]:
    """The findings, together with those on files beside the logs. If a file is in both places, the finding on the
    broker's own file counts only if that is broken.
    """
    elsewhere = {(on_file.base_offset, on_file.finding.file): on_file.finding.verdict for on_file in findings}
    own: dict[tuple[int, str], SegmentFinding] = {}
    for on_file in beside_logs:
        key = on_file.base_offset, on_file.finding.file
        is_damaged = on_file.finding.verdict in DAMAGE
        # Safe findings beside the logs are left out: `--fail-on safe` is about the files in the other directory.
        if on_file.finding.verdict is not Verdict.SAFE and (
            key not in elsewhere or is_damaged > (elsewhere[key] in DAMAGE)
        ):
            own[key] = replace(on_file, beside_logs=True)
    return [*(on_file for on_file in findings if (on_file.base_offset, on_file.finding.file) not in own), *own.values()]


def _harm_to_remote(
    task: PartitionAudit,
    base_offsets: Sequence[int],
    simulation: StartupSimulation,
    changes: Mapping[int, NDArray[np.void]],
) -> Finding | None:
    """The finding on what a leader that starts with the partition's leader epochs does to its remote segments.
    `changes` has the first epoch of each log, too.
    """
    if task.tiered is None:
        return None
    recovered = [segment.base_offset for segment in simulation.segments if segment.next_offset is not None]
    begun = (change for offset in recovered if offset in changes for change in changes[offset].tolist())
    local = LocalLog(
        entries=task.tiered.entries,
        log_start_offset=max(task.last_stop.log_start_offset, task.tiered.moved_start),
        first_offset=min(base_offsets, default=None),
        end_offset=simulation.log_end_offset,
        recovered=[EpochEntry(epoch, start_offset) for epoch, start_offset, _ in begun],
    )
    harm = finding_on_local_epochs(task.tiered.segments, local)
    return None if harm is None else harm[1]
