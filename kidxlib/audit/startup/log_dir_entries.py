"""What keeps a broker from starting with a log dir before it reads a log: names in the log dir, and owners of its
files.

Names are parsed as Kafka parses them (`LocalLog.parseTopicPartitionName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kidxlib.audit.startup.partition_files import failures_in_directory
from kidxlib.audit.startup.permissions import failures_of_permissions
from kidxlib.audit.startup.topic_ids import failures_of_topic_ids, is_of_kraft
from kidxlib.format import topic_partition
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Location, is_directory


def failures_in_log_dir(log_dir: Location) -> Iterator[str]:
    """The failures in a log dir's directories: names that are no partition's, or repeat a partition; partitions whose
    topic ids do not fit; files that are not the broker's; and the contents of directories that Kafka moves or deletes.

    A broker loads the last as it loads partitions (`LogManager.loadLog`); their logs are not looked at here.
    """
    served: dict[TopicPartition, Location] = {}
    directories = sorted(_directories_in(log_dir), key=str)
    for directory in directories:
        partition = topic_partition.loaded_as(directory.name)
        if directory.name == topic_partition.REMOTE_INDEX_CACHE:
            continue
        if partition is None:
            yield (
                f"{directory}: a directory whose name is not <topic>-<partition>; a broker does not start beside "
                "it, with any of its log dirs"
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
            yield f"{directory}: to a broker it is {partition.directory}, as {other} is; it does not start with both"
    yield from failures_of_topic_ids(served, is_kraft=is_of_kraft(log_dir))
    if isinstance(log_dir, Path):
        yield from failures_of_permissions(log_dir, directories)


def _directories_in(log_dir: Location) -> Iterator[Location]:
    if not isinstance(log_dir, Path):
        yield from (path for path in log_dir.iterdir() if path.listed is None)
        return
    with os.scandir(log_dir) as entries:
        yield from (Path(entry.path) for entry in entries if is_directory(entry))
