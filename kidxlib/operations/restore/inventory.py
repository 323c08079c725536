"""What the sources of a restore have: the brokers, their replicas as a start without recovery points would take them,
and what the logs say of producers and coordinators. Nothing is written into them, and every log is read once.

What was found in logs is kept in a file (`--scan-cache`, `InventoryCache`): a later plan, and `--apply`, read no log
again that has not changed since. Only logs without damage are kept, and of these only the ones that are copied: each
copy is compared with what the plan has of its source before any metadata is written.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.audit.startup.last_stop import LastStop
from kidxlib.audit.startup.simulation import SegmentRecovery
from kidxlib.catalog.tables import FACTS_VERSION
from kidxlib.engine.protocol import Engine
from kidxlib.errors import (
    CheckpointError,
    SnapshotError,
    UsageError,
    describe_error,
)
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LOG_DIR_CHECKPOINTS, EpochEntry
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_BYTES_MAX,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import ANY_TOPIC
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.compare.place import ComparedPlace, list_place
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.read_logs import EarlierRead, FoundBefore, log_path
from kidxlib.operations.recover.recovery_plan import RecoverLevel, RecoveryPlan, recovery_plan
from kidxlib.operations.recover.stopped_broker import StoppedBroker, StoppedLogDir, log_dir_as_source, stopped_broker
from kidxlib.operations.restore.coordinators import (
    COORDINATOR_TOPICS,
    CoordinatorLog,
    partitions_by_names,
    read_coordinator_log,
)
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.past_end import NOTHING_PAST
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.storage.location import Location, ensure_text, regular_file
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, read_leader_epochs
from kidxlib.storage.store.s3 import is_object
from kidxlib.terminal.console import warn
from kidxlib.text.words import counted

#: The node id of what is made of a bucket: no broker has it.
BUCKET_NODE: Final = -1
_INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
#: A log dir's own files, of which a restore reads what it says.
_LOG_DIR_FILES: Final = (META_PROPERTIES, CLEAN_SHUTDOWN_FILE, *LOG_DIR_CHECKPOINTS)
_OPTION: Final = "--scan-cache"
_CACHE_KIND: Final = b"kidx.restore.scans"
_CACHE_VERSION: Final = str(FACTS_VERSION).encode()
#: Where a log was written to so shortly before it is read, the time of the next write may be the same.
_RESTING: Final = timedelta(seconds=2)
#: What tells that a log has not changed. Nobody but the kernel sets `ctime`.
_OF_FILE: Final = ("device", "inode", "size", "mtime_ns", "ctime_ns")
_SCAN_OPTIONS: Final = ("interval_bytes", "max_index_bytes")
#: Fields of `SegmentRecovery`; the others follow from the size, as the log is whole.
_FACTS_OF_LOG: Final = (
    "next_offset",
    "map_end_offset",
    "batches",
    "records",
    "max_timestamp_ms",
    "highest_producer_id",
    "transactional_batches",
)
SCAN_CACHE_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        *(pa.field(name, pa.uint64() if name in ("device", "inode") else pa.int64()) for name in _OF_FILE),
        *(pa.field(name, pa.int64()) for name in (*_SCAN_OPTIONS, *_FACTS_OF_LOG)),
        pa.field("epochs", pa.list_(pa.struct([("epoch", pa.int32()), ("start_offset", pa.int64())]))),
    ]
)
_FileState: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvidence:
    """What the logs of all sources say of the cluster as a whole.

    Attributes:
        highest_producer_id: of all batches, producer snapshots and `__transaction_state`; −1: there is none.
        coordinator_records: the records in the internal topics: module of the messages (`CONSUMER_OFFSETS`, …), type of
            the key, and the largest version of the value.
        partitions: how many partitions a coordinator's topic had, by the names of groups and transactions in it.
    """

    highest_producer_id: int
    coordinator_records: Mapping[tuple[str, int], int] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryReplica:
    """A partition's directory in a log dir of a source.

    Attributes:
        node_id: the broker's.
        place: the broker's log dirs.
        last_stop: how the broker stopped, by the log dir of the directory.
        topic_id: from `partition.metadata`; None: it is not known.
        forecast: what a broker without recovery points would make of it.
        highest_epoch: the highest leader epoch in its batches and in `leader-epoch-checkpoint`; −1: there is none.
        epoch_by_checkpoint: the last epoch in `leader-epoch-checkpoint` that begins below the end; −1: there is none.
        origin: the place in a bucket that the directory was made of; None: it is a broker's.
        remote_start: the first offset that consumers get of a bucket; None: none is given, or it has nothing of it.
        has_gaps: offsets between its logs are in none, and no compaction explains that.
        index_without_log: the first index after its end whose own log is missing; None: there is none.
    """

    node_id: int
    place: ComparedPlace
    last_stop: LastStop
    topic_id: str | None
    forecast: Forecast
    highest_epoch: int
    epoch_by_checkpoint: int = -1
    origin: Location | None = None
    remote_start: int | None = None
    has_gaps: bool = False
    index_without_log: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.forecast.topic_partition

    @property
    def directory(self) -> Path:
        return self.forecast.directory

    @property
    def last_epoch(self) -> int:
        """The leader epoch of its last batches; of a log without batches, of the last that it had; −1: it had none."""
        in_log = max((entry.epoch for log in self.forecast.seen.logs for entry in log.epochs), default=-1)
        return in_log if in_log >= 0 else self.epoch_by_checkpoint

    @property
    def start_offset(self) -> int:
        """Where the log in the log dir begins."""
        return self.forecast.simulation.log_start_offset or 0

    @property
    def first_offset(self) -> int:
        """The first offset that consumers get: below the log where its beginning is in a bucket. A tiered log without a
        checkpoint begins at 0 (`LogLoader.load`), and then where the first remote segment does
        (`UnifiedLog.updateLogStartOffsetFromRemoteTier`).
        """
        by_checkpoint = self.last_stop.log_start_offsets.get(self.topic_partition)
        if self.remote_start is not None:
            return min(self.start_offset, max(by_checkpoint or 0, self.remote_start))
        return self.start_offset if by_checkpoint is None else min(self.start_offset, by_checkpoint)

    @property
    def begins_in_bucket(self) -> bool:
        """Whether consumers get offsets that are not in the log dir."""
        return self.first_offset < self.start_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last whole batch, before any damage."""
        return self.forecast.simulation.log_end_offset or 0

    @property
    def kept_bytes(self) -> int:
        """The bytes of logs up to the end."""
        return sum(segment.kept_bytes for segment in self.forecast.simulation.segments)

    @property
    def may_have_transactions(self) -> bool:
        """Whether a batch of its logs is of a transaction, or may be, as a log was not read as a whole."""
        recoveries = (self.forecast.recoveries.get(each.base_offset) for each in self.forecast.simulation.segments)
        return any(recovery is None or recovery.transactional_batches != 0 for recovery in recoveries)

    @property
    def whole(self) -> bool:
        """Whether nothing is lost of what the broker had, as far as its checkpoints, its logs and its index tell."""
        lacks_end = self.forecast.seen.shorter_than_index is not None or self.index_without_log is not None
        lacks = self.has_gaps or self.may_lack_first or lacks_end
        return not self.forecast.refusals and not self.forecast.loses and not lacks

    @property
    def lost_first(self) -> range:
        """The offsets before its first log that are lost by its leader epochs. With a bucket none are: replicas of a
        tiered partition begin where each has deleted its local logs.
        """
        seen = self.forecast.seen
        return range(0) if self.remote_start is not None else seen.lost_first or seen.perhaps_lost_first

    @property
    def may_lack_first(self) -> bool:
        """Whether logs before its first one are lost; or nobody knows, as its leader epochs are lost."""
        no_epochs = self.last_epoch >= 0 and self.epoch_by_checkpoint < 0 and self.remote_start is None
        return bool(self.lost_first) or (no_epochs and self.start_offset > 0)

    @property
    def missing(self) -> Iterator[str]:
        """What it lacks at its beginning by its leader epochs, and at its end by its indexes."""
        if lost := self.lost_first:
            yield (
                f"{LEADER_EPOCH_CHECKPOINT} begins at offset {lost.start}, and the logs at {lost.stop}: offsets "
                f"{lost.start} to {lost.stop - 1} are in no log"
            )
        if (shorter := self.forecast.seen.shorter_than_index) is not None:
            yield str(shorter.detail)
        if self.index_without_log is not None:
            yield f"{self.index_without_log} has no log beside it, and the logs end at {self.end_offset}"

    @property
    def shown(self) -> str:
        """Where it comes from, for a person."""
        return str(self.directory if self.origin is None else self.origin)

    def __str__(self) -> str:
        return f"broker {self.node_id}: {self.directory}" if self.origin is None else f"the bucket: {self.origin}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryBroker:
    """A source: the log dirs of one broker, or a directory of its metadata.

    Attributes:
        plan: what a start would make of all its partitions.
        cluster_id: None: it was made of a bucket, which does not say it.
        bucket: the bucket that its log dir was made of; None: it is a broker's.
    """

    node_id: int
    cluster_id: str | None
    place: ComparedPlace
    plan: RecoveryPlan
    replicas: Sequence[InventoryReplica]
    bucket: Location | None = None

    @property
    def shown(self) -> list[str]:
        """Its log dirs, for a person."""
        return [str(log_dir.path) for log_dir in self.log_dirs] if self.bucket is None else [str(self.bucket)]

    @property
    def log_dirs(self) -> Sequence[StoppedLogDir]:
        return self.plan.broker.log_dirs

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that it has directories of, of all topics."""
        listed = (directory.topic_partition for directory in self.place.directories.values())
        return {partition for partition in listed if partition is not None}


@dataclass(frozen=True)
class Inventory:
    """All sources.

    Attributes:
        known: the topics of surviving metadata, by log dir.
    """

    brokers: Sequence[InventoryBroker]
    known: KnownTopics

    @cached_property
    def replicas(self) -> Mapping[TopicPartition, Sequence[InventoryReplica]]:
        """All replicas of each partition, in the order of brokers."""
        by_partition: dict[TopicPartition, list[InventoryReplica]] = defaultdict(list)
        for broker in self.brokers:
            for replica in broker.replicas:
                by_partition[replica.topic_partition].append(replica)
        return dict(sorted(by_partition.items()))

    @cached_property
    def coordinator_logs(self) -> Mapping[Path, CoordinatorLog]:
        """What each replica of coordinators' topics says, by its directory. All of it is read."""
        return {
            replica.directory: read_coordinator_log(replica.forecast)
            for partition, replicas in self.replicas.items()
            if partition.topic in COORDINATOR_TOPICS
            for replica in replicas
        }

    @property
    def paths(self) -> list[Path]:
        return [log_dir.path for broker in self.brokers for log_dir in broker.log_dirs]

    @cached_property
    def _producer_snapshots(self) -> tuple[int, Sequence[str]]:
        """The largest producer id in all producer snapshots, also of topics that are not restored; and why some, or
        their directories, cannot be read.
        """
        highest, unread = -1, list[str]()
        for directory in (each for broker in self.brokers for each in broker.place.directories.values()):
            if directory.problem is not None:
                unread.append(directory.problem)
            for name in sorted(name for name in directory.files if parse_snapshot(name) is not None):
                path = Path(str(directory.path)) / name
                try:
                    highest = max(highest, _highest_producer_id(path))
                except (OSError, SnapshotError) as error:
                    unread.append(f"{path}: {error.strerror if isinstance(error, OSError) else error}")
        return highest, unread

    @property
    def unread_snapshots(self) -> str | None:
        """A line on producer snapshots that cannot be read; None: there are none. Logs say more, but for producers
        whose records have been deleted, and for topics that are not restored.
        """
        if not (unread := self._producer_snapshots[1]):
            return None
        more = len(unread) - 1
        also = f" (and {counted(more, 'more producer snapshot')})" if more else ""
        return (
            f"{unread[0]}{also}; producer ids that are named there alone may be handed out again, and brokers may take "
            "new records for repeated ones, or refuse them: restart all producers before they write to the new cluster"
        )

    def evidence(self) -> LogEvidence:
        """What the logs say of producers and of coordinators' records, of which all are read; and the producer
        snapshots, also of topics that are not restored.
        """
        highest = self._producer_snapshots[0]
        versions: dict[tuple[str, int], int] = {}
        for replicas in self.replicas.values():
            for replica in replicas:
                recoveries = replica.forecast.recoveries.values()
                highest = max([highest, *(recovery.highest_producer_id for recovery in recoveries)])
        for read in self.coordinator_logs.values():
            highest = max(highest, read.highest_producer_id)
            for kind, version in read.versions.items():
                versions[kind] = max(versions.get(kind, 0), version)
        names: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for partition, replicas in self.replicas.items():
            for replica in replicas if partition.topic in COORDINATOR_TOPICS else ():
                names[partition.topic][partition.partition] |= self.coordinator_logs[replica.directory].names
        partitions = {topic: partitions_by_names(of_topic) for topic, of_topic in names.items()}
        return LogEvidence(highest_producer_id=highest, coordinator_records=versions, partitions=partitions)


