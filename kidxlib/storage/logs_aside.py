"""Logs aside: files that no broker loads as a partition's logs because of their names or places, and that begin with
offsets which none of the partition's logs has. They may be all that is left of these offsets.

A broker that starts removes `.deleted` and `.cleaned`, and each `.swap` from the first `.cleaned` on. It puts any other
`.swap` in place (`LogLoader.removeTempFilesAndCollectSwapFiles`). The cleaner leaves a `.cleaned` beside the log that
it reads, never in its place: it renames all of them before a log goes (`UnifiedLog.replaceSegments`). Any other file is
loaded if its name ends with `.log` (`LogFileUtils.isLogFile`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.format.layouts import BATCH_V2, field_position
from kidxlib.format.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_MAX,
    SWAP_SUFFIX,
    parse_segment_file,
    parse_segment_log,
    segment_file,
)
from kidxlib.format.topic_partition import is_moved, loaded_as
from kidxlib.storage.location import Location, files_in, regular_file
from kidxlib.storage.log_dir import topic_id_or_none
from kidxlib.text.words import counted

#: The size in bytes of the offset that a batch, or an old message, begins with.
_OFFSET_BYTES: Final = field_position(BATCH_V2, "batch_length")
_LOG: Final = re.compile(rf"(?<![0-9])([0-9]{{20}}{re.escape(LOG_SUFFIX)})")


@dataclass(frozen=True, slots=True)
class LogAside:
    """A log that no broker loads as one of a partition.

    Attributes:
        base_offset: the offset in its name.
        target: the path at which a broker would load it.
        loaded_as: the directory of the other partition that has the file, and whose log it is when a broker loads it;
            None: it is in no such directory.
    """

    path: Location
    base_offset: int
    target: Location
    loaded_as: str | None = None

    @property
    def becomes(self) -> str:
        """The words for what a broker that starts does with the file."""
        is_in_deleted = self.path.parent.name.endswith("-delete")
        if is_in_deleted or self.path.name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)):
            return "removes it"
        if self.loaded_as is not None:
            return f"loads it as a log of {self.loaded_as}"
        return "does not load it"


class LogsAside:
    """Looks for logs aside in directories of partitions, renamed ones too, and loose in log dirs, and lists a directory
    once. A directory that cannot be listed has none, and an empty file is none. The `log_dirs` are those of the broker
    that are at hand; a partition's own log dir is always among them.
    """

    def __init__(self, log_dirs: Iterable[Location] = ()) -> None:
        self._log_dirs = tuple(log_dirs)
        self._named: dict[Location, list[tuple[str, Location]]] = {}
        self._moved: dict[Location, list[Path]] = {}

    def logs(self, directory: Location, first_offset: int, end_offset: int) -> tuple[LogAside, ...]:
        """The logs that begin with offsets which no log in a partition's directory has: those in that directory, in
        their order, then loose ones, then those in renamed directories of the partition.
        """
        log_dirs = dict.fromkeys([directory.parent, *self._log_dirs])
        renamed = (folder for log_dir in log_dirs for folder in self._renamed(directory, log_dir))
        places = [directory, *_below(directory), *log_dirs, *renamed]
        return tuple(log for place in places for log in self._in(place, directory, first_offset, end_offset))

    def remedy(self, directory: Location, first_offset: int, end_offset: int) -> str | None:
        """The advice about the logs aside of a partition (`logs`, `remedy_of`); None: there are none."""
        return remedy_of(self.logs(directory, first_offset, end_offset))

    def remedy_of_empty(self, directory: Location) -> str | None:
        """The remedy for a partition without any log. Loose logs are left out: they may be of any partition."""
        places = [directory, *_below(directory)]
        return remedy_of(tuple(log for place in places for log in self._in(place, directory, 0, OFFSET_MAX)))

    def _in(self, place: Location, directory: Location, first_offset: int, end_offset: int) -> Iterator[LogAside]:
        for name, path in self._named_in(place):
            base_offset = parse_segment_log(name)
            is_in_place = place == directory and path.name == name
            if base_offset is None or is_in_place:
                continue
            if first_offset <= base_offset < end_offset and _begins_in(path, first_offset, end_offset):
                yield LogAside(path, base_offset, directory / segment_file(base_offset, LOG_SUFFIX))

    def _named_in(self, place: Location) -> list[tuple[str, Location]]:
        """The files of a place whose names contain a log's name, each after that name and sorted by it."""
        if place not in self._named:
            files: Mapping[str, Location] = {}
            with contextlib.suppress(OSError):
                files = files_in(place)
            if put_in_place(files):
                files = {}  # the swap has replaced the logs that are marked as deleted
            named = ((match[1], path) for name, path in files.items() if (match := _LOG.search(name)) is not None)
            self._named[place] = sorted(named, key=lambda entry: (entry[0], entry[1].name))
        return self._named[place]

    def _renamed(self, directory: Location, log_dir: Location) -> Iterator[Path]:
        """The directories in a log dir that were a partition's, or a copy of it, and have another name now, but for
        those that are known to be of an older topic with its name.
        """
        if log_dir not in self._moved:
            self._moved[log_dir] = []
            with contextlib.suppress(OSError):
                folders = sorted(log_dir.iterdir()) if isinstance(log_dir, Path) else []
                self._moved[log_dir] = [folder for folder in folders if is_moved(folder.name)]
        own = loaded_as(directory.name)
        for folder in self._moved[log_dir]:
            is_of_partition = own is not None and loaded_as(folder.name) == own
            if is_of_partition and len({topic_id_or_none(directory), topic_id_or_none(folder)} - {None}) < 2:
                yield folder


