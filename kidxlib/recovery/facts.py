"""Facts from the batch headers of a segment: counts, digests, smallest timestamps, records by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.recovery.scan import header_facts_kernel as kernel

#: The least number of bytes of a stretch.
_STRETCH_BYTES_MIN: Final = 4096


class OffsetDigest(NamedTuple):
    """A digest of the batches whose base offset is one of `offsets` from `start_offset` on, a multiple of it."""

    start_offset: int
    offsets: int
    digest: int


class SmallestTimestamp(NamedTuple):
    """The smallest timestamp of all records from the batch at a position to the end."""

    position: int
    timestamp_ms: int


class HourRecords(NamedTuple):
    """Records of the batches whose largest timestamp lies in an hour; `certain_records` of them surely lie in it."""

    hour_ms: int | None
    records: int
    certain_records: int


def empty_facts(log_bytes: Sequence[int], log_crc32c: int = 0) -> NDArray[np.void]:
    """Facts of logs of which nothing was read, of dtype `header_facts_kernel.HEADER_FACTS`.

    Args:
        log_bytes: of each log.
        log_crc32c: the CRC-32C of the batches that were checked before.
    """
    facts = np.repeat(_NEW_FACTS, len(log_bytes))
    stretches = (max(_STRETCH_BYTES_MIN, -(-size // kernel.STRETCHES)) for size in log_bytes)
    facts["stretch_shift"] = [(stretch_bytes - 1).bit_length() for stretch_bytes in stretches]
    facts["log_crc32c"] = log_crc32c
    return facts


_NEW_FACTS: Final = np.zeros(1, kernel.HEADER_FACTS)
_NEW_FACTS["last_range"] = _NEW_FACTS["stretch"] = -1
_NEW_FACTS["hour"] = kernel.NO_HOUR

_NEW_STRETCHES: Final = np.zeros(kernel.STRETCHES, kernel.STRETCH)
_NEW_STRETCHES["position"] = -1
_NEW_STRETCHES["smallest_timestamp"] = kernel.TIMESTAMP_MAX


@dataclass(frozen=True, slots=True)
class FactCells:
    """The arrays into which facts of one log are folded: see `header_facts_kernel`.

    Attributes:
        digests: of shape (`DIGESTS`,).
        stretches: of dtype `STRETCH`.
        hours: of dtype `HOUR`.
    """

    digests: NDArray[np.uint64]
    stretches: NDArray[np.void]
    hours: NDArray[np.void]

    @classmethod
    def empty(cls) -> Self:
        digests, stretches = np.zeros(kernel.DIGESTS, np.uint64), _NEW_STRETCHES.copy()
        return cls(digests, stretches, np.zeros(kernel.HOUR_ROWS + 1, kernel.HOUR))

    def gather(self) -> tuple[tuple[SmallestTimestamp, ...], tuple[HourRecords, ...]]:
        """The facts of the cells, smallest timestamps and records by hour; the cells are empty then."""
        timestamps = np.empty(kernel.STRETCHES, kernel.SMALLEST_TIMESTAMP)
        hours = np.empty(kernel.HOUR_ROWS + 1, kernel.HOUR_RECORDS)
        return (
            smallest_timestamps(timestamps[: kernel.gather_timestamps(self.stretches, timestamps, 0)]),
            records_by_hour(hours[: kernel.gather_hours(self.hours, hours, 0)]),
        )


def offset_digests(rows: NDArray[np.void]) -> tuple[OffsetDigest, ...]:
    """The facts `OffsetDigest` of one log, from rows of dtype `header_facts_kernel.OFFSET_DIGEST`."""
    return tuple(OffsetDigest(*row) for row in rows.tolist())


def smallest_timestamps(rows: NDArray[np.void]) -> tuple[SmallestTimestamp, ...]:
    """The facts `SmallestTimestamp` of one log, from rows of dtype `header_facts_kernel.SMALLEST_TIMESTAMP`."""
    return tuple(SmallestTimestamp(*row) for row in rows.tolist())


def records_by_hour(rows: NDArray[np.void]) -> tuple[HourRecords, ...]:
    """The facts `HourRecords` of one log, from rows of dtype `header_facts_kernel.HOUR_RECORDS`."""
    return tuple(
        HourRecords(None if hour == kernel.FURTHER_HOURS else hour, records, certain_records)
        for hour, records, certain_records in rows.tolist()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """Facts from the batch headers of a segment's valid prefix.

    Attributes:
        next_offset: the last batch's last offset + 1; the base offset if there is no batch.
        valid_bytes: length of the valid prefix.
        batches: batches of v2, and messages (wrappers included) of v0 and v1.
        records: records in the batches; None if compressed v0 or v1 wrappers hide their number.
        max_timestamp_ms: the largest batch timestamp, −1 if there is none; in a quarantined segment perhaps that of the
            batch at which it failed, as in Kafka.
        offset_of_max_timestamp: the last offset of the first batch with the largest timestamp; None if there is none.
        first_leader_epoch, last_leader_epoch: of the batches with an epoch; None if there are none.
        magics: formats seen, ascending; −1: any format other than 0 to 62.
        codecs: names of the codecs seen.
        transactional_batches, control_batches: how many batches have that attribute.
        offset_entries, time_entries: entries of the two indexes.
        map_end_offset: the last v2 batch's last offset + 1, or the base offset. It names the producer snapshot at the
            segment's end (`ProducerStateManager.mapEndOffset`).
        offsets_increase: each batch's last offset is above that of the batch before it. Kafka compares only indexed
            batches.
        log_crc32c: CRC-32C of the whole file with its invalid tail; None if checksums were not verified, a batch is of
            a magic other than 2 to 62, or more than `log_checksums.TAIL_BYTES_MAX` bytes are invalid.
        log_crc64nvme: CRC-64/NVME of the whole file, as Java's long; None if not all bytes were read for it.
        offset_digests: digests of the batches by aligned ranges of base offsets, which may be added up.
        smallest_timestamp_ms: the smallest timestamp of a record, −1 if a record has none or there is no record; None
            if headers do not tell it.
        smallest_timestamps: the smallest timestamp from a position on, for each position from which it is larger.
        records_by_hour: records of batches by the hour of their largest timestamp; None if wrappers hide a number.
    """

    next_offset: int
    valid_bytes: int
    batches: int
    records: int | None
    max_timestamp_ms: int
    offset_of_max_timestamp: int | None
    first_leader_epoch: int | None
    last_leader_epoch: int | None
    magics: tuple[int, ...]
    codecs: tuple[str, ...]
    transactional_batches: int
    control_batches: int
    offset_entries: int
    time_entries: int
    map_end_offset: int
    offsets_increase: bool
    log_crc32c: int | None
    log_crc64nvme: int | None
    offset_digests: tuple[OffsetDigest, ...]
    smallest_timestamp_ms: int | None
    smallest_timestamps: tuple[SmallestTimestamp, ...] | None
    records_by_hour: tuple[HourRecords, ...] | None


def smallest_timestamp(timestamps: tuple[SmallestTimestamp, ...]) -> int:
    """The smallest timestamp of a segment, from its facts `SmallestTimestamp`; −1 if there is no record."""
    return timestamps[0].timestamp_ms if timestamps else layouts.NO_TIMESTAMP


@cache
def magics_of(mask: int) -> tuple[int, ...]:
    """The magics of a segment's batches, ascending, a fact from the bits in a scan's state; −1 for any other than 0 to
    62.
    """
    return ((-1,) if mask >> 63 else ()) + _bits(mask & (2**63 - 1))


@cache
def codecs_of(mask: int) -> tuple[str, ...]:
    """The names of the codecs of a segment's batches, a fact from the bits in a scan's state."""
    return tuple(layouts.CODECS[codec] for codec in _bits(mask))


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