def source_brokers(texts: Sequence[str], topics: re.Pattern[str]) -> list[tuple[ComparedPlace, StoppedBroker]]:
    """The old brokers of which a restore takes the inventory, each named by its log dirs with commas between them.
    Nothing but small files is read; but all of these topics must be readable. It refuses a source that is no broker's
    or does not say of which cluster it is, two of one broker, and sources of several clusters. Kafka has written the
    cluster's id since 2.4, and topic ids since 2.8.
    """
    brokers: list[tuple[ComparedPlace, StoppedBroker]] = []
    of_node: dict[int, str] = {}
    clusters: dict[str, str] = {}
    for text in texts:
        if any(is_object(part) for part in text.split(",")):
            raise UsageError(f"{text}: in an object store; expected log dirs of this machine: copy them here first")
        place = list_place(text, is_of_no_use="nothing can be restored from it")
        _ensure_readable(place, topics)
        for root in place.log_dirs:
            ensure_text("", root)
        if place.is_partition:
            raise UsageError(
                f"{text}: one partition's directory; expected a broker's log dir: name {place.log_dirs[0]}"
            )
        broker = stopped_broker([str(path) for path in place.log_dirs])
        _ensure_named(broker)
        assert broker.node_id is not None
        if broker.node_id in of_node:
            raise UsageError(
                f"{text}: of node {broker.node_id}, as {of_node[broker.node_id]} is: name all log dirs of a broker "
                "together, with commas between them, and one copy of each"
            )
        of_node[broker.node_id] = text
        for cluster in place.clusters:
            clusters.setdefault(cluster, text)
        brokers.append((place, broker))
    if len(clusters) > 1:
        of = ", ".join(f"{text} of {cluster}" for cluster, text in clusters.items())
        raise UsageError(f"the sources are of several clusters: {of}; name those of one")
    return brokers


