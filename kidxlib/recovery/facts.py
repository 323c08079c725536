"""Facts from the batch headers of a segment: counts, digests, smallest timestamps, records by hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.recovery.log_facts import header_facts_kernel as kernel

#: The least number of bytes of a stretch.
_STRETCH_BYTES_MIN: Final = 4096
#: Marks an unused row: below the hour of every timestamp.
_NO_HOUR: Final = -2 * kernel.HOUR_MS


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


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """The arrays into which a scan folds facts from headers: see `header_facts_kernel`.

    Attributes:
        facts: one `HEADER_FACTS` record.
        digests: of shape (`DIGESTS`,).
        stretches: of dtype `STRETCH`.
        hours: of dtype `HOUR`.
    """

    facts: NDArray[np.void]
    digests: NDArray[np.uint64]
    stretches: NDArray[np.void]
    hours: NDArray[np.void]

    @classmethod
    def of_log(cls, log_bytes: int, log_crc32c: int = 0) -> Self:
        """Empty facts for a log.

        Args:
            log_crc32c: the CRC-32C of the batches that were checked before.
        """
        facts = np.zeros(1, kernel.HEADER_FACTS)
        facts["log_crc32c"] = log_crc32c
        facts["last_range"] = facts["stretch"] = -1
        facts["hour"] = _NO_HOUR
        stretch_bytes = max(_STRETCH_BYTES_MIN, -(-log_bytes // kernel.STRETCHES))
        facts["stretch_shift"] = (stretch_bytes - 1).bit_length()
        stretches = np.zeros(kernel.STRETCHES, kernel.STRETCH)
        stretches["position"] = -1
        stretches["smallest_timestamp"] = kernel.TIMESTAMP_MAX
        hours = np.zeros(kernel.HOUR_ROWS + 1, kernel.HOUR)
        return cls(facts, np.zeros(kernel.DIGESTS, np.uint64), stretches, hours)

    @property
    def timestamps_are_certain(self) -> bool:
        """Whether the smallest timestamp of every batch is in its header."""
        return not self.facts[0]["uncertain_batches"]

    def offset_digests(self) -> tuple[OffsetDigest, ...]:
        """The digests of the ranges that have batches, in order."""
        facts = self.facts[0]
        first, last, shift = int(facts["first_range"]), int(facts["last_range"]), int(facts["range_shift"])
        digests = self.digests.view(np.int64).tolist()
        ranges = [(number << shift, 1 << shift, digests[number % kernel.DIGESTS]) for number in range(first, last + 1)]
        return tuple(OffsetDigest(*digest) for digest in ranges if digest[2])

    def smallest_timestamps(self) -> tuple[SmallestTimestamp, ...]:
        """The smallest timestamp from the begin on, and from each position where it becomes larger; empty without
        records.
        """
        starts: dict[int, int] = {}  # positions by the smallest timestamp from there on
        smallest, any_record = kernel.TIMESTAMP_MAX, False
        for position, timestamp, has_timestamp in reversed(self.stretches.tolist()):
            smallest, any_record = min(smallest, timestamp), any_record or has_timestamp
            if position >= 0 and any_record:  # a batch begins in the stretch
                starts[smallest] = position
        return tuple(SmallestTimestamp(position, timestamp) for timestamp, position in reversed(starts.items()))

    def records_by_hour(self) -> tuple[HourRecords, ...]:
        """Records by hour, in order; if there are too many hours, the records of all others are last."""
        used = self.hours["used"].nonzero()[0]
        hours = self.hours[used].tolist()
        further = [hours.pop()] if len(used) and used[-1] == kernel.HOUR_ROWS else []
        known = [(max(start, layouts.NO_TIMESTAMP), *counts) for start, _, *counts in sorted(hours)]
        known += [(None, *counts) for _, _, *counts in further]
        return tuple(HourRecords(*row) for row in known if row[1])


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
            a magic other than 2 to 62, or more than `segment.TAIL_BYTES_MAX` bytes are invalid.
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


def facts_of(state: np.void, header_facts: HeaderFacts, log_crc32c: int | None) -> SegmentFacts:
    def known(field: str) -> int | None:
        value = int(state[field])
        return value if value >= 0 else None

    magics = int(state["magics"])
    smallest = header_facts.smallest_timestamps() if header_facts.timestamps_are_certain else None
    return SegmentFacts(
        next_offset=int(state["next_offset"]),
        valid_bytes=int(state["position"]),
        batches=int(state["batches"]),
        records=None if state["compressed_messages"] else int(state["records"]),
        max_timestamp_ms=int(state["max_timestamp"]),
        offset_of_max_timestamp=known("offset_of_max_timestamp"),
        first_leader_epoch=known("first_leader_epoch"),
        last_leader_epoch=known("last_leader_epoch"),
        magics=((-1,) if magics >> 63 else ()) + tuple(_bits(magics & (2**63 - 1))),
        codecs=tuple(layouts.CODECS[codec] for codec in _bits(int(state["codecs"]))),
        transactional_batches=int(state["transactional_batches"]),
        control_batches=int(state["control_batches"]),
        offset_entries=int(state["offset_entries"]),
        time_entries=int(state["time_entries"]),
        map_end_offset=int(state["map_end_offset"]),
        offsets_increase=not state["disordered"],
        log_crc32c=log_crc32c,
        log_crc64nvme=None,
        offset_digests=header_facts.offset_digests(),
        smallest_timestamp_ms=None if smallest is None else smallest_of(smallest),
        smallest_timestamps=smallest,
        records_by_hour=None if state["compressed_messages"] else header_facts.records_by_hour(),
    )


def smallest_of(timestamps: tuple[SmallestTimestamp, ...]) -> int:
    """The smallest timestamp of all; −1 if there is no record."""
    return timestamps[0].timestamp_ms if timestamps else layouts.NO_TIMESTAMP


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
