"""Keeps scans of logs for a later build of the same run, which then does not read these logs again.

Reading takes most of the time if a log is large or not in memory.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.location import FileVersion


class _Place(NamedTuple):
    """The position of a scan in the file."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class KeptScans:
    """The scans of a partition's logs, in a private file of this run, which workers on this machine share.

    Attributes:
        places: by base offset, for logs that were scanned completely.
    """

    path: str
    places: Mapping[int, _Place]

    def of(self, base_offset: int, version: FileVersion, options: RecoverOptions) -> RecoveredSegment | None:
        """The scan of a log; None if it was not kept or had other options, or the log has changed."""
        place = self.places.get(base_offset)
        if place is None:
            return None
        with Path(self.path).open("rb", buffering=0) as file:
            file.seek(place.position)
            kept_version, kept_options, scanned = pickle.loads(file.read(place.size))
        return scanned if (kept_version, kept_options) == (version, options) else None


@dataclass(slots=True)
class ScanWriter:
    """Writes scans to the file, partition by partition. If the disk is full, a scan is dropped and its log read again.

    Args:
        path: a new file, in a private directory of this run.
    """

    path: Path
    _file: IO[bytes] | None = None
    _places: dict[int, _Place] = field(default_factory=dict)

    def keep(self, base_offset: int, version: FileVersion, options: RecoverOptions, scanned: RecoveredSegment) -> None:
        """Keep the scan of a whole log."""
        content = pickle.dumps((version, options, scanned))
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self.path.open("wb", buffering=0)
            position = self._file.tell()
            if self._file.write(content) == len(content):
                self._places[base_offset] = _Place(position, len(content))

    def of_partition(self) -> KeptScans:
        """The scans since the last call, which are one partition's."""
        kept = KeptScans(str(self.path), self._places)
        self._places = {}
        return kept

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
