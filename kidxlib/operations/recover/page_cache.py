"""Finds the unflushed segments that need not be read, because all that a broker has written is still there.

A note is made in a log dir when all in it is known to be right. It names the mount and the boot. While both are the
same, the kernel has lost nothing that was written, unless its log or the broker's tells of a write since then that did
not reach a disk.

A broker finishes the indexes of a segment, and takes a snapshot of the producers at its end, before it writes into the
next segment (`LocalLog.roll`, `UnifiedLog.roll`). Into the last segment it may have written batches, and not yet their
index entry, aborted transaction or epoch: so all headers of that segment are read.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.simulation import SegmentRecovery
from kidxlib.errors import (
    CheckpointError,
    CorruptIndexError,
    IndexSizeError,
    LogChangedError,
    MalformedRecordsError,
    SnapshotError,
    UntrustedError,
)
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.records.batch_headers import batches, epochs_of_batches
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.past_end import NOTHING_PAST
from kidxlib.storage.location import DIRECTORY, open_regular_file
from kidxlib.storage.log_bytes import ChunkedLog
from kidxlib.storage.log_dir import read_leader_epochs
from kidxlib.storage.opened_log import open_local_log
from kidxlib.storage.publisher import publish_log_dir_files
from kidxlib.storage.small_files import small_file

#: The name of the note. It does not disturb a broker, which loads only directories (`LogManager.loadLogs`).
NOTE: Final = ".kidx-page-cache"
_NOTE_VERSION: Final = 1

_KERNEL_LOG: Final = "/dev/kmsg"
_MESSAGE_BYTES_MAX: Final = 8192  # CONSOLE_EXT_LOG_MAX

#: The facility of the kernel, and the level of an error, as of syslog(3).
_KERNEL_FACILITY: Final = 0
_ERROR_LEVEL: Final = 3
#: Messages about a process that was killed for lack of memory. That loses no page.
_HARMLESS_MESSAGE: Final = re.compile(r"out of memory: killed process|oom[-_]kill|invoked oom-killer", re.IGNORECASE)
#: Messages that are errors at any level.
_HARMFUL_MESSAGE: Final = re.compile(
    r"i/o error|lost (async|sync|page|write)|data (will|may) be lost|remounting filesystem|shutting down filesystem"
    r"|memory failure|hardware error|medium error|device offline",
    re.IGNORECASE,
)

#: The device that a message of a file system, its journal or the block layer names.
_DEVICE_IN_MESSAGE: Final = re.compile(
    r"^(?:EXT4-fs|XFS|F2FS-fs|EXT2-fs)[^(:]*\((?:device )?([\w-]+)\)"
    r"|^Aborting journal on device ([\w-]+?)(?:-\d+)?\.$|I/O error(?: on|,) dev ([\w-]+),"
)

#: File systems whose pages are the kernel's own, on a device of this host or in its memory. Network, FUSE and overlay
#: file systems are not among them: another machine or process may have what was written, and lose it.
_TRUSTED_FILE_SYSTEMS: Final = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")

#: statx(2): flags and masks of the request, size of the answer, and the position of the mount id in it.
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_MNT_ID: Final = 0x1000
_STATX_MNT_ID_UNIQUE: Final = 0x4000
_STATX_BYTES: Final = 256
_MOUNT_ID_AT: Final = 0x90
_LINUX_NEEDED: Final = "6.8"
_libc: Final = ctypes.CDLL(None, use_errno=True)

#: The first two are of `LogDirFailureChannel` and `UnifiedLog.maybeHandleIOException`, the others of Java and libc.
_WRITE_ERROR: Final = re.compile(
    r"KafkaStorageException|Error while (flushing|writing|appending|rolling|renaming|deleting|truncating|reading)"
    r"|Input/output error|No space left on device|Read-only file system|Structure needs cleaning|Stale file handle"
)

_HEADER_BYTES: Final = layouts.BATCH_V2.itemsize
#: The end of a segment is read in pieces of this size, about as long as the interval between its index entries.
_END_PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """A message of the kernel's log.

    Attributes:
        number: its sequence number, one above that of the message before (`SEQNUM`).
        facility, level: as of syslog(3).
    """

    number: int
    facility: int
    level: int
    text: str


def last_kernel_message_number() -> int:
    """The number of the last message of the kernel's log; −1: there is none."""
    return max((message.number for message in _kernel_messages()), default=-1)


