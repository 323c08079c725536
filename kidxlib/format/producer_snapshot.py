"""The bytes of a `.snapshot`: the producers that a broker knows at an offset (`ProducerStateManager`)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import SnapshotError
from kidxlib.format import layouts
from kidxlib.format.checksums import crc32c

CRC_COVERS_FROM: Final = layouts.field_position(layouts.SNAPSHOT_HEADER, "entries")


def read_snapshot(data: bytes) -> NDArray[np.void]:
    """The producers in the bytes of a producer snapshot, in its order (`ProducerStateManager.readSnapshot`), of dtype
    `layouts.SNAPSHOT_ENTRY`.
    """
    if len(data) < layouts.SNAPSHOT_HEADER.itemsize:
        raise SnapshotError(f"a producer snapshot of {len(data)} bytes, expected 10 or more")
    header = np.frombuffer(data, layouts.SNAPSHOT_HEADER, count=1)[0]
    expected = layouts.SNAPSHOT_HEADER.itemsize + int(header["entries"]) * layouts.SNAPSHOT_ENTRY.itemsize
    if header["version"] != layouts.SNAPSHOT_VERSION or len(data) != expected:
        raise SnapshotError(
            f"a producer snapshot of version {header['version']} and {len(data)} bytes, expected version "
            f"{layouts.SNAPSHOT_VERSION} and {expected} bytes for its {header['entries']} entries"
        )
    computed = crc32c(data[CRC_COVERS_FROM:])
    if computed != header["crc"]:
        raise SnapshotError(f"a producer snapshot with checksum {computed:#010x}, it says {header['crc']:#010x}")
    return np.frombuffer(data, layouts.SNAPSHOT_ENTRY, offset=layouts.SNAPSHOT_HEADER.itemsize)
