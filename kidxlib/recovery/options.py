"""What the bytes of the indexes depend on besides the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format import layouts as formats

INTERVAL_BYTES_DEFAULT: Final = 4096
MAX_INDEX_BYTES_DEFAULT: Final = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """What the bytes of the indexes depend on besides the log.

    Attributes:
        interval_bytes: Kafka's `index.interval.bytes`, at least 0.
        max_index_bytes: Kafka's `segment.index.bytes`, at least 12 (one time index entry).
        verify_crc: False trusts every checksum and reads headers only.
    """

    interval_bytes: int = INTERVAL_BYTES_DEFAULT
    max_index_bytes: int = MAX_INDEX_BYTES_DEFAULT
    verify_crc: bool = True

    def __post_init__(self) -> None:
        if self.interval_bytes < 0 or self.max_index_bytes < formats.TIME_INDEX_ENTRY.itemsize:
            raise UsageError(
                f"interval_bytes {self.interval_bytes} and max_index_bytes {self.max_index_bytes}: expected at least "
                f"0 and {formats.TIME_INDEX_ENTRY.itemsize}"
            )

    @property
    def max_offset_entries(self) -> int:
        """How many entries an offset index has room for."""
        return self.max_index_bytes // formats.OFFSET_INDEX_ENTRY.itemsize

    @property
    def max_time_entries(self) -> int:
        """How many entries a time index has room for."""
        return self.max_index_bytes // formats.TIME_INDEX_ENTRY.itemsize