def _ensure_named(broker: StoppedBroker) -> None:
    """See that each log dir says which node's it is, and of which cluster."""
    for log_dir in broker.log_dirs:
        if log_dir.meta.node_id is None:
            raise UsageError(
                f"{log_dir.path}: no {META_PROPERTIES} there says which broker's it is; expected all log dirs of "
                "one broker, with commas between them, each with that file: copy it from the disk, too"
            )
        if log_dir.meta.cluster_id is None:
            raise UsageError(
                f"{log_dir.path / META_PROPERTIES}: no cluster.id in it, without which no node starts: nobody "
                "knows whether it is of the other sources' cluster, or the new log dirs have that cluster's id. "
                "Write the line cluster.id=ID into it, in a copy of the log dir: the id in the file of another "
                "node that is of this cluster; if there is none, any id that the new log dirs do not have"
            )


def _ensure_readable(place: ComparedPlace, topics: re.Pattern[str]) -> None:
    """See that this user may read the log dirs' own files, the metadata, and all of the partitions of these topics."""
    if not (found := [*_not_readable(place, topics)]):
        return
    first, *more = found
    owner = first.stat().st_uid
    whom = "as root" if owner in (0, os.getuid()) else f"as user {owner}, to whom it belongs, or as root"
    also = f", nor {counted(len(more), 'other file or directory', 'other files and directories')} there" if more else ""
    raise UsageError(f"{first}: this user may not read it{also}; run this {whom}: what is not read would count as lost")


