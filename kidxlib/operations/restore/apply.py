"""Carries a restore out: copies directories, makes them ready for their brokers' first start, reads what consumers will
get of them, and then writes the metadata.

The metadata comes last: until then the new directories are those of an empty cluster, and a node that starts on them
sets the copies aside, and removes none.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.audit.gaps import FoundGaps
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.errors import KidxError, WorkersDiedError, describe_error
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LeaderEpochs,
    offset_checkpoint,
)
from kidxlib.format.segment_files import LOG_SUFFIX, parse_snapshot, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.image import BrokerSettings
from kidxlib.operations.backend import Backend
from kidxlib.operations.recover.broker import StoppedBroker, stopped_broker
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.publish import make_ready
from kidxlib.operations.recover.recovery_plan import Level, PlannedLogDir, RecoveryPlan, planned_log_dirs
from kidxlib.operations.restore.contents import Contents, read_contents
from kidxlib.operations.restore.formatted import write_metadata
from kidxlib.operations.restore.inventory import OldReplica
from kidxlib.operations.restore.records import records_of
from kidxlib.operations.restore.restore_plan import PlannedReplica, RestorePlan
from kidxlib.operations.restore.targets import UNFINISHED, NewBroker
from kidxlib.run.heartbeat import scratch_directory
from kidxlib.run.known_topics import KnownTopics, TopicsOfSource
from kidxlib.storage.directory import Directory
from kidxlib.storage.file_copy import Copied, FileCopy, copy_files, make_directory
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.storage.publisher import Owner, Publisher
from kidxlib.storage.small_files import read_leader_epochs
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase

#: Files of a partition that are copied besides its logs, and its producer snapshots up to the end of the log. All
#: others are made anew of the logs.
_FILES_COPIED_BESIDE_LOGS: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
#: What an end before the metadata leaves.
_LEFT_BEFORE_METADATA: Final = (
    "the sources are as they were, and no metadata was written: empty the new log dirs, format them, and plan again"
)
#: What an interruption leaves amid the metadata, and after it.
_LEFT_AMID_METADATA: Final = (
    "the sources are as they were, and some controllers may have the metadata: empty the new log dirs and the "
    "controllers', format them, and plan again"
)
RESTORED: Final = (
    "all is restored, and what restore-check needs was not printed: go on with the plan's steps, without the check; or "
    "empty the new log dirs, format them, and plan again"
)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has copied, and what consumers will get of it."""

    copied: Copied
    contents: Contents


def apply_restore(plan: RestorePlan, backend: Backend) -> Restored:
    """Carry a plan out that nothing refuses. The caller holds the locks of all log dirs.

    Raises:
        KidxError: it cannot be done to its end, and no metadata was written. Of a controller's disk that fails as it is
            written, the error says which file it is.
    """
    log_dirs = [path for broker in plan.brokers for path in broker.log_dirs]
    with _telling_what_is_left():
        copied = _copy_logs(plan, log_dirs, backend)
        contents = read_contents(plan, backend.engine)
        begin_phase("writing the cluster's metadata")
    is_done = False
    with interrupts.telling(lambda: RESTORED if is_done else _LEFT_AMID_METADATA), interrupts.stopping(lambda: None):
        write_metadata(plan.controllers, records_of(plan.cluster, plan.controllers[0].records))
        with Publisher() as publisher:
            for path in log_dirs:
                publisher.remove(Directory(str(path), ""), UNFINISHED)
        is_done = True
    return Restored(copied, contents)


@contextlib.contextmanager
def _telling_what_is_left() -> Iterator[None]:
    """Say of each end before the metadata what the new log dirs are by then."""
    try:
        with interrupts.telling(lambda: _LEFT_BEFORE_METADATA):
            yield
    except WorkersDiedError as error:
        raise KidxError(
            "worker processes die again and again: they crash, or are killed, as happens where memory runs out (see "
            f"dmesg); {_LEFT_BEFORE_METADATA}, with fewer --processes"
        ) from error
    except (KidxError, OSError) as error:
        text = describe_error(error)
        raise KidxError(text if text.endswith(_LEFT_BEFORE_METADATA) else f"{text}; {_LEFT_BEFORE_METADATA}") from error


