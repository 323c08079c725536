"""Folders of a log dir that Kafka moves, deletes or has set aside: how much they hold, and what becomes of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.filesize import decimal

from kidxlib.audit.startup.against_metadata import log_bytes
from kidxlib.audit.startup.log_dir_entries import directories_in
from kidxlib.format import topic_partition
from kidxlib.storage.location import Location
from kidxlib.text.words import counted

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
