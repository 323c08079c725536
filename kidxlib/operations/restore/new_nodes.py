"""The new nodes of a restore, as `kafka-storage format` has just made their directories: the controllers' files for
metadata, the brokers' log dirs, why nothing may be restored into them, and whether all fits.

The cluster's metadata goes into the file from which the first active controller takes the records of a new cluster.
Formatting writes it, with the feature levels in it; a restore writes the same file with more records. Up to Kafka 4.3
it is `bootstrap.checkpoint`, beside which a dynamic quorum has its voters in the first snapshot of
`__cluster_metadata-0`; from 4.4 on (KIP-1170) it is that snapshot. Once the metadata log has records, Kafka reads
neither. Formatting is left to Kafka's own tool: so the target's ids, its voters, and the levels that this release
supports are Kafka's word.

Sources: `Formatter.doFormat`, `BatchFileWriter`, `RecordsSnapshotWriter`; the readers are `BootstrapMetadata`,
`QuorumController.handleLoadBootstrap`, `ActivationRecordsGenerator.recordsForEmptyLog`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from kidxlib.errors import (
    CheckpointError,
    MalformedError,
    MalformedRecordsError,
    PublishError,
    UnreadableMessageError,
    UsageError,
    describe_error,
)
from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.segment_files import (
    BOOTSTRAP_SNAPSHOT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    SnapshotId,
    kraft_snapshot_file,
    segment_file,
)
from kidxlib.java import parse_int
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, read_framed, write_framed
from kidxlib.operations.restore.inventory import InventoryBroker, InventoryReplica
from kidxlib.records.batch_headers import BatchHeader, batches, is_crc_valid
from kidxlib.records.batch_writer import moved_to, write_batch
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import records
from kidxlib.storage.file_copy import can_reflink
from kidxlib.storage.location import Directory, ensure_text, identity_of, overlapping_directory
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import (
    META_PROPERTIES,
    UNMOUNTED,
    MetaProperties,
    read_meta_properties,
    usable_meta_properties,
)
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.publisher import FileOwner, Published, publish_if
from kidxlib.storage.small_files import small_file
from kidxlib.storage.store.s3 import is_object

#: `Snapshots.BOOTSTRAP_SNAPSHOT_ID`.
_FIRST_SNAPSHOT: Final = kraft_snapshot_file(SnapshotId(0, 0))
#: What `kafka-storage format` writes: the levels, and the users of `--add-scram`.
_RECORDS_WRITTEN_BY_FORMAT: Final = frozenset({"FeatureLevelRecord", "UserScramCredentialRecord"})
#: No larger than Kafka writes or reads (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`), with room for headers.
_BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
_NAME_FORMATTED_LOG_DIR: Final = "name the metadata log dir of a controller that kafka-storage format has just made"
#: What may be in a log dir that was just formatted. `METADATA_DIRECTORY` is looked at where metadata is written.
_FILES_OF_FORMATTED: Final = frozenset({META_PROPERTIES, BOOTSTRAP_SNAPSHOT, METADATA_DIRECTORY, LOCK_FILE}) | UNMOUNTED
#: A file that an unfinished restore leaves in each log dir.
UNFINISHED: Final = ".kidx-restore"
_FORMAT_FIRST: Final = "format it first: kafka-storage format --cluster-id ID --config server.properties"
#: Of each log, at the least, for the index files, snapshot and epochs beside it: an entry of `.index` and one of
#: `.timeindex` (20 bytes) for 4,096 bytes, and a block for each file.
_SIDE_FILE_SHARE: Final = 20 / 4096
_SIDE_FILES_PER_LOG: Final = 5
#: A log, its indexes and a producer snapshot; and the directory, `leader-epoch-checkpoint` and `partition.metadata`.
_FILES_PER_LOG: Final = 4
_FILES_PER_PARTITION: Final = 3
_PREALLOCATED_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
#: `stat` counts in these, whatever the file system's blocks are.
_STAT_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedController:
    """A controller's metadata log dir as `kafka-storage format` leaves it.

    Attributes:
        directory, name: the file with the levels.
        content: its bytes.
        header, footer: the batches of control records around the records.
        header_records: how many records the header has.
        timestamp_ms: when it was formatted, in ms since the epoch.
        voters: the ids of the first controllers of a dynamic quorum, with the ids of their log dirs; None: the quorum
            is static, and `controller.quorum.voters` has them.
    """

    log_dir: Path
    properties: MetaProperties
    directory: Directory
    name: str
    content: bytes
    header: bytes
    header_records: int
    footer: bytes
    timestamp_ms: int
    records: tuple[FramedMessage, ...]
    voters: Mapping[int, str] | None

    @property
    def path(self) -> Path:
        return Path(str(self.directory)) / self.name

    @property
    def features(self) -> dict[str, int]:
        levels = (record.values for record in self.records if record.message.name == "FeatureLevelRecord")
        return {values["name"]: values["featureLevel"] for values in levels}

    def has_changed(self) -> bool:
        """Whether the file is another one by now than was read."""
        return self.path.read_bytes() != self.content

    def content_with(self, restored: Sequence[FramedMessage]) -> bytes:
        content, offset = self.header, self.header_records
        for values in _batches_of_records(map(write_framed, restored)):
            content += write_batch(values, base_offset=offset, leader_epoch=0, timestamp_ms=self.timestamp_ms)
            offset += len(values)
        return content + moved_to(self.footer, offset)


def read_formatted(log_dir: Path) -> FormattedController:
    """Read what `kafka-storage format` has made in a controller's metadata log dir; refuse one that is not just
    formatted.
    """
    properties = _required_properties(log_dir)
    directory = log_dir / METADATA_DIRECTORY
    names = set(os.listdir(directory)) if directory.exists() else set()
    if others := sorted(names - {_FIRST_SNAPSHOT}):
        raise UsageError(
            f"{directory}: a metadata log is in it ({others[0]}), so that a node has run here, and would not read what "
            f"is restored; {_NAME_FORMATTED_LOG_DIR}"
        )
    snapshot = _read_controller_file(log_dir, properties, METADATA_DIRECTORY, _FIRST_SNAPSHOT) if names else None
    bootstrap = (
        _read_controller_file(log_dir, properties, "", BOOTSTRAP_SNAPSHOT)
        if (log_dir / BOOTSTRAP_SNAPSHOT).exists()
        else None
    )
    found = [file for file in (snapshot, bootstrap) if file is not None and file.records]
    if len(found) == 2:
        raise UsageError(
            f"{log_dir}: records are in both {BOOTSTRAP_SNAPSHOT} and {METADATA_DIRECTORY}/{_FIRST_SNAPSHOT}, as after "
            f"formatting with two releases; {_NAME_FORMATTED_LOG_DIR}"
        )
    if not found:
        raise UsageError(
            f"{log_dir}: no feature levels in it; {_NAME_FORMATTED_LOG_DIR}, and not with --no-initial-controllers"
        )
    (file,) = found
    if more := [record for record in file.records if record.message.name not in _RECORDS_WRITTEN_BY_FORMAT]:
        raise UsageError(
            f"{file.path}: it holds {more[0].message.name} already: if a restore into it is done, start the node; to "
            "restore again, name a directory that kafka-storage format has just made"
        )
    if METADATA_VERSION not in file.features:
        raise UsageError(f"{file.path}: no {METADATA_VERSION} in it; {_NAME_FORMATTED_LOG_DIR}")
    return file if snapshot is None else replace(file, voters=snapshot.voters)


def _required_properties(log_dir: Path) -> MetaProperties:
    try:
        properties = read_meta_properties(log_dir)
    except CheckpointError as error:
        raise UsageError(f"{error}; {_NAME_FORMATTED_LOG_DIR}") from error
    if properties.cluster_id is None or properties.node_id is None:
        raise UsageError(f"{log_dir}: no meta.properties with cluster.id and node.id in it; {_NAME_FORMATTED_LOG_DIR}")
    return properties


def _read_controller_file(log_dir: Path, properties: MetaProperties, below: str, name: str) -> FormattedController:
    path = log_dir / below / name
    content = small_file(path)
    controls: list[tuple[str | None, bytes, BatchHeader]] = []
    data: list[FramedMessage] = []
    voters: Mapping[int, str] | None = None
    try:
        with contextlib.closing(LogFile(str(path))) as log:
            for batch in batches(log):
                if not is_crc_valid(log, batch):
                    raise UsageError(
                        f"{path}: wrong checksum of the batch at byte {batch.position}; {_NAME_FORMATTED_LOG_DIR}"
                    )
                of_batch = list(records(log, batch))
                if not batch.is_control:
                    data += [read_framed(record.value, CLUSTER_METADATA) for record in of_batch]
                    continue
                read = [read_control_record(record) for record in of_batch]
                for control in read:
                    if control.name == "KRAFT_VOTERS" and control.fields is not None:
                        voters = {voter["voterId"]: voter["voterDirectoryId"] for voter in control.fields["voters"]}
                raw = content[batch.position : batch.position + batch.size]
                controls.append((read[0].name, raw, batch))
    except (MalformedError, MalformedRecordsError, UnreadableMessageError) as error:
        raise UsageError(f"{path}: {error}; {_NAME_FORMATTED_LOG_DIR}") from error
    if [control[0] for control in controls] != ["SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"]:
        raise UsageError(f"{path}: no whole file from its header to its footer; {_NAME_FORMATTED_LOG_DIR}")
    (_, header, first), (_, footer, _) = controls
    return FormattedController(
        log_dir=log_dir,
        properties=properties,
        directory=Directory(str(log_dir), below),
        name=name,
        content=content,
        header=header,
        header_records=first.records_count or 0,
        footer=footer,
        timestamp_ms=first.max_timestamp,
        records=tuple(data),
        voters=voters,
    )


def write_metadata(controllers: Iterable[FormattedController], restored: Sequence[FramedMessage]) -> None:
    """Write a restored cluster's records into each controller's file, durably. A file that has changed since it was
    read is an error: a node has started, or somebody else writes.
    """
    for controller in controllers:
        outcome = publish_if(
            controller.directory,
            controller.name,
            controller.content_with(restored),
            controller.content.__eq__,
            FileOwner.of(controller.path.stat()),
        )
        if outcome is Published.KEPT:
            raise PublishError(f"{controller.path}: it has changed since it was read; format the directory anew")


def _batches_of_records(values: Iterable[bytes]) -> Iterable[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for value in values:
        if batch and size + len(value) > _BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += len(value)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class NewBroker:
    """
    Attributes:
        log_dirs: real paths.
        properties: what each `meta.properties` says; empty where there is none, or it cannot be read.
    """

    node_id: int
    log_dirs: tuple[Path, ...]
    properties: Mapping[Path, MetaProperties]

    @property
    def clusters(self) -> set[str]:
        return {meta.cluster_id for meta in self.properties.values() if meta.cluster_id is not None}

    @property
    def directory_ids(self) -> dict[str, str]:
        """The id of each log dir (`directory.id`), by path."""
        return {str(path): meta.directory_id for path, meta in self.properties.items() if meta.directory_id is not None}


def new_brokers(options: Sequence[str]) -> list[NewBroker]:
    """The brokers of `--broker ID=DIR[,DIR]` options, in the order of their ids."""
    brokers: dict[int, NewBroker] = {}
    for text in options:
        number, equals, names = text.partition("=")
        node_id = parse_int(number)
        if not equals or node_id is None or node_id < 0 or not all(names.split(",")):
            raise UsageError(f"--broker {text}: expected ID=DIR[,DIR], as in 1=/new/data1,/new/data2")
        if node_id in brokers:
            raise UsageError(f"--broker {text}: node {node_id} is given twice; name all of its log dirs in one option")
        if any(is_object(name) for name in names.split(",")):
            raise UsageError(f"--broker {text}: in an object store, where no broker starts; name a directory")
        paths = tuple(Path(os.path.realpath(name)) for name in names.split(","))
        for path in paths:
            ensure_text("--broker ", path)
        # Where one cannot be read, `why_not_into_brokers` says why.
        brokers[node_id] = NewBroker(node_id, paths, {path: usable_meta_properties(path) for path in paths})
    return [brokers[node_id] for node_id in sorted(brokers)]


def why_not_into_brokers(
    brokers: Sequence[NewBroker], sources: Sequence[InventoryBroker], *, keeps_cluster_id: bool
) -> Iterator[str]:
    """Why nothing may be restored into the log dirs of new brokers, each with what to do."""
    seen: dict[object, Path] = {}
    for broker in brokers:
        for path in broker.log_dirs:
            if not path.is_dir():
                yield f"{path}: no such directory; make it, and {_FORMAT_FIRST}"
                continue
            if (other := seen.setdefault(identity_of(path), path)) is not path:
                yield f"{path}: the same directory as {other}; give each log dir a directory of its own"
            if (why := _why_not_in_sources(path, sources)) is not None:
                yield why
                continue
            yield from _why_not_into_log_dir(broker, path)
    yield from _why_not_this_cluster(brokers, sources, keeps_cluster_id=keeps_cluster_id)


def why_not_into_controllers(
    controllers: Sequence[FormattedController], brokers: Sequence[NewBroker], sources: Sequence[InventoryBroker]
) -> Iterator[str]:
    """Why no metadata may be written into the directories of new controllers, each with what to do. A node that is a
    controller and a broker has its metadata in a log dir of its own, or in one of the broker's.
    """
    clusters = {cluster for broker in brokers for cluster in broker.clusters}
    for controller in controllers:
        if (why := _why_not_in_sources(controller.log_dir, sources)) is not None:
            yield why
        if controller.properties.cluster_id not in clusters:
            yield (
                f"--controller {controller.log_dir}: formatted for cluster {controller.properties.cluster_id}, and the "
                f"brokers for {', '.join(sorted(clusters)) or 'none'}; format all nodes with one --cluster-id"
            )
    yield from _why_not_one_controller_each(controllers)
    yield from _directory_ids_of_two(controllers, brokers)


def _why_not_one_controller_each(controllers: Iterable[FormattedController]) -> Iterator[str]:
    """Refusals of a controller that is named twice: by two paths of its directory, or by a copy of it."""
    by_directory: dict[object, FormattedController] = {}
    by_node: dict[int | None, FormattedController] = {}
    for controller in controllers:
        path, node_id = controller.log_dir, controller.properties.node_id
        if (other := by_directory.setdefault(identity_of(path), controller)) is not controller:
            also = "" if path == other.log_dir else f", also as {other.log_dir}"
            yield f"--controller {path}: named twice{also}; name each controller's directory once"
        elif (other := by_node.setdefault(node_id, controller)) is not controller:
            yield (
                f"--controller {path}: node.id is {node_id}, as in {other.log_dir}: one of the two is a copy, or a "
                "controller was formatted with the node.id of another; name one directory of each controller, and "
                "format each with a node.id of its own"
            )


def _directory_ids_of_two(controllers: Iterable[FormattedController], brokers: Iterable[NewBroker]) -> Iterator[str]:
    """Refusals of new directories that have one id: a node does not start with both (`MetaPropertiesEnsemble.verify`),
    and of two brokers a cluster registers the first alone (`ClusterControlManager.registerBroker`).
    """
    ids = [(path, id_) for broker in brokers for path, id_ in broker.directory_ids.items()]
    ids += [(str(each.log_dir), each.properties.directory_id or "") for each in controllers]
    by_id: dict[str, str] = {}
    for path, id_ in dict(ids).items():
        other = by_id.setdefault(id_, path) if id_ else path
        if identity_of(Path(other)) != identity_of(Path(path)):
            yield f"{path}: directory.id {id_}, as {other} has it: a copied {META_PROPERTIES}; {_FORMAT_FIRST}"


def _why_not_in_sources(path: Path, sources: Iterable[InventoryBroker]) -> str | None:
    """Why nothing may be written into a new directory, as a source is there; None: no source is."""
    found = overlapping_directory(path, (log_dir.path for source in sources for log_dir in source.log_dirs))
    if found is None:
        return None
    return f"{path}: it is, holds or lies in {found}, a source, where nothing is written; name a new directory"


def _why_not_into_log_dir(broker: NewBroker, path: Path) -> Iterator[str]:
    names = sorted(os.listdir(path))
    if UNFINISHED in names:
        yield (
            f"{path}: a restore into it was broken off; nothing in it is needed: remove all that is in it, and "
            f"{_FORMAT_FIRST}"
        )
        return
    if others := [name for name in names if name not in _FILES_OF_FORMATTED]:
        yield (
            f"{path}: it is not empty ({others[0]} is in it); name a new directory, or an empty one, and "
            f"{_FORMAT_FIRST}"
        )
    try:
        meta = read_meta_properties(path)
    except (CheckpointError, OSError) as error:
        yield f"{path / META_PROPERTIES}: {describe_error(error)}; {_FORMAT_FIRST}"
        return
    if meta == MetaProperties():
        yield f"{path}: not formatted, as it has no {META_PROPERTIES}; {_FORMAT_FIRST}"
    elif meta.node_id != broker.node_id:
        yield (
            f"{path / META_PROPERTIES}: node.id is {meta.node_id}, and --broker says {broker.node_id}; give the node "
            "that it was formatted for"
        )
    elif meta.cluster_id is None:
        yield f"{path / META_PROPERTIES}: no cluster.id in it, without which no node starts; {_FORMAT_FIRST}"
    elif meta.directory_id is None:
        yield f"{path / META_PROPERTIES}: no directory.id in it; format it with Kafka 3.7 or newer"


def _why_not_this_cluster(
    brokers: Sequence[NewBroker], sources: Sequence[InventoryBroker], *, keeps_cluster_id: bool
) -> Iterator[str]:
    clusters = sorted({cluster for broker in brokers for cluster in broker.clusters})
    if len(clusters) > 1:
        names = ", ".join(clusters)
        yield f"--broker: the log dirs are of several clusters ({names}); format all with one --cluster-id"
    old = {source.cluster_id for source in sources if source.cluster_id is not None}
    if old & set(clusters) and not keeps_cluster_id:
        yield (
            f"--broker: formatted with {clusters[0]}, the id of the old cluster: nodes of both would join each other. "
            "Format with a new id (kafka-storage random-uuid); or give --keep-cluster-id, once no node of the old "
            "cluster lives or will be started again"
        )
    of_sources = {
        log_dir.meta.directory_id: log_dir.path
        for source in sources
        for log_dir in source.log_dirs
        if log_dir.meta.directory_id is not None
    }
    for broker in brokers:
        for path, directory_id in broker.directory_ids.items():
            if directory_id in of_sources:
                yield (
                    f"{path}: directory.id {directory_id}, as {of_sources[directory_id]} has it: a copied "
                    f"{META_PROPERTIES}; {_FORMAT_FIRST}"
                )


@dataclass(frozen=True, slots=True)
class SpaceForNewLogDirs:
    """The space on a file system with new log dirs.

    Attributes:
        needed: the bytes that copies and the files beside them take there.
        shared: the bytes besides, which copies share with their sources by reflink.
        free: the bytes that an ordinary user may still write.
        files: how many files and directories are made there.
        free_files: how many an ordinary user may still make (inodes); None where a file system has no such number.
    """

    log_dirs: Sequence[Path]
    needed: int
    shared: int
    free: int
    files: int = 0
    free_files: int | None = None

    @property
    def why_not(self) -> str | None:
        """Why the new log dirs cannot take what is restored; None where all fits."""
        if self.free_files is not None and self.files > self.free_files:
            return (
                f"{', '.join(map(str, self.log_dirs))}: what is restored there needs {self.files:,} files and "
                f"directories, and its file system has room for {self.free_files:,} more (df -i): remove files there, "
                "or name log dirs on a file system with more inodes"
            )
        if self.needed <= self.free:
            return None
        return (
            f"{', '.join(map(str, self.log_dirs))}: what is restored there needs {decimal(self.needed)}, and "
            f"{decimal(self.free)} are free: make room, or name log dirs on larger disks"
        )


def space_needed(log_dirs: Iterable[Path], copies: Iterable[tuple[Path, InventoryReplica]]) -> list[SpaceForNewLogDirs]:
    """How much copies need, and how much there is, on the file system of each new log dir that is there.

    Args:
        copies: the new log dir, and what is copied into it.
    """
    by_device: dict[int, list[Path]] = defaultdict(list)
    devices: dict[Path, int] = {}
    for path in log_dirs:
        with contextlib.suppress(OSError):  # it is refused as missing
            devices[path] = path.stat().st_dev
            by_device[devices[path]].append(path)
    needed, shared, files = (dict.fromkeys(by_device, 0) for _ in range(3))
    shares: dict[tuple[Path, Path], bool] = {}
    for path, source in copies:
        if (device := devices.get(path)) is None:
            continue
        block = os.statvfs(path).f_frsize
        logs = [*_copied_log_sizes(source, block)]
        pair = (source.directory.parent, path)
        if pair not in shares:
            # One file tells of all in a log dir: they are on one file system.
            shares[pair] = bool(logs) and can_reflink(source.directory / logs[0][0], path)
        of_logs = sum(size for _, size in logs)
        (shared if shares[pair] else needed)[device] += of_logs
        needed[device] += _side_file_bytes(source, of_logs, len(logs), block)
        files[device] += _FILES_PER_PARTITION + len(logs) * _FILES_PER_LOG
    return [
        SpaceForNewLogDirs(
            paths, needed[device], shared[device], _free_bytes(paths[0]), files[device], _free_files(paths[0])
        )
        for device, paths in by_device.items()
    ]


def disk_sizes(log_dirs: Iterable[Path]) -> dict[Path, float]:
    """The bytes of each log dir's file system, which log dirs on the same one share; 1 of one that is not there."""
    devices, sizes = dict[Path, int](), dict[Path, float]()
    for path in log_dirs:
        sizes[path] = 1.0
        with contextlib.suppress(OSError):  # it is refused as missing
            status = os.statvfs(path)
            sizes[path], devices[path] = float(status.f_blocks * status.f_frsize or 1), path.stat().st_dev
    shared = Counter(devices.values())
    return {path: size / shared.get(devices.get(path, -1), 1) for path, size in sizes.items()}


