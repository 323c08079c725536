"""The scratch directory: what is left to do of segments that were read lies there until their partitions are finished.

It would not fit in memory: a segment takes some 700 bytes, and each event of a producer 60.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kidxlib.storage.scratch import writing_in


@dataclass(frozen=True, slots=True)
class Spooled:
    """Where an object lies in the scratch directory."""

    file: Path
    position: int

    def read(self) -> Any:
        """The object.

        Raises:
            KidxError: the file cannot be read.
        """
        with writing_in(self.file.parent.parent), self.file.open("rb") as spool:
            spool.seek(self.position)
            return pickle.load(spool)


class Spool:
    """A file in the scratch directory that one worker fills with objects.

    Raises:
        KidxError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.parent.parent
        with writing_in(self._place):
            self._file = path.open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, item: object) -> Spooled:
        """Write an object after the others.

        Raises:
            KidxError: it cannot be written.
        """
        position = self._file.tell()
        left = memoryview(pickle.dumps(item))
        with writing_in(self._place):
            while left:
                left = left[self._file.write(left) :]
        return Spooled(self._path, position)