def ensure_no_kernel_errors(
    messages: Sequence[KernelMessage], last: int, devices: frozenset[str] | None = None
) -> None:
    """Raise an error if the kernel reported one on these block devices (None: any) after the message number `last`."""
    numbers = [message.number for message in messages]
    if min(numbers, default=last) > last + 1 or max(numbers, default=-1) < last:
        raise UntrustedError(
            f"the kernel's log has messages {min(numbers, default=0)} to {max(numbers, default=-1)}, expected all from "
            f"{last} on: whether there were errors is not known"
        )
    for message in messages:
        if message.number > last and _is_kernel_error(message) and not _is_about_other_device(message, devices):
            raise UntrustedError(f"the kernel's log has an error: {message.text}")


def parse_message(line: bytes) -> KernelMessage:
    """A message as `/dev/kmsg` gives it: `<priority>,<number>,<microseconds>,<flags>[,…];<text>`."""
    fields, _, rest = line.decode(errors="replace").partition(";")
    priority, number = map(int, fields.split(",")[:2])
    return KernelMessage(number, priority >> 3, priority & 7, rest.split("\n", 1)[0])


def _is_kernel_error(message: KernelMessage) -> bool:
    if message.facility != _KERNEL_FACILITY or _HARMLESS_MESSAGE.search(message.text):
        return False
    return message.level <= _ERROR_LEVEL or _HARMFUL_MESSAGE.search(message.text) is not None


def _is_about_other_device(message: KernelMessage, devices: frozenset[str] | None) -> bool:
    """Whether a message names another block device than these. A message that names no device may be about any."""
    match = _DEVICE_IN_MESSAGE.search(message.text)
    return devices is not None and match is not None and match[match.lastindex or 0] not in devices


def _kernel_messages() -> Iterator[KernelMessage]:
    try:
        device = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                yield parse_message(os.read(device, _MESSAGE_BYTES_MAX))
        finally:
            os.close(device)
    except OSError as error:
        if error.errno != errno.EAGAIN:  # EAGAIN is the end of the log
            raise UntrustedError(
                f"{_KERNEL_LOG}: the kernel's log cannot be read ({error.strerror}), so whether there were errors is "
                "not known: it takes root, or CAP_SYSLOG"
            ) from error


def mount_of(directory: Path) -> dict[str, object]:
    """Where a directory is, as a note has it (`_DIFFERENCES`). The id of a mount is unique in this boot, and a file
    system that is mounted again gets another: while it is the same, the file system has stayed mounted. `directory` has
    the device and the inode of the directory itself.
    """
    try:
        boot_id = _BOOT_ID.read_text().strip()
        file_system = _file_system_type(_statx_mount_id(directory, _STATX_MNT_ID))
        status = directory.stat()
    except OSError as error:
        raise UntrustedError(f"{directory}: the kernel does not tell on which mount it is: {error.strerror}") from error
    if file_system not in _TRUSTED_FILE_SYSTEMS:
        raise UntrustedError(
            f"{directory}: on {file_system or 'an unknown file system'}; expected one of "
            f"{', '.join(_TRUSTED_FILE_SYSTEMS)}: of others it is not known where their pages are"
        )
    return {
        "boot_id": boot_id,
        "mount_id": _mount_id_of(directory),
        "file_system": file_system,
        "directory": [status.st_dev, status.st_ino],
    }


def _devices_of(directory: Path) -> frozenset[str] | None:
    """The kernel's names of the block device on which a directory is, and of its disk. None if other devices are below
    it (LVM, RAID, encryption), or it has no name.
    """
    device = directory.stat().st_dev
    link = Path("/sys/dev/block") / f"{os.major(device)}:{os.minor(device)}"
    if not link.exists():
        return None
    entry = link.resolve()
    names = {entry.name, entry.parent.name} if (entry / "partition").exists() else {entry.name}
    slaves = [entry / "slaves", entry.parent / "slaves"][: len(names)]
    return None if any(slave.is_dir() and os.listdir(slave) for slave in slaves) else frozenset(names)


def _mount_id_of(path: Path) -> int:
    """The unique id of the mount on which a file or a directory is; a symbolic link is not followed."""
    try:
        return _statx_mount_id(path, _STATX_MNT_ID_UNIQUE)
    except OSError as error:
        raise UntrustedError(
            f"{path}: no unique mount id (statx: {error.strerror}): needs Linux {_LINUX_NEEDED}"
        ) from error


def _statx_mount_id(path: Path, mask: int) -> int:
    """Ask statx(2) for one of the two ids of a mount, by its mask."""
    if not hasattr(_libc, "statx"):
        raise OSError(0, "not offered by this C library")
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, mask, answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    [answered_mask] = struct.unpack_from("=I", answer)
    if not answered_mask & mask:
        raise OSError(0, "not answered by this kernel")
    [mount_id] = struct.unpack_from("=Q", answer, _MOUNT_ID_AT)
    return int(mount_id)


