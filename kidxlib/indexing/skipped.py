"""What a listing skips, and why: entries that are no segments, and directories that cannot be listed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from kidxlib.format.segment_files import INDEX_SUFFIXES, NotASegment

#: Entries that an operator does not expect in a log dir; each gets a line of its own.
_UNEXPECTED: Final = (NotASegment.WRONG_SEGMENT_NAME, NotASegment.LOOSE_LOG, NotASegment.NO_PARTITION_NUMBER)

#: How many directories that cannot be listed are named. All are counted: a disk that fails may have 100,000.
_NAMED: Final = 100


@dataclass(slots=True)
class Skipped:
    """Entries that a listing skipped, counted by kind, and the paths of unexpected ones.

    Attributes:
        indexes: how many index files lie beside logs, by the partition's directory and the suffix.
    """

    counts: Counter[NotASegment] = field(default_factory=Counter)
    unexpected: list[tuple[str, NotASegment]] = field(default_factory=list)
    indexes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, path: str, reason: NotASegment, directory: str | None = None) -> None:
        """Add an entry, with the partition's directory that it is in."""
        self.counts[reason] += 1
        if reason in _UNEXPECTED:
            self.unexpected.append((path, reason))
        if directory is not None and reason is NotASegment.AUXILIARY and path.endswith(INDEX_SUFFIXES):
            self.indexes[directory, path[path.rindex(".") :]] += 1

    def merge(self, other: Skipped) -> None:
        self.counts.update(other.counts)
        self.unexpected.extend(other.unexpected)
        self.indexes.update(other.indexes)


@dataclass(frozen=True, slots=True)
class UnlistableDirectory:
    """A partition's directory that cannot be listed, so nothing is known of its segments.

    Attributes:
        directory: its path.
        reason: what the system says, as "Permission denied".
    """

    directory: str
    reason: str

    @classmethod
    def of(cls, directory: str | os.PathLike[str], error: OSError) -> UnlistableDirectory:
        return cls(os.fspath(directory), error.strerror or type(error).__name__)


def warnings_of_unlistable(unlistable: Collection[UnlistableDirectory]) -> list[str]:
    """A line for each of the first directories, and one that counts the others."""
    lines = [
        f"{unlisted.directory}: skipped: it cannot be listed: {unlisted.reason}"
        for unlisted in islice(unlistable, _NAMED)
    ]
    if len(unlistable) > _NAMED:
        lines.append(f"{len(unlistable) - _NAMED:,} more directories of partitions cannot be listed")
    return lines


def unlistable_as_json(unlistable: Collection[UnlistableDirectory]) -> dict[str, Any]:
    """For the JSON objects of builds and audits."""
    return {
        "unlistable_count": len(unlistable),
        "unlistable": [asdict(directory) for directory in islice(unlistable, _NAMED)],
    }
