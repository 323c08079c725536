"""Facts of a log that its batch headers give beside counts: digests, smallest timestamps, records by hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts as formats
from kidxlib.recovery.log_facts import header_facts_kernel as kernel

#: A stretch of a log has at least so many bytes.
_STRETCH_BYTES_MIN: Final = 4096
#: Below every hour of a timestamp: no batch is in it.
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
    """What a scan folds from headers, as its loop takes it: see `header_facts_kernel`.

    Attributes:
        facts: one `HEADER_FACTS` record.
        digests: of shape (`DIGESTS`,).
        stretches: of `STRETCH`.
        hours: of `HOUR`.
    """

    facts: NDArray[np.void]
    digests: NDArray[np.uint64]
    stretches: NDArray[np.void]
    hours: NDArray[np.void]

    @classmethod
    def of_log(cls, log_bytes: int, log_crc32c: int = 0) -> Self:
        """Make those of a log of which no batch was taken.

        Args:
            log_crc32c: the CRC-32C of the batches that need not be checked.
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
        """Whether the headers say the smallest timestamp of every batch."""
        return not self.facts[0]["uncertain_batches"]

    def offset_digests(self) -> tuple[OffsetDigest, ...]:
        """The digests of the ranges that have batches, in order."""
        facts = self.facts[0]
        first, last, shift = int(facts["first_range"]), int(facts["last_range"]), int(facts["range_shift"])
        digests = self.digests.view(np.int64).tolist()
        found = [(number << shift, 1 << shift, digests[number % kernel.DIGESTS]) for number in range(first, last + 1)]
        return tuple(OffsetDigest(*each) for each in found if each[2])

    def smallest_timestamps(self) -> tuple[SmallestTimestamp, ...]:
        """The smallest timestamp from the beginning on, and from where on it is larger; nothing where no record is."""
        starts: dict[int, int] = {}  # by the smallest timestamp from there on
        smallest, any_record = kernel.TIMESTAMP_MAX, False
        for position, timestamp, has_timestamp in reversed(self.stretches.tolist()):
            smallest, any_record = min(smallest, timestamp), any_record or has_timestamp
            if position >= 0 and any_record:  # a batch begins in that stretch
                starts[smallest] = position
        return tuple(SmallestTimestamp(position, timestamp) for timestamp, position in reversed(starts.items()))

    def records_by_hour(self) -> tuple[HourRecords, ...]:
        """In order; at the end the records of further hours, where there are too many."""
        used = self.hours["used"].nonzero()[0]
        hours = self.hours[used].tolist()
        further = [hours.pop()] if len(used) and used[-1] == kernel.HOUR_ROWS else []
        known = [(max(start, formats.NO_TIMESTAMP), *counts) for start, _, *counts in sorted(hours)]
        known += [(None, *counts) for _, _, *counts in further]
        return tuple(HourRecords(*row) for row in known if row[1])