def _file_system_type(mount_id: int) -> str | None:
    """The type of the file system of a mount, by its id in `/proc/self/mountinfo`; None if it is not there."""
    for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
        mount, _, file_system = line.partition(" - ")
        if mount.split(" ", 1)[0] == str(mount_id):
            return file_system.split(" ", 1)[0]
    return None


def note_page_cache(log_dirs: Sequence[Path]) -> None:
    """Note in each log dir that all in it is right and flushed. The caller has seen to that, and holds the locks."""
    last_number = last_kernel_message_number()
    for log_dir in log_dirs:
        content = json.dumps({"version": _NOTE_VERSION, **mount_of(log_dir), "kernel_log": last_number}, indent=2)
        publish_log_dir_files({log_dir: {NOTE: f"{content}\n".encode()}})


#: What it means that a field of the note has another value now.
_DIFFERENCES: Final = {
    "boot_id": "the host has started again since",
    "mount_id": "the file system was mounted again since, or is seen through another mount, as in another container",
    "file_system": "another file system",
    "directory": "the directory is a copy of the one that it was made for",
}


def ensure_page_cache_kept(log_dir: Path) -> None:
    """Raise an error unless the kernel has all that was written into a log dir since its note, on the disk or not."""
    note = log_dir / NOTE
    try:
        noted = json.loads(small_file(note))
        version, last_number = noted["version"], int(noted["kernel_log"])
    except FileNotFoundError as error:
        raise UntrustedError(
            f"{note}: missing; it is made where --apply comes to its end, before the broker starts"
        ) from error
    except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise UntrustedError(f"{note}: not readable: {error}") from error
    if version != _NOTE_VERSION:
        raise UntrustedError(f"{note}: version {version}, expected {_NOTE_VERSION}")
    now = mount_of(log_dir)
    for name, meaning in _DIFFERENCES.items():
        if noted.get(name) != now[name]:
            raise UntrustedError(f"{note}: {meaning} (noted {noted.get(name)}, found {now[name]})")
    devices = _devices_of(log_dir)
    ensure_no_kernel_errors(list(_kernel_messages()), last_number, devices)