def _copy_logs(plan: RestorePlan, log_dirs: Sequence[Path], backend: Backend) -> Copied:
    """Copy the logs, and make the new log dirs ready for the first start."""
    by_log_dir: dict[Path, list[PlannedReplica]] = defaultdict(list)
    for replica in plan.copied:
        assert replica.log_dir is not None
        by_log_dir[replica.log_dir].append(replica)
    _publish_log_dir_files({path: {UNFINISHED: f"{plan.id}\n".encode()} for path in log_dirs})
    copied = Copied(0, 0)
    begin_phase("copying")
    for path, replicas in by_log_dir.items():
        done = copy_files(_file_copies(path, replicas), _log_dir_owner(path), backend.engine.cores)
        copied = Copied(copied.reflinked + done.reflinked, copied.written + done.written)
    _cut_epochs(plan.copied)
    _publish_log_dir_files({path: _checkpoint_contents(by_log_dir[path]) for path in log_dirs})
    with scratch_directory() as scans:
        _make_ready(plan, by_log_dir, backend, scans)
    return copied


def _file_copies(log_dir: Path, replicas: Iterable[PlannedReplica]) -> Iterator[FileCopy]:
    """The files to copy; the directory of each is made first."""
    owner = _log_dir_owner(log_dir)
    for replica in replicas:
        assert replica.source is not None
        directory = log_dir / replica.topic_partition.directory
        make_directory(directory, replica.source.directory, owner)
        for name, size in _files_to_copy(replica.source):
            yield FileCopy(replica.source.directory / name, directory / name, size)


