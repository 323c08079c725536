"""The compiled functions that fold facts with several values from batch headers: digests of ranges of offsets, smallest
timestamps of stretches of the log, and records by hour.

Successive batches mostly fall into one cell: one range, one stretch and one hour. Loops sum them in local variables.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.jit.compiler import njit

#: The most ranges of offsets with a digest in a segment, a power of two.
DIGESTS: Final = 16
#: The most stretches of a log.
STRETCHES: Final = 64
#: The most hours that are told apart.
_HOURS_MAX: Final = 256
HOUR_MS: Final = 3_600_000
#: Rows of the table of hours, of which at most half are used; a power of two. The row after them is for further hours.
HOUR_ROWS: Final = 2 * _HOURS_MAX
_ROW_SHIFT: Final = 64 - (HOUR_ROWS.bit_length() - 1)

#: The largest timestamp. Some records have it, so it cannot mean that there is none.
TIMESTAMP_MAX: Final = 2**63 - 1

HEADER_FACTS: Final = np.dtype(
    [
        # The numbers of the lowest range of offsets, the highest, and that of the last batch; a range has 2 to the
        # power of `range_shift` offsets.
        ("first_range", "i8"),
        ("last_range", "i8"),
        ("range", "i8"),
        ("range_shift", "i8"),
        # The stretch of the last batch; a stretch has 2 to the power of `stretch_shift` bytes.
        ("stretch", "i8"),
        ("stretch_shift", "i8"),
        ("uncertain_batches", "i8"),  # batches whose smallest timestamp is not in the header
        # The hour of the last batch, its row, and how many rows are used.
        ("hour", "i8"),
        ("hour_row", "i8"),
        ("hours", "i8"),
        ("log_crc32c", "u4"),  # of the batches so far, without those of magic 0 and 1, and trusted ones
    ]
)
#: A stretch of the log: where its first batch begins, the smallest timestamp of its batches, and whether it has records
#: whose time is known.
STRETCH: Final = np.dtype([("position", "i8"), ("smallest_timestamp", "i8"), ("has_timestamp", "i8")])
#: Records of the batches whose largest timestamp is in an hour, and how many of these certainly are in it themselves.
HOUR: Final = np.dtype([("start", "i8"), ("used", "i8"), ("records", "i8"), ("certain_records", "i8")])

#: What is kept of a log's cells, a row for each. The digest of the batches whose base offset is one of `offsets` from
#: `start_offset` on, a multiple of it:
OFFSET_DIGEST: Final = np.dtype([("start_offset", "i8"), ("offsets", "i8"), ("digest", "i8")])
#: the smallest timestamp of all records from the batch at a position to the end:
SMALLEST_TIMESTAMP: Final = np.dtype([("position", "i8"), ("timestamp_ms", "i8")])
#: and the records of the batches whose largest timestamp lies in an hour, −1 for no timestamp; `certain_records` of
#: them surely lie in it.
HOUR_RECORDS: Final = np.dtype([("hour_ms", "i8"), ("records", "i8"), ("certain_records", "i8")])
#: In place of the hour, for all hours that were not told apart.
FURTHER_HOURS: Final = -(2**63)

#: In an unused row: below the hour of every timestamp.
NO_HOUR: Final = -2 * HOUR_MS


@njit(forceinline=True)
def digest_of(offset, last_offset, stored_checksum):
    """The digest of a batch, in which each bit depends on all bits of the arguments (the finalizer of SplitMix64)."""
    delta = np.uint64(last_offset) - np.uint64(offset)
    number = np.uint64(offset) * np.uint64(0x9E3779B97F4A7C15) + ((delta << np.uint64(32)) ^ np.uint64(stored_checksum))
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@njit
def _range_of(facts, digests, offset):
    """The number of an offset's range. Ranges are doubled until the offset has one."""
    number = offset >> facts.range_shift
    if facts.first_range > facts.last_range:
        facts.first_range = facts.last_range = number
        return number
    # Offsets of one segment differ by up to 2 to the power of 64, more than a signed number holds: Kafka lets them
    # wrap, and a batch's header may have an end before its begin.
    while np.uint64(max(facts.last_range, number)) - np.uint64(min(facts.first_range, number)) >= np.uint64(DIGESTS):
        wider = np.zeros(DIGESTS, np.uint64)
        for narrow in range(facts.first_range, facts.last_range + 1):
            wider[(narrow >> 1) & (DIGESTS - 1)] += digests[narrow & (DIGESTS - 1)]
        for slot in range(DIGESTS):  # assigning the whole array takes two seconds to compile
            digests[slot] = wider[slot]
        facts.first_range >>= 1
        facts.last_range >>= 1
        facts.range_shift += 1
        number >>= 1
    facts.first_range = min(facts.first_range, number)
    facts.last_range = max(facts.last_range, number)
    return number


