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

#: What a broker that starts does with them, by the end of their names (`LogManager.loadLog`).
BECOMES: Final = {
    "-delete": "a broker deletes it a minute after its start (file.delete.delay.ms), also where it is the only copy of "
    "the partition: rename it then",
    "-stray": "a broker loads it at each start, and serves nothing of it; nobody but you deletes it. To read "
    "its records, copy it to a directory called <topic>-<partition>",
    "-future": "a broker goes on copying the partition to it, and takes it in the partition's place once it has all; "
    "where that partition is missing a line of its own says what becomes of it",
}


@dataclass(frozen=True, slots=True)
class Aside:
    """One such folder.

    Attributes:
        kind: one of `BECOMES`.
        bytes: of its logs. Its indexes may be preallocated, and take no room.
    """

    path: Location
    kind: str
    bytes: int


def folders_aside(log_dirs: Iterable[Location]) -> list[Aside]:
    """List such folders of some log dirs. One that cannot be read has 0 bytes: its failure is reported elsewhere."""
    return [
        Aside(directory, f"-{directory.name.rpartition('-')[2]}", log_bytes(directory))
        for log_dir in log_dirs
        for directory in directories_in(log_dir)
        if topic_partition.is_moved(directory.name) and topic_partition.loaded_as(directory.name) is not None
    ]


def by_kind(folders: Iterable[Aside]) -> dict[str, list[Aside]]:
    """Folders of each kind, the largest first."""
    found = defaultdict(list)
    for folder in sorted(folders, key=lambda each: (-each.bytes, str(each.path))):
        found[folder.kind].append(folder)
    return found


def lines_of(folders: Iterable[Aside]) -> Iterator[str]:
    """How many there are of each kind, how much they hold, and what becomes of them."""
    for kind, found in by_kind(folders).items():
        size = decimal(sum(each.bytes for each in found))
        yield f"{kind}: {counted(len(found), 'folder')}, {size} of logs, the largest {found[0].path}: {BECOMES[kind]}"
