"""Carries a restore out: copies logs, makes the log dirs ready for their brokers' first start, and then writes the
metadata.

The metadata comes last: until then the new directories are those of an empty cluster, and a node that starts on them
sets the copies aside, and removes none. Some partitions are copied at a time: while the next ones are, those that are
there are looked at from memory, as a broker would look at them.

Before there is metadata, what consumers will get is read from the new log dirs (`AppliedContents`): counts and digests
of records in both isolation levels. `restore-check` compares them with the running cluster. What was copied was read
back from the disk, and nothing that no broker keeps is in there any longer. Logs without transactions are read as soon
as they are there (`_is_read_alone`), others once all is ready for the first start. A partition whose beginning is in a
bucket is read from there up to its log in the log dir, by the `__remote_log_metadata` of the new log dirs, as its
leader will.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from kidxlib.audit.gaps import explains_gaps
from kidxlib.audit.startup.simulation import SegmentRecovery
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import Work, reads_little
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
from kidxlib.indexing.bins import into_bins
from kidxlib.indexing.source import PartitionDirectory, RemoteOptions, Source, SourceBucket, remote_bucket
from kidxlib.log.metadata_image import BrokerSettings
from kidxlib.operations.backend import Backend
from kidxlib.operations.recover.forecast import Forecast, ForecastTask, forecasts_of
from kidxlib.operations.recover.make_ready import make_ready
from kidxlib.operations.recover.read_logs import log_path
from kidxlib.operations.recover.recovery_plan import RecoverLevel, RecoveryPlan, log_dirs_with_forecasts
from kidxlib.operations.recover.stopped_broker import StoppedBroker, stopped_broker
from kidxlib.operations.restore.bucket import TakenBucket
from kidxlib.operations.restore.choose_replicas import ChosenReplica
from kidxlib.operations.restore.contents_work import CONTENTS, THREADS_MAX, LogToDigest, digest_logs
from kidxlib.operations.restore.coordinators import OFFSETS_TOPIC
from kidxlib.operations.restore.new_nodes import UNFINISHED, NewBroker, write_metadata
from kidxlib.operations.restore.record_digest import IsolatedRecords
from kidxlib.operations.restore.restore_plan import RestorePlan
from kidxlib.operations.restore.restored_cluster import cluster_metadata_records
from kidxlib.run.index_options import options_of_topic
from kidxlib.run.known_topics import KnownTopics, TopicsOfSource
from kidxlib.storage.file_copy import Copied, FileCopy, copy_files, make_directory
from kidxlib.storage.location import Directory, location
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_leader_epochs
from kidxlib.storage.opened_log import SMALL_BYTES
from kidxlib.storage.publisher import FileOwner, Publisher, publish_log_dir_files
from kidxlib.storage.scratch import scratch_directory
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase

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
#: Files of a partition that are copied besides its logs, and its producer snapshots up to the end of the log. All
#: others are made anew of the logs.
_FILES_COPIED_BESIDE_LOGS: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
#: A group of partitions is copied, and then looked at, once it has so many files or bytes.
_GROUP_FILES: Final = 512
_GROUP_BYTES_A_CORE: Final = 128 * 1024 * 1024
#: Facts of `SegmentRecovery` that are in no part of a log larger than in the log.
_GROWING: Final = ("batches", "max_timestamp_ms", "highest_producer_id", "transactional_batches")


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has copied, and what consumers will get of it."""

    copied: Copied
    contents: AppliedContents


