"""Keeps scans of logs for a later build of the same run, which then does not read these logs again.

Reading takes most of the time if a log is large or not in memory. Scans of one pass over many small logs are kept as
the columns that they are.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, ScannedLogs, recovered_of
from kidxlib.storage.location import FileVersion


@dataclass(frozen=True, slots=True)
class KeptPass:
    """The scans of one pass, as they were kept.

    Attributes:
        versions: size, time and inode of each log, as `FileVersion` has them.
        options: those of each log.
    """

    versions: Sequence[tuple[int, int, int | None]]
    options: Sequence[RecoverOptions]
    scans: ScannedLogs

    def is_of(self, number: int, version: FileVersion, options: RecoverOptions) -> bool:
        """Whether the scan of a log is one of this version with these options."""
        return (self.versions[number], self.options[number]) == (_as_tuple(version), options)


class PassPlace(NamedTuple):
    """Where the scans of one pass are."""

    path: str
    position: int
    size: int

    def read(self) -> KeptPass:
        kept = _unpickled(self.path, self.position, self.size)
        assert isinstance(kept, KeptPass)
        return kept


class _Place(NamedTuple):
    """The position of a scan in the file, and its number among those of one pass; None: it was scanned alone."""

    position: int
    size: int
    number: int | None


@dataclass(frozen=True, slots=True)
class KeptScans:
    """The scans of a partition's logs, in a private file of this run, which workers on this machine share.

    Attributes:
        places: by base offset, for logs that were scanned completely.
    """

    path: str
    places: Mapping[int, _Place]

    @property
    def begin(self) -> tuple[str, int]:
        """Partitions in this order have the scans of a pass one after the other."""
        return self.path, min((place.position for place in self.places.values()), default=0)

    def of(self, base_offset: int, version: FileVersion, options: RecoverOptions) -> RecoveredSegment | None:
        """The scan of a log; None if it was not kept or had other options, or the log has changed."""
        place = self.places.get(base_offset)
        if place is None:
            return None
        kept = _unpickled(self.path, place.position, place.size)
        if place.number is not None:
            is_same = kept.is_of(place.number, version, options)
            return recovered_of(kept.scans, place.number) if is_same else None
        kept_version, kept_options, scanned = kept
        return scanned if (kept_version, kept_options) == (version, options) else None

    def pass_of(self, base_offset: int) -> tuple[PassPlace, int] | None:
        """The pass in which a log was scanned, and its number there; None if it was not kept, or scanned alone."""
        place = self.places.get(base_offset)
        if place is None or place.number is None:
            return None
        return PassPlace(self.path, place.position, place.size), place.number


def _as_tuple(version: FileVersion) -> tuple[int, int, int | None]:
    return version.size, version.mtime_ns, version.inode


def _unpickled(path: str, position: int, size: int) -> Any:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return pickle.loads(os.pread(descriptor, size, position))
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class KeptScansWriter:
    """Writes scans to the file, partition by partition. If the disk is full, a scan is dropped and its log read again.

    Args:
        path: a new file, in a private directory of this run.
    """

    path: Path
    _file: IO[bytes] | None = None
    _places: dict[int, _Place] = field(default_factory=dict)

    def keep(self, base_offset: int, version: FileVersion, options: RecoverOptions, scanned: RecoveredSegment) -> None:
        """Keep the scan of a whole log."""
        place = self._write((version, options, scanned))
        if place is not None:
            self._places[base_offset] = _Place(*place, None)

    def keep_pass(
        self, versions: Sequence[FileVersion], options: Sequence[RecoverOptions], scans: ScannedLogs
    ) -> PassPlace | None:
        """Keep the scans of one pass, none of which is a partition's yet (`keep_of_pass`); None: they were dropped."""
        place = self._write(KeptPass(list(map(_as_tuple, versions)), options, scans))
        return None if place is None else PassPlace(str(self.path), *place)

    def keep_of_pass(self, base_offset: int, place: PassPlace, number: int) -> None:
        """Count a scan of a pass among those of the partition."""
        self._places[base_offset] = _Place(place.position, place.size, number)

    def of_partition(self) -> KeptScans:
        """The scans since the last call, which are one partition's."""
        kept = KeptScans(str(self.path), self._places)
        self._places = {}
        return kept

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, kept: object) -> tuple[int, int] | None:
        """Where the object stands in the file, and its size; None where there is no room."""
        content = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self.path.open("wb", buffering=0)
            position = self._file.tell()
            if self._file.write(content) == len(content):
                return position, len(content)
        return None