@njit
def _row_of(facts, hours, start):
    """The row of an hour; the row after the table if there are too many."""
    row = np.int64((np.uint64(start) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(_ROW_SHIFT))
    while hours[row].used != 0:
        if hours[row].start == start:
            return row
        row = (row + 1) & (HOUR_ROWS - 1)
    if facts.hours == _HOURS_MAX:
        hours[HOUR_ROWS].used = 1
        return np.int64(HOUR_ROWS)
    facts.hours += 1
    hours[row].start = start
    hours[row].used = 1
    return row


@njit
def add_to_cell(facts, digests, stretches, hours, digest, smallest, has_timestamp, records, certain_records):
    """Add the sums of batches to the range, the stretch and the hour that were entered last."""
    digests[facts.range & (DIGESTS - 1)] += digest
    stretches[facts.stretch].smallest_timestamp = min(stretches[facts.stretch].smallest_timestamp, smallest)
    stretches[facts.stretch].has_timestamp |= has_timestamp
    hours[facts.hour_row].records += records
    hours[facts.hour_row].certain_records += certain_records


@njit
def enter_cell(facts, digests, stretches, hours, position, offset, timestamp):
    """Enter the range, the stretch and the hour of a batch."""
    facts.range = _range_of(facts, digests, offset)
    stretch = position >> facts.stretch_shift
    if stretch != facts.stretch:
        facts.stretch = stretch
        stretches[stretch].position = position
    enter_hour(facts, hours, timestamp)


@njit
def enter_hour(facts, hours, timestamp):
    """Enter the hour of a timestamp; −1 has an hour before all others."""
    facts.hour = timestamp - timestamp % HOUR_MS
    facts.hour_row = _row_of(facts, hours, facts.hour)


@njit
def gather_digests(facts, digests, rows, end):
    """Put the digests of the ranges that have batches behind `end` rows, in order, and clear them. Returns how many
    rows there are then.
    """
    for number in range(facts.first_range, facts.last_range + 1):
        slot = number & (DIGESTS - 1)
        if digests[slot] != 0:
            rows[end].start_offset = number << facts.range_shift
            rows[end].offsets = np.int64(1) << facts.range_shift
            rows[end].digest = np.int64(digests[slot])
            digests[slot] = 0
            end += 1
    return end


@njit(
    types.int64(
        types.Array(from_dtype(STRETCH), 1, "C"), types.Array(from_dtype(SMALLEST_TIMESTAMP), 1, "C"), types.int64
    ),
    cache=True,
)
def gather_timestamps(stretches, rows, end):
    """Put the smallest timestamp from the begin on, and from each position where it becomes larger, behind `end` rows,
    and clear the stretches; no row without records. Returns how many rows there are then.
    """
    first, smallest, any_record = end, np.int64(TIMESTAMP_MAX), False
    for number in range(STRETCHES - 1, -1, -1):
        stretch = stretches[number]
        smallest = min(smallest, stretch.smallest_timestamp)
        any_record = any_record or stretch.has_timestamp != 0
        if stretch.position >= 0 and any_record:  # a batch begins in the stretch
            if end == first or rows[end - 1].timestamp_ms != smallest:
                end += 1
            rows[end - 1].position = stretch.position
            rows[end - 1].timestamp_ms = smallest
        stretch.position, stretch.smallest_timestamp, stretch.has_timestamp = -1, TIMESTAMP_MAX, 0
    for number in range((end - first) // 2):  # they were found from the end on
        one, other = rows[first + number], rows[end - 1 - number]
        position, timestamp = one.position, one.timestamp_ms
        one.position, one.timestamp_ms = other.position, other.timestamp_ms
        other.position, other.timestamp_ms = position, timestamp
    return end


@njit(
    types.int64(types.Array(from_dtype(HOUR), 1, "C"), types.Array(from_dtype(HOUR_RECORDS), 1, "C"), types.int64),
    cache=True,
)
def gather_hours(hours, rows, end):
    """Put the records by hour behind `end` rows, in order, those of hours that were not told apart last, and clear the
    hours. Returns how many rows there are then.
    """
    first = end
    for number in range(HOUR_ROWS + 1):
        hour = hours[number]
        if hour.used == 0:
            continue
        if hour.records != 0:
            start = np.int64(FURTHER_HOURS) if number == HOUR_ROWS else max(hour.start, np.int64(-1))
            at = end
            if number < HOUR_ROWS:
                while at > first and rows[at - 1].hour_ms > start:
                    rows[at].hour_ms = rows[at - 1].hour_ms
                    rows[at].records = rows[at - 1].records
                    rows[at].certain_records = rows[at - 1].certain_records
                    at -= 1
            rows[at].hour_ms, rows[at].records, rows[at].certain_records = start, hour.records, hour.certain_records
            end += 1
        hour.start, hour.used, hour.records, hour.certain_records = 0, 0, 0, 0
    return end
