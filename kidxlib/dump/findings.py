"""What may not fit together in a segment's files. The names of the fields are those of `kidx dump --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """A record does not follow the one before it by one, as compaction and transactions bring about, too."""

    kind: ClassVar[str] = "offset_gap"
    offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class OffsetMismatch:
    """The batch that an entry names does not end with the entry's offset."""

    kind: ClassVar[str] = "offset_mismatch"
    index_offset: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class OffsetNotFound:
    """No batch ends with an entry's offset; the next one after it ends with `log_offset`, None where none follows."""

    kind: ClassVar[str] = "offset_not_found"
    index_offset: int
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class TimestampMismatch:
    """The largest timestamp of the records in the batch that ends with an entry's offset is not the entry's."""

    kind: ClassVar[str] = "timestamp_mismatch"
    index_timestamp_ms: int
    log_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TimestampOutOfOrder:
    """An entry's timestamp is not above that of the one before it."""

    kind: ClassVar[str] = "timestamp_out_of_order"
    index_timestamp_ms: int
    previous_timestamp_ms: int


DumpFinding: TypeAlias = OffsetGap | OffsetMismatch | OffsetNotFound | TimestampMismatch | TimestampOutOfOrder