def _copied_log_sizes(source: InventoryReplica, block: int) -> Iterator[tuple[str, int]]:
    """The name of each log, and the bytes that its copy takes."""
    for segment in source.forecast.simulation.segments:
        if segment.kept_bytes:
            yield segment_file(segment.base_offset, LOG_SUFFIX), -(-segment.kept_bytes // block) * block


def _side_file_bytes(source: InventoryReplica, of_logs: int, logs: int, block: int) -> int:
    """The bytes of index files, snapshots and epochs: as many as there are beside the source's logs, or as there would
    be at Kafka's default interval, whichever is more. The last segment's indexes do not count: a broker that was killed
    leaves them as large as they may become.
    """
    there, last = 0, source.forecast.simulation.segments[-1:]
    passed_over = {segment_file(each.base_offset, suffix) for each in last for suffix in _PREALLOCATED_SUFFIXES}
    with os.scandir(source.directory) as entries:
        for entry in entries:
            if not entry.name.endswith(LOG_SUFFIX) and entry.name not in passed_over:
                there += entry.stat().st_blocks * _STAT_BLOCK_BYTES
    return max(there, int(of_logs * _SIDE_FILE_SHARE) + (logs + 1) * _SIDE_FILES_PER_LOG * block)


def _free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _free_files(path: Path) -> int | None:
    status = os.statvfs(path)
    return status.f_favail if status.f_files else None
