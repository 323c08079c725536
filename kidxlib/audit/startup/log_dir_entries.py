"""What keeps a broker from starting with a log dir before it reads a log: names in the log dir, and owners of its
files.

Names are parsed as Kafka parses them (`LocalLog.parseTopicPartitionName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.audit.startup.partition_files import failures_in_directory
from kidxlib.audit.startup.permissions import obstacles_of_permissions
from kidxlib.format import topic_partition
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.location import Location, is_directory


def obstacles_in_log_dir(log_dir: Location) -> Iterator[Obstacle]:
    """What is wrong with a log dir's directories: names that are no partition's, or repeat a partition; files that are
    not the broker's; and the contents of directories that Kafka moves or deletes.

    A broker loads the last as it loads partitions (`LogManager.loadLog`); their logs are not looked at here.
    """
    served: dict[TopicPartition, Location] = {}
    directories = directories_in(log_dir)
    for directory in directories:
        partition = topic_partition.loaded_as(directory.name)
        if directory.name == topic_partition.REMOTE_INDEX_CACHE:
            continue
        if partition is None:
            if directory.name == CLEAN_SHUTDOWN_FILE:  # removed before the others are listed, whatever it is
                continue
            yield Obstacle(
                directory,
                "a directory whose name is not <topic>-<partition>",
                Effect.ENDS,
                "a broker does not start beside it, with any of its log dirs",
                "move it out of the log dir; where that is a mount point, let log.dirs name a directory below it",
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
        yield from obstacles_of_permissions(log_dir, directories)


def directories_in(log_dir: Location) -> list[Location]:
    """All of a log dir's directories, by name."""
    return sorted(_directories_in(log_dir), key=str)


def _directories_in(log_dir: Location) -> Iterator[Location]:
    if not isinstance(log_dir, Path):
        yield from (path for path in log_dir.iterdir() if path.listed is None)
        return
    with os.scandir(log_dir) as entries:
        yield from (Path(entry.path) for entry in entries if is_directory(entry))