def _not_readable(place: ComparedPlace, topics: re.Pattern[str]) -> Iterator[Path]:
    """The files and directories that this user may not read. Of a directory nothing more is looked at then."""
    for log_dir in map(str, place.log_dirs):
        for name in _LOG_DIR_FILES:
            if _is_forbidden(path := os.path.join(log_dir, name), os.R_OK):
                yield Path(path)
    for directory in place.directories.values():
        partition = directory.topic_partition
        is_wanted = partition is not None and topics.fullmatch(partition.topic) is not None
        if not is_wanted and directory.name != METADATA_DIRECTORY:
            continue
        if _is_forbidden(path := str(directory.path), os.R_OK | os.X_OK):
            yield Path(path)
            continue
        paths = (os.path.join(path, name) for name in sorted(directory.files))
        yield from (Path(file) for file in paths if _is_forbidden(file, os.R_OK))


def _is_forbidden(path: str, mode: int) -> bool:
    return not os.access(path, mode) and os.path.exists(path)


def take_inventory(
    sources: Sequence[tuple[ComparedPlace, StoppedBroker]],
    engine: Engine,
    topics: re.Pattern[str],
    found_before: Mapping[int, FoundBefore] | None = None,
) -> Inventory:
    """Read all logs of these topics in all sources, as a start without recovery points would; but for those that were
    read before, by the ids of their brokers.
    """
    before = found_before or {}
    log_dirs = [log_dir for _, broker in sources for log_dir in broker.log_dirs]
    known = read_known_topics(map(log_dir_as_source, log_dirs))
    brokers = [
        _inventory_broker(place, broker, known, engine, f"forecasts-{number}", topics, before.get(_node_id(broker)))
        for number, (place, broker) in enumerate(sources)
    ]
    return Inventory(brokers, known)