def ensure_no_errors_in(broker_log: Path) -> None:
    """Refuse to trust the page cache if the broker's own log has an error of a disk."""
    try:
        with broker_log.open(errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if _WRITE_ERROR.search(line):
                    raise UntrustedError(f"{broker_log}: line {number}: {line.strip()}")
    except OSError as error:
        raise UntrustedError(f"{broker_log}: not readable: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class HeadersRead:
    """The unflushed segments of a partition, by their headers.

    Attributes:
        kept: base offsets of the segments that are whole, with all their side files. Only their ends were read.
        bytes_read: how many bytes of logs were read.
    """

    kept: frozenset[int] = frozenset()
    bytes_read: int = 0


def read_cached_headers(
    directory: Path, recovery_point: int, options: RecoverOptions, reader: LogReader
) -> HeadersRead | None:
    """Read only the headers of a partition's unflushed logs, as the page cache is trusted (`ensure_page_cache_kept`).

    `options` must be without checksums. `reader` gets the result of recovering each segment. Return None if a log is
    not on the file system of its log dir.
    """
    base_offsets = sorted(offset for name in os.listdir(directory) if (offset := parse_segment_log(name)) is not None)
    unflushed = base_offsets[max(bisect_right(base_offsets, recovery_point) - 1, 0) :]
    mount_id = _mount_id_of(directory.parent)
    logs = [directory / segment_file(base_offset, LOG_SUFFIX) for base_offset in unflushed]
    if any(path.is_symlink() or _mount_id_of(path) != mount_id for path in (directory, *logs)):
        return None
    kept = _whole_segments_before_last(directory, unflushed)
    reader.recoveries.update({base_offset: end.recovery for base_offset, end in kept.items()})
    reader.end_epochs.update({base_offset: end.epochs for base_offset, end in kept.items()})
    bytes_read = sum(end.bytes_read for end in kept.values())
    for base_offset, path in zip(unflushed, logs, strict=True):
        if base_offset not in kept:
            recovery = reader.read(str(path), path.stat().st_size, base_offset, options)
            bytes_read += recovery.batches * _HEADER_BYTES
    return HeadersRead(frozenset(kept), bytes_read)


@dataclass(frozen=True, slots=True)
class _SegmentEnd:
    """The end of a segment, from its last index entry on.

    Attributes:
        last_epoch: the leader epoch of the last batch.
        epochs: the leader epochs of the first batch and of the batches at the end.
    """

    recovery: SegmentRecovery
    bytes_read: int
    last_epoch: int
    epochs: tuple[EpochEntry, ...]


def _whole_segments_before_last(directory: Path, unflushed: Sequence[int]) -> dict[int, _SegmentEnd]:
    """The ends of the segments before the last one; of none, unless all are whole, no epoch is missing, and the last
    segment has a snapshot.
    """
    if len(unflushed) < 2 or not is_sound_snapshot(directory / segment_file(unflushed[-1], SNAPSHOT_SUFFIX)):
        return {}
    ends: dict[int, _SegmentEnd] = {}
    try:
        descriptor = os.open(directory, DIRECTORY)
    except OSError:
        return {}
    try:
        epochs = read_leader_epochs(directory)
        known_epoch = -1 if epochs is None or epochs.last is None else epochs.last.epoch
        for base_offset, next_base_offset in itertools.pairwise(unflushed):
            end = _closed_segment_end(descriptor, base_offset)
            if end is None or end.recovery.next_offset != next_base_offset or end.last_epoch > known_epoch:
                return {}
            ends[base_offset] = end
    except (CheckpointError, CorruptIndexError, IndexSizeError, MalformedRecordsError, LogChangedError, OSError):
        return {}  # whatever is wrong, all headers are read instead
    finally:
        os.close(descriptor)
    return ends


def _closed_segment_end(directory: int, base_offset: int) -> _SegmentEnd | None:
    """The end of a segment whose indexes are closed and reach the end of its log; None for any other segment."""
    offset_entries, time_entries = (
        _first_and_last_entry(directory, segment_file(base_offset, suffix), entry.itemsize)
        for suffix, entry in (
            (OFFSET_INDEX_SUFFIX, layouts.OFFSET_INDEX_ENTRY),
            (TIME_INDEX_SUFFIX, layouts.TIME_INDEX_ENTRY),
        )
    )
    offset_index = OffsetIndex.from_bytes(offset_entries, base_offset)
    time_index = TimeIndex.from_bytes(time_entries, base_offset)
    offset_index.sanity_check()
    time_index.sanity_check()
    last_entry, last_time = offset_index.last_entry, time_index.last_entry
    if (len(offset_index) and not last_entry.position) or last_time.timestamp <= 0:
        return None  # zeros at the end: the index was not closed
    with open_local_log(segment_file(base_offset, LOG_SUFFIX), directory) as (descriptor, version):
        log = ChunkedLog(descriptor, version.size, _END_PIECE_BYTES)
        last_batches = list(batches(log, last_entry.position))
        first_batch = list(itertools.islice(batches(log), 1 if last_entry.position else 0))
    size = log.size
    if (
        not last_batches
        or last_batches[-1].next_position != size
        or (len(offset_index) and last_batches[0].last_offset != last_entry.offset)
    ):
        return None
    if (
        max(batch.max_timestamp for batch in last_batches) > last_time.timestamp
        or last_time.offset > last_batches[-1].last_offset
    ):
        return None
    next_offset = last_batches[-1].last_offset + 1
    recovery = SegmentRecovery(
        log_bytes=size,
        end=ScanEnd(Status.OK, None, size, None),
        next_offset=next_offset,
        map_end_offset=next_offset,
        batches=len(last_batches),
        records=0,
        past=NOTHING_PAST,
    )
    read = [*first_batch, *last_batches]
    return _SegmentEnd(
        recovery, len(read) * _HEADER_BYTES, last_batches[-1].partition_leader_epoch, epochs_of_batches(read)
    )


def _first_and_last_entry(directory: int, name: str, entry_bytes: int) -> bytes:
    """The first entry of an index file, and the last one with any bytes after it. A broker checks no others."""
    descriptor, status = open_regular_file(name, directory)
    try:
        size = status.st_size
        if size <= 2 * entry_bytes:
            return os.pread(descriptor, size, 0)
        tail_bytes = entry_bytes + size % entry_bytes
        return os.pread(descriptor, entry_bytes, 0) + os.pread(descriptor, tail_bytes, size - tail_bytes)
    finally:
        os.close(descriptor)


def is_sound_snapshot(path: Path) -> bool:
    """Whether a producer snapshot is there and whole, so that segments before it need not be read."""
    try:
        with path.open("rb") as file:
            read_snapshot(file.read(SNAPSHOT_BYTES_MAX))
    except (OSError, SnapshotError):
        return False
    return True
