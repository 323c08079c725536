"""What a Kafka log dir says about its partitions besides their segments, and how to be a guest in one.

Sources: `CheckpointFile`, `PartitionMetadataFile`, `CleanShutdownFileHandler`, `LogManager.lockLogDirs`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from kidxlib import names
from kidxlib.epochs import EpochEntry, LeaderEpochs
from kidxlib.errors import KidxError, UsageError
from kidxlib.names import TopicPartition
from kidxlib.objects import Location, ObjectPath

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"

#: As `FileLock` makes it, with the umask that brokers have.
_LOCK_MODE: Final = 0o644

#: File systems on which a lock of one machine says nothing to another.
_REMOTE_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "fuse.")


_Entry = TypeVar("_Entry")


class CheckpointError(KidxError):
    """A checkpoint or metadata file of a broker does not read as one."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the files of one log dir say; each is None where its file is absent, and may lack partitions.

    Attributes:
        recovery_points: everything below was flushed; a broker recovers from there after an unclean stop.
        log_start_offsets: written only for partitions whose log starts above their first segment's base.
        high_watermarks: as the broker last wrote them.
        cleaner_offsets: up to where the cleaner has compacted.
        clean_shutdown: the broker stopped cleanly and has not started since.
    """

    recovery_points: dict[TopicPartition, int] | None
    log_start_offsets: dict[TopicPartition, int] | None
    high_watermarks: dict[TopicPartition, int] | None
    cleaner_offsets: dict[TopicPartition, int] | None
    clean_shutdown: bool


def read_checkpoints(log_dir: Location) -> Checkpoints:
    """Read the checkpoint files of a log dir.

    Raises:
        CheckpointError: one is malformed.
        OSError: one cannot be read.
    """
    return Checkpoints(
        recovery_points=read_offset_checkpoint(log_dir / names.RECOVERY_POINT_CHECKPOINT),
        log_start_offsets=read_offset_checkpoint(log_dir / names.LOG_START_OFFSET_CHECKPOINT),
        high_watermarks=read_offset_checkpoint(log_dir / names.HIGH_WATERMARK_CHECKPOINT),
        cleaner_offsets=read_offset_checkpoint(log_dir / names.CLEANER_CHECKPOINT),
        clean_shutdown=(log_dir / CLEAN_SHUTDOWN_FILE).exists(),
    )


def read_offset_checkpoint(path: Location) -> dict[TopicPartition, int] | None:
    """The offsets by partition of an offset checkpoint (version 0); None where the file is absent.

    Raises:
        CheckpointError: a line is not what `OffsetCheckpointFile` writes, or their number is not what line 2 says.
        OSError: it cannot be read.
    """

    def entry(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = line.split()
        return TopicPartition(topic, int(partition)), int(offset)

    entries = _read_checkpoint(path, entry, "<topic> <partition> <offset>")
    return None if entries is None else dict(entries)


def read_leader_epochs(partition_folder: Location) -> LeaderEpochs | None:
    """What a partition's `leader-epoch-checkpoint` (version 0) says; None where the file is absent.

    Raises:
        CheckpointError: a line is not what `LeaderEpochCheckpointFile` writes, or their number is not what line 2 says.
        OSError: it cannot be read.
    """
    entries = read_epoch_entries(partition_folder / names.LEADER_EPOCH_CHECKPOINT)
    return None if entries is None else LeaderEpochs(entries)


def read_epoch_entries(path: Location) -> list[EpochEntry] | None:
    """The entries of a `leader-epoch-checkpoint` as they stand there, and errors as `read_leader_epochs`."""

    def entry(line: str) -> EpochEntry:
        epoch, start_offset = map(int, line.split())
        if epoch < 0 or start_offset < 0:
            raise ValueError
        return EpochEntry(epoch, start_offset)

    return _read_checkpoint(path, entry, "<epoch> <start offset>")


def _read_checkpoint(path: Location, entry: Callable[[str], _Entry], expected: str) -> list[_Entry] | None:
    """The entries of a checkpoint file (`CheckpointFile`); None where it is absent.

    Args:
        entry: what a line says; ValueError where that is nothing.
    """
    try:
        lines = _lines(path)
    except FileNotFoundError:
        return None
    if not lines:
        return []
    if lines[0] != "0":
        raise CheckpointError(f"{path}: line 1: version {lines[0]!r}, expected 0")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(entry(line))
        except ValueError as error:
            raise CheckpointError(f"{path}: line {number}: {line!r}, expected {expected}") from error
    if len(lines) < 2 or lines[1] != str(len(entries)):
        announced = lines[1] if len(lines) > 1 else "no"
        raise CheckpointError(f"{path}: line 2: {announced} entries announced, {len(entries)} found")
    return entries


def read_topic_id(partition_folder: Location) -> str | None:
    """The topic id in a partition's `partition.metadata`; None where the file is absent.

    Raises:
        CheckpointError: it holds no topic id.
        OSError: it cannot be read.
    """
    path = partition_folder / PARTITION_METADATA
    try:
        lines = _lines(path)
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "topic_id" not in fields:
        raise CheckpointError(f"{path}: no line 'topic_id: …' in it, expected 'version: 0' and 'topic_id: <id>'")
    return fields["topic_id"]


def _lines(path: Location) -> list[str]:
    return small_file(path).decode(errors="replace").splitlines()


def small_file(path: Location) -> bytes:
    """The content of a small regular file or object; never waits on a pipe.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    if isinstance(path, ObjectPath):
        return path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with open(descriptor, "rb") as file:
        return file.read()