@dataclass(frozen=True, slots=True)
class AppliedContents:
    """The contents of the restored partitions, once the plan is carried out.

    Attributes:
        partitions: in order.
        groups: as in `GroupOffsets.expected`; None: a partition of `__consumer_offsets` cannot be read.
    """

    partitions: Sequence[_PartitionContents]
    groups: Mapping[tuple[str, TopicPartition], int] | None

    def as_json(self) -> dict[str, Any]:
        """The contents in the JSON of the applied plan, by which `restore-check` compares."""
        groups = None
        if self.groups is not None:
            groups = [
                {"group": group, "partition": partition.directory, "offset": offset}
                for (group, partition), offset in self.groups.items()
            ]
        return {"contents": [_partition_as_json(each) for each in self.partitions], "groups": groups}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartitionContents:
    """What consumers will get of a restored partition.

    Attributes:
        start_offset, end_offset: of its log.
        uncommitted, committed: at both isolation levels; None if its records cannot be read.
        why: why not; empty if they can.
    """

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    uncommitted: IsolatedRecords | None
    committed: IsolatedRecords | None
    why: str = ""


def _partition_as_json(contents: _PartitionContents) -> dict[str, Any]:
    return {
        "partition": contents.topic_partition.directory,
        "start_offset": contents.start_offset,
        "end_offset": contents.end_offset,
        "uncommitted": None if contents.uncommitted is None else asdict(contents.uncommitted),
        "committed": None if contents.committed is None else asdict(contents.committed),
        "why": contents.why,
    }


def apply_restore(plan: RestorePlan, backend: Backend) -> Restored:
    """Carry a plan out that nothing refuses. The caller holds the locks of all log dirs. After an error no metadata was
    written, unless a controller's disk failed as it was written: then the error names the file.
    """
    log_dirs = [path for broker in plan.brokers for path in broker.log_dirs]
    with _telling_what_is_left():
        reader = _RecordReader(backend.engine)
        copies = _fill_log_dirs(plan, log_dirs, backend, reader)
        contents = _read_contents(plan, reader, copies.contents)
        begin_phase("writing the cluster's metadata")
    is_done = False
    with interrupts.telling(lambda: RESTORED if is_done else _LEFT_AMID_METADATA), interrupts.stopping(lambda: None):
        write_metadata(plan.controllers, cluster_metadata_records(plan.cluster, plan.controllers[0].records))
        with Publisher() as publisher:
            for path in log_dirs:
                publisher.remove(Directory(str(path), ""), UNFINISHED)
        is_done = True
    return Restored(copies.copied, contents)


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


def _fill_log_dirs(plan: RestorePlan, log_dirs: Sequence[Path], backend: Backend, reader: _RecordReader) -> _Copies:
    """Copy the logs, and make the new log dirs ready for the first start."""
    by_log_dir: dict[Path, list[ChosenReplica]] = defaultdict(list)
    for replica in plan.copied:
        assert replica.log_dir is not None
        by_log_dir[replica.log_dir].append(replica)
    publish_log_dir_files({path: {UNFINISHED: f"{plan.id}\n".encode()} for path in log_dirs})
    publish_log_dir_files({path: _checkpoint_contents(by_log_dir[path]) for path in log_dirs})
    known = _known_topics(plan)
    with scratch_directory() as scans:
        copies = _copy_logs(plan, known, backend.engine, reader, scans)
        _make_ready(plan, known, copies.forecasts, backend)
    return copies


def _checkpoint_contents(replicas: Sequence[ChosenReplica]) -> dict[str, bytes]:
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
        source, partition = replica.copied_from, replica.topic_partition
        stop = source.last_stop
        offsets[HIGH_WATERMARK_CHECKPOINT][partition] = source.end_offset
        for name, of_stop in (
            (LOG_START_OFFSET_CHECKPOINT, stop.log_start_offsets),
            (CLEANER_CHECKPOINT, stop.cleaner_offsets),
        ):
            if (offset := of_stop.get(partition)) is not None:
                offsets[name][partition] = min(offset, source.end_offset)
    return {name: offset_checkpoint(of_name) for name, of_name in offsets.items()}