def read_made_log_dir(log_dir: Path, known: KnownTopics, engine: Engine) -> InventoryBroker:
    """Read the log dir that was made of a bucket, as `take_inventory` reads sources."""
    place = list_place(str(log_dir), is_copy=True)
    broker = stopped_broker([str(path) for path in place.log_dirs])
    return _inventory_broker(place, broker, known, engine, "forecasts-bucket", ANY_TOPIC)


def _inventory_broker(
    place: ComparedPlace,
    broker: StoppedBroker,
    known: KnownTopics,
    engine: Engine,
    name: str,
    topics: re.Pattern[str],
    found_before: FoundBefore | None = None,
) -> InventoryBroker:
    plan = recovery_plan(
        broker,
        known,
        RecoverLevel.CHECKPOINT,
        cuts=True,
        accepts_loss=True,
        alone=True,
        everything=True,
        untrusted=None,
        engine=engine,
        scans=None,
        name=name,
        topics=topics,
        found_before=found_before,
    )
    node_id = _node_id(broker)
    gaps = {TopicPartition(gap.topic, gap.partition) for gap in plan.gaps.lost}
    return InventoryBroker(
        node_id=node_id,
        cluster_id=next(iter(place.clusters), None),
        place=place,
        plan=plan,
        replicas=[
            _inventory_replica(forecast, node_id, place, log_dir.stop, gaps)
            for log_dir in broker.log_dirs
            for forecast in plan.by_log_dir[log_dir.path]
        ],
    )


def _node_id(broker: StoppedBroker) -> int:
    assert broker.node_id is not None  # `source_brokers` has seen to that
    return broker.node_id


def _inventory_replica(
    forecast: Forecast, node_id: int, place: ComparedPlace, stop: LastStop, gaps: Collection[TopicPartition]
) -> InventoryReplica:
    listed = place.directories.get(forecast.directory.name)
    epochs = [entry.epoch for log in forecast.seen.logs for entry in log.epochs]
    entries: Sequence[EpochEntry] = ()
    with contextlib.suppress(OSError, CheckpointError):
        checkpoint = read_leader_epochs(forecast.directory)
        entries = () if checkpoint is None else checkpoint.entries
    end = forecast.simulation.log_end_offset or 0
    return InventoryReplica(
        node_id=node_id,
        place=place,
        last_stop=stop,
        topic_id=None if listed is None else listed.topic_id,
        forecast=replace(forecast, refusals=tuple(each for each in forecast.refusals if not each.is_link)),
        highest_epoch=max([*epochs, *(entry.epoch for entry in entries)], default=-1),
        epoch_by_checkpoint=max((entry.epoch for entry in entries if entry.start_offset < end), default=-1),
        has_gaps=forecast.topic_partition in gaps,
        index_without_log=None if listed is None else _index_without_log(listed.files, end),
    )


def _index_without_log(names: Collection[str], end: int) -> str | None:
    """An index that tells of a lost log: a roll makes the log first (`LogSegment.open`)."""
    for name in sorted(names):
        base_offset, suffix = parse_segment_file(name) or (-1, "")
        if suffix in _INDEX_SUFFIXES and base_offset >= end and segment_file(base_offset, LOG_SUFFIX) not in names:
            return name
    return None


def _highest_producer_id(snapshot: Path) -> int:
    with regular_file(snapshot) as file:
        return int(read_snapshot(file.read(SNAPSHOT_BYTES_MAX))["producer_id"].max(initial=-1))


