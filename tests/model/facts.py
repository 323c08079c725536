"""The facts of a segment that are folded from its batches, by their definitions: as compiled loops must find them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import google_crc32c

from kidxlib.format import layouts
from kidxlib.java import as_long
from kidxlib.recovery.facts import HourRecords, OffsetDigest, SmallestTimestamp
from kidxlib.recovery.log_checksums import TAIL_BYTES_MAX
from tests.model.recover import Batch, Recovered

_BITS: Final = 2**64 - 1
_HOUR_MS: Final = 3_600_000


class Timestamps(NamedTuple):
    """Records of a batch that starts at a position: none has a larger timestamp. Certain: all have this one."""

    position: int
    timestamp: int
    records: int
    certain: bool


def log_crc32c(recovered: Recovered) -> int | None:
    """Of all bytes, if each batch has a CRC-32C that was verified, and a magic that facts tell from those without."""
    all_have_one = all(batch.is_v2 and batch.header["magic"] < 63 for batch in recovered.valid)
    tail_bytes = len(recovered.log) - recovered.valid_bytes
    is_known = recovered.verify_crc and all_have_one and tail_bytes <= TAIL_BYTES_MAX
    return int(google_crc32c.value(recovered.log)) if is_known else None


def offset_digests(batches: Sequence[Batch]) -> tuple[OffsetDigest, ...]:
    """The smallest ranges of which there are at most 16 from the first that has a batch to the last."""
    digests = [(base_offset(batch), _digest(batch)) for batch in batches]
    for shift in itertools.count():
        sums: dict[int, int] = defaultdict(int)
        for offset, digest in digests:
            sums[offset >> shift] += digest
        if not sums or max(sums) - min(sums) < 16:
            found = ((number, as_long(total)) for number, total in sorted(sums.items()))
            return tuple(OffsetDigest(number << shift, 1 << shift, digest) for number, digest in found if digest)
    raise AssertionError


def base_offset(batch: Batch) -> int:
    """What a batch starts with: of a wrapper its last offset."""
    return batch.header["base_offset" if batch.is_v2 else "offset"]


def _digest(batch: Batch) -> int:
    offset = base_offset(batch)
    delta = (batch.last_offset - offset) & _BITS
    number = (offset * 0x9E3779B97F4A7C15 + ((delta << 32 & _BITS) ^ batch.header["crc"])) & _BITS
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _BITS
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _BITS
    return number ^ number >> 31


def header_timestamps(batches: Iterable[Batch]) -> list[Timestamps]:
    """What headers say of the timestamps of records."""
    found, position = [], 0
    for batch in batches:
        attributes = batch.header["attributes"]
        is_append_time = attributes & layouts.ATTRIBUTE_LOG_APPEND_TIME != 0
        if batch.is_v2:
            records = batch.header["records_count"]
            certain = is_append_time or records in (0, 1)
        else:
            records, is_plain = 1, attributes & layouts.ATTRIBUTE_CODEC == 0
            certain = is_append_time or is_plain or batch.header["magic"] == 0
        found.append(Timestamps(position, batch.max_timestamp, records, certain))
        position += len(batch.data)
    return found


def smallest_timestamps(found: Sequence[Timestamps], log_bytes: int) -> tuple[SmallestTimestamp, ...] | None:
    """At the first batch of each stretch of the log from which on all timestamps are larger than before."""
    if not all(each.certain for each in found):
        return None
    stretch_bytes = 4096
    while stretch_bytes * 64 < log_bytes:
        stretch_bytes *= 2
    starts = {each.position // stretch_bytes: each.position for each in reversed(found)}
    smallest: list[SmallestTimestamp] = []
    for start in sorted(starts.values()):
        later = [each.timestamp for each in found if each.position >= start and each.records > 0]
        if later and (not smallest or min(later) != smallest[-1].timestamp_ms):
            smallest.append(SmallestTimestamp(start, min(later)))
    return tuple(smallest)


def records_by_hour(found: Iterable[Timestamps]) -> tuple[HourRecords, ...]:
    """Of the first 256 hours that are met, and of all others together."""
    hours: dict[int | None, list[int]] = {}
    for _, timestamp, records, certain in found:
        hour: int | None = timestamp // _HOUR_MS * _HOUR_MS if timestamp >= 0 else -1
        if hour not in hours and len(hours) - (None in hours) == 256:
            hour = None
        counts = hours.setdefault(hour, [0, 0])
        counts[0] += records
        counts[1] += records if certain else 0
    ordered = sorted(hours.items(), key=lambda row: (row[0] is None, row[0] or 0))
    return tuple(HourRecords(hour, *counts) for hour, counts in ordered if counts[0])