def _make_ready(plan: RestorePlan, known: KnownTopics, forecasts: Mapping[Path, Forecast], backend: Backend) -> None:
    """Make the new log dirs ready for the first start, as `recover --level marker` does."""
    brokers = [stopped_broker(map(str, broker.log_dirs)) for broker in plan.brokers]
    together = StoppedBroker(None, tuple(log_dir for broker in brokers for log_dir in broker.log_dirs), ())
    by_log_dir = log_dirs_with_forecasts(together, known, forecasts)
    ready = RecoveryPlan(broker=together, level=RecoverLevel.MARKER, by_log_dir=by_log_dir)
    make_ready(ready, backend)


def _known_topics(plan: RestorePlan) -> KnownTopics:
    """The topics' settings, for the intervals of their indexes: those of surviving metadata."""
    if plan.surviving is None:
        return KnownTopics()
    of_source = TopicsOfSource(plan.surviving.metadata, BrokerSettings(None, None))
    return KnownTopics({str(path): of_source for broker in plan.brokers for path in broker.log_dirs})


@dataclass(frozen=True, slots=True)
class _Copies:
    """
    Attributes:
        forecasts: what a broker would make of each copy, by its directory.
        contents: what consumers will get of partitions, as far as the logs in the log dirs alone tell it.
    """

    copied: Copied
    forecasts: Mapping[Path, Forecast]
    contents: Sequence[_PartitionContents]


def _copy_logs(plan: RestorePlan, known: KnownTopics, engine: Engine, reader: _RecordReader, scans: Path) -> _Copies:
    """Copy all logs of a plan into log dirs whose checkpoints are written, and look at the copies.

    Args:
        known: the settings of topics; the new log dirs are its sources.
        scans: an empty directory for the scans of logs.
    """
    tasks = _ForecastTasks(plan, known, scans)
    alone = [replica for replica in plan.copied if _is_read_alone(replica)]
    read_bytes = sum(replica.copied_from.kept_bytes for replica in alone)
    before = engine.done()
    begin_phase(
        "copying, and reading the copies",
        done=lambda: engine.done() - before,
        segments=sum(len(_logs(replica)) for replica in plan.copied) + len(alone),
        log_bytes=plan.copied_bytes + read_bytes,
    )
    is_small, group_bytes = reads_little(read_bytes, len(alone)), _GROUP_BYTES_A_CORE * engine.cores
    total, forecasts, contents = Copied(), dict[Path, Forecast](), list[_PartitionContents]()
    with contextlib.closing(copy_files(_groups(plan.copied, group_bytes), engine.cores)) as groups:
        for number, (replicas, copied) in enumerate(groups):
            total += copied
            _cut_epochs(replicas)
            of_group = forecasts_of([tasks.of(replica) for replica in replicas], engine, f"copies-{number}")
            for replica, forecast in zip(replicas, of_group, strict=True):
                _ensure_as_planned(forecast, replica)
                forecasts[forecast.directory] = forecast
            logs = _restored_logs(filter(_is_read_alone, replicas), engine.cores)
            contents += reader.read(logs, f"contents-{number}", is_small=is_small)
    return _Copies(total, forecasts, contents)


class _ForecastTasks:
    """Makes the tasks to see what brokers would make of copies."""

    def __init__(self, plan: RestorePlan, known: KnownTopics, scans: Path) -> None:
        self._known, self._scans = known, scans
        self._numbers = itertools.count()
        self._policy_of = known.policy_of(
            (str(replica.log_dir), replica.topic_partition.topic, replica.copied_from.topic_id)
            for replica in plan.copied
        )
        brokers = (stopped_broker(map(str, broker.log_dirs)) for broker in plan.brokers)
        self._stops = {log_dir.path: log_dir.stop for broker in brokers for log_dir in broker.log_dirs}

    def of(self, replica: ChosenReplica) -> ForecastTask:
        log_dir, partition, logs = replica.log_dir, replica.topic_partition, _logs(replica)
        assert log_dir is not None
        source = Source(str(log_dir), location(str(log_dir)))
        directory = PartitionDirectory(source, partition, source.path / partition.directory)
        choice = options_of_topic(self._known, directory, interval_bytes=None, max_index_bytes=None)
        return ForecastTask(
            number=next(self._numbers),
            topic_partition=partition,
            directory=replica.directory,
            options=choice.of_id(replica.copied_from.topic_id),
            stop=self._stops[log_dir].of(partition),
            everything=False,
            trusts=False,
            segments=len(logs),
            log_bytes=sum(logs.values()),
            scans=self._scans,
            is_compacted=explains_gaps(partition.topic, self._policy_of(source.name, partition.topic)),
            small=tuple(base_offset for base_offset, size in logs.items() if size <= SMALL_BYTES),
        )


