"""Scans of logs that were made before a build: it need not read these logs again.

Reading is what takes long where a log is not in memory, or is large.
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
    """Where a scan stands in its file."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class KeptScans:
    """The scans of a partition's logs, in a file that is this run's alone, and that workers of this machine share.

    Attributes:
        places: by base offset; of logs that were scanned as a whole.
    """

    path: str
    places: Mapping[int, _Place]

    def of(self, base_offset: int, version: FileVersion, options: RecoverOptions) -> RecoveredSegment | None:
        """The scan of a log; None where it was not kept, was made with other options, or where the log has changed."""
        place = self.places.get(base_offset)
        if place is None:
            return None
        with Path(self.path).open("rb", buffering=0) as file:
            file.seek(place.position)
            kept_version, kept_options, scanned = pickle.loads(file.read(place.size))
        return scanned if (kept_version, kept_options) == (version, options) else None


@dataclass(slots=True)
class ScanWriter:
    """Keeps scans of some partitions, one partition after the other. Where there is no room for one, its log is read
    again.

    Args:
        path: of a new file, in a directory that is this run's alone.
    """

    path: Path
    _file: IO[bytes] | None = None
    _places: dict[int, _Place] = field(default_factory=dict)

    def keep(self, base_offset: int, version: FileVersion, options: RecoverOptions, scanned: RecoveredSegment) -> None:
        """Keep the scan of a log as a whole."""
        content = pickle.dumps((version, options, scanned))
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self.path.open("wb", buffering=0)
            position = self._file.tell()
            if self._file.write(content) == len(content):
                self._places[base_offset] = _Place(position, len(content))

    def of_partition(self) -> KeptScans:
        """What was kept since the last time."""
        kept = KeptScans(str(self.path), self._places)
        self._places = {}
        return kept

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
