"""The names in a log dir. Some keep a broker from starting with it before it reads a log, as do files and directories
that the owner of the log dir, as whom a broker runs, may not use. Others are folders that Kafka moves, deletes or has
set aside (`folders_aside`).

Names are parsed as Kafka parses them (`LocalLog.parseTopicPartitionName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from kidxlib.audit.startup.against_metadata import log_bytes
from kidxlib.audit.startup.checkpoints import failures_in_directory
from kidxlib.audit.startup.obstacles import Effect, Obstacle, Thrown
from kidxlib.format import segment_files, topic_partition
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Location, is_directory
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.text.words import counted

#: Files that a broker opens for reading and writing.
_WRITTEN: Final = (
    segment_files.LOG_SUFFIX,
    segment_files.OFFSET_INDEX_SUFFIX,
    segment_files.TIME_INDEX_SUFFIX,
    segment_files.TRANSACTION_INDEX_SUFFIX,
    LOCK_FILE,
)
_READ, _WRITE, _ENTER = 4, 2, 1


def _obstacles_of_permissions(log_dir: Path, directories: Iterable[Location]) -> Iterator[Obstacle]:
    """The files and directories that the owner of a log dir may not use. A broker runs as that user."""
    status = log_dir.stat()
    if status.st_uid == 0:
        return
    user = _User.of(status)
    if not user.may(status, _READ | _WRITE | _ENTER):
        found = f"mode {stat.S_IMODE(status.st_mode):03o}, expected rwx for its owner"
        yield Obstacle(log_dir, found, Effect.LOG_DIR, str(Thrown.IO), "give its owner these rights (chmod)")
    for directory in (log_dir, *directories):
        refused = sorted(_inaccessible_entries(Path(str(directory)), user, is_log_dir=directory is log_dir))
        if refused:
            name, found_there, needed = refused[0]
            more = f" ({len(refused) - 1} more there)" if len(refused) > 1 else ""
            yield Obstacle(
                directory / name,
                f"of user {found_there.st_uid}, group {found_there.st_gid}, mode "
                f"{stat.S_IMODE(found_there.st_mode):03o}{more}; the log dir's owner, user {user.uid}, needs {needed}",
                Effect.LOG_DIR,
                str(Thrown.IO),
                "give the files to that user (chown)",
            )


@dataclass(frozen=True, slots=True)
class _User:
    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, status: os.stat_result) -> _User:
        """The user who has a file. If the machine does not know the user's groups, the file's group alone counts."""
        try:
            import pwd  # here, as not each system has it that index files are audited on

            name = pwd.getpwuid(status.st_uid).pw_name
        except (ImportError, KeyError):
            return cls(status.st_uid, frozenset({status.st_gid}))
        return cls(status.st_uid, frozenset(os.getgrouplist(name, status.st_gid)))

    def may(self, status: os.stat_result, bits: int) -> bool:
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.groups else 0
        return status.st_mode >> shift & bits == bits


def _inaccessible_entries(
    directory: Path, user: _User, *, is_log_dir: bool
) -> Iterator[tuple[str, os.stat_result, str]]:
    """What a user may not use in a directory: name, status, and the rights that are needed."""
    try:
        entries = list(os.scandir(directory))
    except OSError:  # reported with its partition
        return
    for entry in entries:
        try:
            status = entry.stat()
        except OSError:
            continue
        if entry.is_dir():
            bits, needed = (_READ | _WRITE | _ENTER if is_log_dir else 0), "rwx"
        elif entry.name.endswith(_WRITTEN):
            bits, needed = _READ | _WRITE, "rw"
        else:
            bits, needed = _READ, "r"
        if not user.may(status, bits) and not _has_access_list(entry.path):
            yield entry.name, status, needed


def _has_access_list(path: str) -> bool:
    if not hasattr(os, "listxattr"):
        return False
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False


def obstacles_in_log_dir(log_dir: Location) -> Iterator[Obstacle]:
    """What is wrong with a log dir's directories: names that are no partition's, or repeat a partition; files that are
    not the broker's; and the contents of directories that Kafka moves or deletes. A broker loads these as it loads
    partitions (`LogManager.loadLog`); their logs are not looked at here.
    """
    served: dict[TopicPartition, Location] = {}
    directories = directories_in(log_dir)
    for directory in directories:
        partition = topic_partition.loaded_as(directory.name)
        if partition is None:
            # A broker passes by the one, and removes the other before it lists the rest, whatever it is.
            if directory.name in (topic_partition.REMOTE_INDEX_CACHE, CLEAN_SHUTDOWN_FILE):
                continue
            yield Obstacle(
                directory,
                "a directory whose name is not <topic>-<partition>",
                Effect.ENDS,
                "a broker does not start beside it, with any of its log dirs",
                "move it out of the log dir, or give it its name again; where that is a mount point, "
                "let log.dirs name a directory below it",
            )
            continue
        if partition.topic == topic_partition.METADATA_TOPIC:
            continue
        if topic_partition.parse_partition_directory(directory.name) is None:
            yield from failures_in_directory(directory)
        if (
            not topic_partition.is_moved(directory.name)
            and (other := served.setdefault(partition, directory)) is not directory
        ):
            yield Obstacle(
                directory,
                f"to a broker it is {partition.directory}, as {other} is",
                Effect.ENDS,
                "it does not start with both",
                "look which of them is whole, and move the other one out of the log dir",
            )
    if isinstance(log_dir, Path):
        yield from _obstacles_of_permissions(log_dir, directories)


def directories_in(log_dir: Location) -> list[Location]:
    """All of a log dir's directories, by name."""
    if not isinstance(log_dir, Path):
        return sorted((path for path in log_dir.iterdir() if path.listed is None), key=str)
    with os.scandir(log_dir) as entries:
        return sorted((Path(entry.path) for entry in entries if is_directory(entry)), key=str)