@contextlib.contextmanager
def locked(log_dir: Path) -> Iterator[None]:
    """Hold the lock that a broker takes on its log dir, so that neither works beside the other.

    The lock file is made if it is missing and stays, as a broker leaves it. It belongs to the log dir's owner then:
    a broker that may not open it does not start.

    Raises:
        UsageError: another process holds the lock, the folder cannot be written, it is not on a local file system, or
            a new file cannot be given to whom the log dir belongs.
    """
    file_system = _file_system(log_dir)
    if file_system.startswith(_REMOTE_FILE_SYSTEMS):
        raise UsageError(
            f"{log_dir}: on a {file_system} file system, where a lock does not keep a broker on another machine out; "
            "write to an --index-dir instead"
        )
    path = log_dir / LOCK_FILE
    try:
        descriptor, is_new = _open_lock(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be locked: {error.strerror}") from error
    try:
        is_held = _is_held_by_another(descriptor)
        if is_new:  # by another run that was faster, it may be held even then
            _give_to_owner(descriptor, path, may_remove=not is_held)
        if is_held:
            raise UsageError(f"{path}: held by another process; stop the broker that uses {log_dir} first")
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> tuple[int, bool]:
    """A descriptor of the lock file, and whether it was made for it. One that is there is never changed."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, _LOCK_MODE), True
        with contextlib.suppress(FileNotFoundError):  # another run that could not give it away has removed it
            return os.open(path, flags), False


def _is_held_by_another(descriptor: int) -> bool:
    """Whether another process holds the lock; else it is ours now."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _give_to_owner(descriptor: int, path: Path, *, may_remove: bool) -> None:
    """Give a lock file that was just made the owner, group and mode that its broker would have given it.

    Until then a broker does not start in any case, as the lock is held.
    """
    whom = "its owner"
    try:
        owner = _owner(path.parent)
        whom = f"user {owner.st_uid}"
        os.fchmod(descriptor, _LOCK_MODE)  # whatever the umask
        if owner.st_uid != os.fstat(descriptor).st_uid:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except OSError as error:
        if may_remove:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise UsageError(
            f"{path}: cannot be given to {whom}, to whom the log dir belongs, so that its broker can lock "
            f"it: {error.strerror}; run it as that user, or as root"
        ) from error


def _owner(log_dir: Path) -> os.stat_result:
    """Whose a log dir is. A mount point may be root's; then it is whose things lie in it."""
    status = os.stat(log_dir)
    if status.st_uid == 0:
        with os.scandir(log_dir) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
                    if (inside := entry.stat(follow_symlinks=False)).st_uid != 0:
                        return inside
    return status


def why_not_to_build_in(folder: Path) -> str | None:
    """Why nothing of ours may be made in a folder: it is a log dir, or index files are in it. None where it is neither.

    Beside a folder that is no partition's a broker does not start (`LogManager.loadLogs`,
    `UnifiedLog.parseTopicPartitionName`).
    """
    if is_brokers(folder):
        return f"{folder} is a broker's log dir: it holds {META_PROPERTIES}"
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.parse_partition_folder(entry.name) is not None and _holds_segment_files(entry.path):
                return f"{folder} holds segments or index files, in {entry.name}"
    if names.parse_partition_folder(folder.name) is not None and _holds_segment_files(folder):
        return f"{folder} is a partition's folder"
    return None


def is_brokers(folder: Path) -> bool:
    """Whether a folder is the log dir of a broker, which writes that file before anything else."""
    return os.path.lexists(folder / META_PROPERTIES)


def _holds_segment_files(folder: str | Path) -> bool:
    try:
        return any(names.parse_segment_file(name) is not None for name in os.listdir(folder))
    except OSError:
        return False


def _file_system(path: Path) -> str:
    """The type of the file system that holds `path`; empty where this system does not say."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        device = os.stat(path).st_dev
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounts:
        fields = mount.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return ""
