"""What keeps a broker from starting with a log dir before it reads a log: names in the log dir, and files and
directories that the owner of the log dir, as whom a broker runs, may not use.

Names are parsed as Kafka parses them (`LocalLog.parseTopicPartitionName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.checkpoints import failures_in_directory
from kidxlib.audit.startup.obstacles import Effect, Obstacle, Thrown
from kidxlib.format import segment_files, topic_partition
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Location, is_directory
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.small_files import CLEAN_SHUTDOWN_FILE

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
        refused = sorted(_inaccessible(Path(str(directory)), user, is_log_dir=directory is log_dir))
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


def _inaccessible(directory: Path, user: _User, *, is_log_dir: bool) -> Iterator[tuple[str, os.stat_result, str]]:
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
