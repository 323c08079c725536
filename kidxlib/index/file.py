"""What the catalog keeps of an index file: its number of entries, its size and its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from kidxlib.format.checksums.crc import crc32c


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index as it stands in its directory; its size in bytes."""

    entries: int
    size: int
    crc32c: int

    @classmethod
    def of(cls, content: bytes, entry: np.dtype[np.void]) -> Self:
        return cls(len(content) // entry.itemsize, len(content), crc32c(content))