#: What a starting broker does with such a folder, by the end of its name (`LogManager.loadLog`).
BECOMES: Final = {
    "-delete": "a broker deletes it a minute after its start (file.delete.delay.ms), also where it is the only copy of "
    "the partition: rename it then",
    "-stray": "a broker loads it at each start, and serves nothing of it; nobody but you deletes it. To read "
    "its records, copy it to a directory called <topic>-<partition>",
    "-future": "a broker goes on copying the partition to it, and takes it in the partition's place once it has all; "
    "where that partition is missing, a start takes it for the partition if the cluster's metadata has that in this "
    "log dir; of a partition or records that are lost a line of its own tells",
}


@dataclass(frozen=True, slots=True)
class Aside:
    """A folder that Kafka moves, deletes or has set aside.

    Attributes:
        kind: the end of its name, a key of `BECOMES`.
        bytes: the size of its logs. Indexes are not counted: they may be preallocated, and take no room then.
    """

    path: Location
    kind: str
    bytes: int


def folders_aside(log_dirs: Iterable[Location]) -> list[Aside]:
    """A folder that cannot be read has 0 bytes; its failure is reported elsewhere."""
    return [
        Aside(directory, f"-{directory.name.rpartition('-')[2]}", log_bytes(directory))
        for log_dir in log_dirs
        for directory in directories_in(log_dir)
        if topic_partition.is_moved(directory.name) and topic_partition.loaded_as(directory.name) is not None
    ]


def lines_of_folders_aside(folders: Iterable[Aside]) -> Iterator[str]:
    """A line for each kind of folders."""
    kinds = defaultdict(list)
    for folder in sorted(folders, key=lambda folder: (-folder.bytes, str(folder.path))):
        kinds[folder.kind].append(folder)
    for kind, group in kinds.items():
        size = decimal(sum(folder.bytes for folder in group))
        number = counted(len(group), "directory", "directories")
        yield f"{kind}: {number}, {size} of logs, the largest {group[0].path}: {BECOMES[kind]}"