def _files_to_copy(source: OldReplica) -> Iterator[tuple[str, int]]:
    """The names of files, and the bytes that are copied of each: a log up to its last whole batch."""
    for segment in source.forecast.simulation.segments:
        if segment.action is not StartupAction.DELETE:
            yield segment_file(segment.base_offset, LOG_SUFFIX), segment.kept_bytes
    with os.scandir(source.directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            offset = parse_snapshot(entry.name)
            if entry.name in _FILES_COPIED_BESIDE_LOGS or (offset is not None and offset <= source.end_offset):
                yield entry.name, entry.stat().st_size


def _cut_epochs(replicas: Iterable[PlannedReplica]) -> None:
    """Take leader epochs away that begin behind the ends of the copies, as a start does
    (`LeaderEpochFileCache.truncateFromEndAsyncFlush`).
    """
    with Publisher() as publisher:
        for replica in replicas:
            assert replica.source is not None and replica.log_dir is not None
            directory = Directory(str(replica.log_dir), replica.topic_partition.directory)
            path = replica.log_dir / replica.topic_partition.directory
            epochs = read_leader_epochs(path)
            entries = () if epochs is None else epochs.entries
            kept = [entry for entry in entries if entry.start_offset < replica.source.end_offset]
            if len(kept) < len(entries):
                owner = replace(Owner.of(path.stat()), mode=0o644)
                publisher.stage(directory, LEADER_EPOCH_CHECKPOINT, LeaderEpochs(kept).checkpoint(), owner)
        publisher.commit()


def _checkpoint_contents(replicas: Sequence[PlannedReplica]) -> dict[str, bytes]:
    """The checkpoints of a log dir. Recovery points come once all is made ready.

    Log starts and what cleaners have done are as the sources say. The high watermark is the end of each copy: those in
    sync have all that the leader has, and others agree with it as far as they go. A lower one would rise once followers
    fetch, and a group coordinator that loads its log meanwhile misses that: its groups have no offsets until the next
    one commits (`CoordinatorLoaderImpl.load`, `CoordinatorRuntime.CoordinatorContext.transitionTo`; Kafka 4.3 and 4.4).
    """
    offsets: dict[str, dict[TopicPartition, int]] = {
        name: {} for name in (HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, CLEANER_CHECKPOINT)
    }
    for replica in replicas:
        source, partition = replica.source, replica.topic_partition
        assert source is not None
        stop = source.last_stop
        offsets[HIGH_WATERMARK_CHECKPOINT][partition] = source.end_offset
        for name, of_stop in (
            (LOG_START_OFFSET_CHECKPOINT, stop.log_start_offsets),
            (CLEANER_CHECKPOINT, stop.cleaner_offsets),
        ):
            if (offset := of_stop.get(partition)) is not None:
                offsets[name][partition] = min(offset, source.end_offset)
    return {name: offset_checkpoint(of_name) for name, of_name in offsets.items()}


def _make_ready(
    plan: RestorePlan, by_log_dir: Mapping[Path, Sequence[PlannedReplica]], backend: Backend, scans: Path
) -> None:
    """Make the new log dirs ready for the first start, as `recover --level marker` does, and see that brokers come to
    the logs that the plan says.
    """
    planned: list[PlannedLogDir] = []
    for broker in plan.brokers:
        stopped = stopped_broker([str(path) for path in broker.log_dirs])
        of_broker = scans / str(broker.node_id)  # tasks are numbered by broker
        of_broker.mkdir()
        name = f"copies-{broker.node_id}"
        planned += planned_log_dirs(stopped, _known_topics(plan, broker), backend.engine, name, of_broker)
    expected = {
        log_dir / replica.topic_partition.directory: replica.source
        for log_dir, replicas in by_log_dir.items()
        for replica in replicas
    }
    for log_dir in planned:
        for forecast in log_dir.forecasts:
            _ensure_copy_as_planned(forecast, expected.pop(forecast.directory, None))
    if expected:
        raise KidxError(f"{next(iter(expected))}: the copy is not there; {_LEFT_BEFORE_METADATA}")
    ready = RecoveryPlan(
        broker=StoppedBroker(None, tuple(log_dir.log_dir for log_dir in planned), ()),
        level=Level.MARKER,
        cuts=False,
        accepts_loss=False,
        alone=False,
        everything=False,
        untrusted=None,
        log_dirs=planned,
        refusals=(),
        unknown=(),
        not_named=(),
        without_metadata=(),
        is_only_voter=False,
        absent=(),
        aside=(),
        gaps=FoundGaps(),
        seconds=0.0,
    )
    make_ready(ready, backend)


def _ensure_copy_as_planned(forecast: Forecast, source: OldReplica | None) -> None:
    ends = None if source is None else (source.start_offset, source.end_offset, source.kept_bytes)
    simulation = forecast.simulation
    kept = sum(segment.kept_bytes for segment in simulation.segments)
    now = (simulation.log_start_offset or 0, simulation.log_end_offset or 0, kept)
    if ends != now or forecast.dropped or forecast.refusals:
        raise KidxError(
            f"{forecast.directory}: expected a copy with (start, end, bytes) {ends}, and a broker would make {now} of "
            f"it; {_LEFT_BEFORE_METADATA}"
        )


def _known_topics(plan: RestorePlan, broker: NewBroker) -> KnownTopics:
    """The topics' settings, for the intervals of their indexes: those of surviving metadata."""
    if plan.surviving is None:
        return KnownTopics()
    of_source = TopicsOfSource(plan.surviving.metadata, BrokerSettings(None, None))
    return KnownTopics({str(path): of_source for path in broker.log_dirs})


def _log_dir_owner(log_dir: Path) -> Owner:
    return Owner.of((log_dir / META_PROPERTIES).stat())


def _publish_log_dir_files(files: Mapping[Path, Mapping[str, bytes]]) -> None:
    with Publisher() as publisher:
        for log_dir, contents in files.items():
            owner = replace(_log_dir_owner(log_dir), mode=0o644)
            for name, content in contents.items():
                publisher.stage(Directory(str(log_dir), ""), name, content, owner)
        publisher.commit()