class InventoryCache:
    """What a file (`--scan-cache`) has of logs, and the logs that this run asks for. It refuses a file of another kind,
    and a place where no file can be written.

    Args:
        path: the file, or a link to it; None: there is none, and all logs are read.
        now: before this run lists logs.
    """

    def __init__(self, path: Path | None, now: datetime) -> None:
        self._path = path = None if path is None else Path(os.path.realpath(path))
        self._resting_since_ns = int((now - _RESTING).timestamp() * 1e9)
        self._rows: Mapping[str, dict[str, Any]] = {} if path is None else _read_scan_cache(path)
        self._states: dict[str, _FileState] = {}

    def found_before(self, path: str, options: RecoverOptions) -> EarlierRead | None:
        """What was found in a log with these options; None: it was not read, or has changed since, or may have."""
        if self._path is None:
            return None
        try:
            status = os.stat(path)
        except OSError:  # who reads it says what is wrong
            return None
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if status.st_ctime_ns < self._resting_since_ns:
            self._states[path] = state
        row = self._rows.get(path)
        if row is None or tuple(row[name] for name in _OF_FILE) != state or not options.verify_crc:
            return None
        if any(row[name] != getattr(options, name) for name in _SCAN_OPTIONS):
            return None
        recovery = SegmentRecovery(
            log_bytes=state[2],
            end=ScanEnd(Status.OK, None, state[2], None),
            past=NOTHING_PAST,
            **{name: row[name] for name in _FACTS_OF_LOG},
        )
        return EarlierRead(options, recovery, tuple(EpochEntry(**entry) for entry in row["epochs"]))

    def write(self, forecasts: Iterable[Forecast]) -> None:
        """Write what is known of these logs in place of the file. A warning says so where that cannot be done."""
        if self._path is None:
            return
        rows = [row for forecast in forecasts for row in self._rows_of(forecast)]
        table = pa.Table.from_pylist(rows, SCAN_CACHE_SCHEMA.with_metadata({_CACHE_KIND: _CACHE_VERSION}))
        try:
            descriptor, unfinished = tempfile.mkstemp(prefix=".kidx-scans-", dir=self._path.parent)
            with contextlib.ExitStack() as stack:
                stack.callback(Path(unfinished).unlink, missing_ok=True)
                with open(descriptor, "wb") as file:
                    pq.write_table(table, file, compression="zstd", write_page_checksum=True)
                os.replace(unfinished, self._path)
        except OSError as error:
            warn(f"{_OPTION} {self._path}: cannot be written: {_first_line(error)}; the next run reads all logs again")

    def _rows_of(self, forecast: Forecast) -> Iterator[dict[str, Any]]:
        for log in forecast.seen.logs:
            path = log_path(forecast.directory, log.base_offset)
            recovery, state = forecast.recoveries.get(log.base_offset), self._states.get(path)
            if recovery is None or recovery.end.status is not Status.OK or state is None or not log.is_read:
                continue
            if recovery.log_bytes == state[2] == recovery.end.position:
                yield {
                    "path": path,
                    **dict(zip(_OF_FILE, state, strict=True)),
                    **{name: getattr(forecast.options, name) for name in _SCAN_OPTIONS},
                    **{name: getattr(recovery, name) for name in _FACTS_OF_LOG},
                    "epochs": [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in log.epochs],
                }


def _read_scan_cache(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by their logs' paths; none if there is no file, or another release has written it."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{_OPTION} {path}: no file can be written there; name one in a directory where it can")
    if not os.path.lexists(path):
        return {}
    if not path.is_file():  # whoever opens a pipe waits
        raise UsageError(f"{_OPTION} {path}: no regular file; name a new file")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = (file.schema_arrow.metadata or {}).get(_CACHE_KIND)
            is_known = version == _CACHE_VERSION and file.schema_arrow.equals(SCAN_CACHE_SCHEMA)
            rows = file.read().to_pylist() if is_known else []
    except (pa.ArrowException, ValueError) as error:  # names in a damaged footer may be no UTF-8
        raise UsageError(
            f"{_OPTION} {path}: {_first_line(error)}; expected a file that kidx restore wrote, or none"
        ) from error
    except OSError as error:
        raise UsageError(f"{_OPTION} {path}: cannot be read: {_first_line(error)}; name a new file") from error
    if version is None:
        raise UsageError(f"{_OPTION} {path}: a Parquet file of something else; name a new file")
    return {row["path"]: row for row in rows}


def _first_line(error: Exception) -> str:
    return describe_error(error).split("\n", 1)[0]
