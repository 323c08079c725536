"""The entries of all files but the log. The names of their fields are those of `kidx dump --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Empty:
    """An offset index without entries."""

    kind: ClassVar[str] = "empty"


@dataclass(frozen=True, slots=True)
class Sane:
    """An index that passed `sanityCheck`."""

    kind: ClassVar[str] = "sane"


@dataclass(frozen=True, slots=True)
class NotCompared:
    """The entries of an index follow as they stand; what they would be compared with is not there."""

    kind: ClassVar[str] = "not_compared"
    missing: str


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """An entry of an offset index."""

    kind: ClassVar[str] = "offset_index_entry"
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntry:
    """An entry of a time index."""

    kind: ClassVar[str] = "time_index_entry"
    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedEntry:
    """An entry of a transaction index."""

    kind: ClassVar[str] = "aborted_transaction"
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """An entry of a producer snapshot. None stands where the file says that there is no such value."""

    kind: ClassVar[str] = "producer"
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_transaction_first_offset: int | None
    last_timestamp_ms: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """An entry of a `leader-epoch-checkpoint`."""

    kind: ClassVar[str] = "leader_epoch"
    epoch: int
    start_offset: int