def _below(directory: Location) -> list[Path]:
    """The directories in a partition's directory; a broker loads nothing from them (`LogLoader` takes files alone)."""
    with contextlib.suppress(OSError):
        return sorted(entry for entry in directory.iterdir() if entry.is_dir()) if isinstance(directory, Path) else []
    return []


def put_in_place(names: Collection[str]) -> list[str]:
    """The logs `.swap` that a starting broker puts in place, among the names in a partition's directory."""
    cleaned = (parse_segment_file(name.removesuffix(CLEANED_SUFFIX)) for name in names if name.endswith(CLEANED_SUFFIX))
    first_cleaned = min((offset for offset, _ in filter(None, cleaned)), default=OFFSET_MAX)
    swaps = [name for name in names if name.endswith(f"{LOG_SUFFIX}{SWAP_SUFFIX}")]
    return [name for name in swaps if (parse_segment_log(name.removesuffix(SWAP_SUFFIX)) or 0) < first_cleaned]


def remedy_of(logs: Sequence[LogAside]) -> str | None:
    """The advice about logs aside; None: there are none. It asks for a look at the records before a log takes the place
    of an existing file, if another log has the same offset, or if the log's place does not tell its partition.
    """
    if not logs:
        return None
    first = logs[0]
    same = [log for log in logs if log.target == first.target]
    others = {log.target: log for log in logs if log.target != first.target}
    with_others = "with the other files of that offset"
    if others:
        [another, *_] = others.values()
        with_others += f", and {counted(len(others), 'more log')} likewise ({another.path} …)"
    if len(same) > 1:
        advice = (
            f"{' and '.join(str(log.path) for log in same)} begin there: see by kidx dump which one has all records, "
            f"and move that one to {first.target}, {with_others}"
        )
    elif first.path.parent != first.target.parent:
        advice = (
            f"{first.path} begins there: see by kidx dump --print-data-log whether its records are those of "
            f"{first.target.parent.name}; then move it to {first.target}, {with_others}"
        )
    else:
        advice = f"{first.path} begins there: move it to {first.target}, {with_others}"
    if first.target.exists():
        advice += f", in the place of the file there, of which keep a copy ({first.target.stat().st_size:,} bytes)"
    return f"{advice}, before the broker starts, which {first.becomes}"


def _begins_in(path: Location, first_offset: int, end_offset: int) -> bool:
    """Whether a file begins with what may be a batch of these offsets; an object counts if it is not empty."""
    with contextlib.suppress(OSError):
        if not isinstance(path, Path):
            return path.stat().st_size > 0
        with regular_file(path) as file:
            head = file.read(_OFFSET_BYTES)
        return len(head) == _OFFSET_BYTES and first_offset <= int.from_bytes(head, "big", signed=True) < end_offset
    return False
