"""Whether what is restored fits onto the new disks."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.operations.restore.inventory import OldReplica
from kidxlib.storage.file_copy import can_reflink

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


@dataclass(frozen=True, slots=True)
class FileSystemSpace:
    """A file system with new log dirs.

    Attributes:
        log_dirs: those that are on it.
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
        """Why nothing is restored into it; None where all fits."""
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


def space_of(log_dirs: Iterable[Path], copies: Iterable[tuple[Path, OldReplica]]) -> list[FileSystemSpace]:
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
        FileSystemSpace(
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


def _copied_log_sizes(source: OldReplica, block: int) -> Iterator[tuple[str, int]]:
    """The name of each log, and the bytes that its copy takes."""
    for segment in source.forecast.simulation.segments:
        if segment.kept_bytes:
            yield segment_file(segment.base_offset, LOG_SUFFIX), -(-segment.kept_bytes // block) * block


def _side_file_bytes(source: OldReplica, of_logs: int, logs: int, block: int) -> int:
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