def _logs(replica: ChosenReplica) -> dict[int, int]:
    """The bytes that are copied of each log, up to its last whole batch, by base offset."""
    return {each.base_offset: each.kept_bytes for each in replica.copied_from.forecast.simulation.left}


def _groups(
    replicas: Iterable[ChosenReplica], group_bytes: int
) -> Iterator[tuple[list[ChosenReplica], list[FileCopy]]]:
    """Replicas that are copied together, and their files."""
    group, files = list[ChosenReplica](), list[FileCopy]()
    for replica in replicas:
        group.append(replica)
        files += _file_copies(replica)
        if len(files) >= _GROUP_FILES or sum(file.size for file in files) >= group_bytes:
            yield group, files
            group, files = [], []
    if group:
        yield group, files


def _file_copies(replica: ChosenReplica) -> Iterator[FileCopy]:
    """The files to copy; their directory is made first."""
    source, directory = replica.copied_from, replica.directory
    owner = FileOwner.of((directory.parent / META_PROPERTIES).stat())
    make_directory(directory, source.directory, owner)
    for base_offset, size in _logs(replica).items():
        name = segment_file(base_offset, LOG_SUFFIX)
        yield FileCopy(source.directory / name, directory / name, size, owner)
    with os.scandir(source.directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            offset = parse_snapshot(entry.name)
            if entry.name in _FILES_COPIED_BESIDE_LOGS or (offset is not None and offset <= source.end_offset):
                yield FileCopy(source.directory / entry.name, directory / entry.name, entry.stat().st_size, owner)


def _cut_epochs(replicas: Iterable[ChosenReplica]) -> None:
    """Take leader epochs away that begin behind the ends of the copies, as a start does
    (`LeaderEpochFileCache.truncateFromEndAsyncFlush`).
    """
    with Publisher() as publisher:
        for replica in replicas:
            path = replica.directory
            epochs = read_leader_epochs(path)
            entries = () if epochs is None else epochs.entries
            kept = [entry for entry in entries if entry.start_offset < replica.copied_from.end_offset]
            if len(kept) < len(entries):
                owner = replace(FileOwner.of(path.stat()), mode=0o644)
                content = LeaderEpochs(kept).checkpoint()
                publisher.stage(Directory(str(path.parent), path.name), LEADER_EPOCH_CHECKPOINT, content, owner)
        publisher.commit()


def _ensure_as_planned(forecast: Forecast, replica: ChosenReplica) -> None:
    """See that a copy is what its source is by the plan, which may have that from a file (`InventoryCache`)."""
    source, simulation = replica.copied_from, forecast.simulation
    expected = (source.start_offset, source.end_offset, source.kept_bytes)
    kept = sum(segment.kept_bytes for segment in simulation.segments)
    now = (simulation.log_start_offset or 0, simulation.log_end_offset or 0, kept)
    if now != expected or forecast.dropped or forecast.refusals:
        raise KidxError(
            f"{forecast.directory}: expected a copy with (start, end, bytes) {expected}, and a broker would make {now} "
            "of it"
        )
    read, planned = _logs_found(forecast), _logs_found(source.forecast)
    for base_offset in sorted(read.keys() & planned.keys()):
        found, of_source = read[base_offset], planned[base_offset]
        if (name := _first_difference(found, of_source)) is not None:
            raise KidxError(
                f"{log_path(forecast.directory, base_offset)}: {name} is {found[name]}, expected "
                f"{of_source[name]}, as the plan has it of the source; plan again, and if a --scan-cache was given, "
                "without it"
            )


def _first_difference(copy: Mapping[str, Any], of_source: Mapping[str, Any]) -> str | None:
    """The first fact of a copied log that the plan rules out; None: there is none. Of a copy that ends earlier than its
    source, the plan knows the epochs, and the most that it may have.
    """
    if copy["log_bytes"] == of_source["log_bytes"]:
        return next((name for name in copy if copy[name] != of_source[name]), None)
    if copy["epochs"] != of_source["epochs"]:
        return "epochs"
    known = (name for name in _GROWING if copy[name] is not None and of_source[name] is not None)
    return next((name for name in known if copy[name] > of_source[name]), None)


def _logs_found(forecast: Forecast) -> dict[int, dict[str, Any]]:
    """What was found in logs that were read as a whole, by base offset."""
    return {
        log.base_offset: {**_fields(forecast.recoveries[log.base_offset]), "epochs": log.epochs}
        for log in forecast.seen.logs
        if log.is_read and log.base_offset in forecast.recoveries
    }


def _fields(recovery: SegmentRecovery) -> dict[str, Any]:
    return {field.name: getattr(recovery, field.name) for field in fields(recovery)}


def _is_read_alone(replica: ChosenReplica) -> bool:
    """Whether a copy tells by itself what consumers will get: it leads, all of its partition is in the log dir, and no
    transaction has to be looked for.
    """
    source = replica.source
    return replica.is_leader and source is not None and not (source.may_have_transactions or source.begins_in_bucket)


def _read_contents(plan: RestorePlan, reader: _RecordReader, known: Sequence[_PartitionContents]) -> AppliedContents:
    """Read the records of a plan's partitions from the new log dirs, but for those that are `known` already. The
    offsets of groups are the plan's.

    Only `restore-check` needs them: where they cannot be read, each partition says why, and the copies are as good.
    """
    engine = reader.engine
    logs = _other_logs(plan, engine.cores)
    log_bytes, before = sum(log.log_bytes for log in logs), engine.done()
    begin_phase(
        "reading the records for restore-check",
        done=lambda: engine.done() - before,
        segments=len(logs),
        log_bytes=log_bytes,
    )
    is_local = all(log.bucket is None for log in logs)  # nobody has counted the bytes in a bucket
    is_small = is_local and reads_little(log_bytes, len(logs))
    contents = [*known, *reader.read(logs, "contents", is_small=is_small)]
    contents.sort(key=lambda each: each.topic_partition)
    is_read = all(each.committed for each in contents if each.topic_partition.topic == OFFSETS_TOPIC)
    return AppliedContents(contents, plan.groups.expected if is_read else None)


class _RecordReader:
    """Reads the records of restored logs for `restore-check`. Once workers have died over that, no more are read."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._died = ""

    def read(self, logs: Sequence[LogToDigest], name: str, *, is_small: bool) -> list[_PartitionContents]:
        """Read the records of restored logs while a plan is applied, as `Work` of a name that no other has. One that
        cannot be read says why.
        """
        rows: dict[int, Mapping[str, Any]] = {}
        why = self._died
        try:
            if not why:
                rows = self._rows(logs, name, is_small=is_small)
        except WorkersDiedError:
            why = self._died = "the processes that read its records died, as where memory runs out (see dmesg)"
        except (KidxError, OSError) as error:
            why = describe_error(error)
        unread = {"uncommitted": None, "committed": None, "why": why}
        return [_partition_contents(log, rows.get(log.number, unread)) for log in logs]

    def _rows(self, logs: Sequence[LogToDigest], name: str, *, is_small: bool) -> dict[int, Mapping[str, Any]]:
        units = into_bins(logs, self.engine.cores)
        with self.engine.abandoning():
            staged = self.engine.run(Work(name, units, digest_logs, CONTENTS, is_small=is_small))
        rows = [row for batch in staged.batches("contents") for row in batch.to_pylist()]
        staged.remove()
        return {row["number"]: row for row in rows}


def _partition_contents(log: LogToDigest, row: Mapping[str, Any]) -> _PartitionContents:
    levels = (row["uncommitted"], row["committed"])
    uncommitted, committed = (None if level is None else IsolatedRecords(**level) for level in levels)
    return _PartitionContents(
        topic_partition=log.topic_partition,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        uncommitted=uncommitted,
        committed=committed,
        why=row["why"],
    )


def _restored_logs(leaders: Iterable[ChosenReplica], cores: int) -> list[LogToDigest]:
    listed = list(leaders)
    bytes_of_core = sum(leader.kept_bytes for leader in listed) // cores
    return [replace(_restored_log(leader, bytes_of_core), number=number) for number, leader in enumerate(listed)]


def _other_logs(plan: RestorePlan, cores: int) -> list[LogToDigest]:
    """The leader's log of each partition that is not read alone. One that begins empty is in no log dir yet."""
    bucket, why_not = None, "its beginning is in a bucket, and none is named"
    try:
        if plan.bucket is not None:
            bucket, why_not = _bucket_of_restored_cluster(plan.bucket, plan.brokers), ""
    except (KidxError, OSError) as error:
        why_not = describe_error(error)  # of each partition that begins there
    leaders = [replica for replica in plan.copied if replica.is_leader and not _is_read_alone(replica)]
    bytes_of_core = sum(leader.kept_bytes for leader in leaders) // cores
    logs = [_with_beginning(leader, _restored_log(leader, bytes_of_core), bucket, why_not) for leader in leaders]
    logs += [
        LogToDigest(topic_partition=TopicPartition(topic.name, partition.partition))
        for topic in plan.cluster.topics
        for partition in topic.partitions
        if partition.begins_empty
    ]
    return [replace(log, number=number) for number, log in enumerate(logs)]


def _restored_log(leader: ChosenReplica, bytes_of_core: int) -> LogToDigest:
    """The log of a leader. `bytes_of_core` is a core's share of all logs: several threads read a log of more."""
    source = leader.copied_from
    return LogToDigest(
        log_dir=leader.log_dir,
        topic_partition=leader.topic_partition,
        start_offset=source.first_offset,
        end_offset=source.end_offset,
        log_bytes=source.kept_bytes,
        topic_id=source.topic_id or "",
        threads=min(math.ceil(source.kept_bytes / max(bytes_of_core, 1)) or 1, THREADS_MAX),
        has_transactions=not _is_read_alone(leader),
    )


def _with_beginning(leader: ChosenReplica, log: LogToDigest, bucket: SourceBucket | None, why_not: str) -> LogToDigest:
    """A log with what a bucket has before it."""
    if not leader.copied_from.begins_in_bucket:
        return log
    return replace(log, bucket=None if bucket is None else _bucket_with_partition_alone(bucket, log), why_not=why_not)


def _bucket_of_restored_cluster(taken: TakenBucket, brokers: Sequence[NewBroker]) -> SourceBucket:
    """The bucket as brokers of the restored cluster read it. It is listed once."""
    place, layout = taken.bucket.place, taken.bucket.layout
    metadata = tuple(str(path) for broker in brokers for path in broker.log_dirs)
    bucket = remote_bucket(place, RemoteOptions(layout.name, metadata))
    assert bucket is not None  # with metadata it is an error that there is none
    return replace(bucket, directories=layout.list_partitions(bucket.place))


def _bucket_with_partition_alone(bucket: SourceBucket, log: LogToDigest) -> SourceBucket:
    """A bucket with one partition, as a worker gets it."""
    directories, visible = bucket.directories or {}, bucket.visible or {}
    wanted = log.id_partition
    return replace(
        bucket,
        directories={wanted: directories[wanted]} if wanted in directories else {},
        visible={wanted: visible.get(wanted, {})},
    )
