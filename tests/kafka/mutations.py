"""Real segments, changed at random: for what nobody thought of."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

from kidxlib.format import layouts

#: Where a batch's size, magic and checksum stand.
_SIZE_AT: Final = layouts.field_position(layouts.BATCH_V2, "batch_length")
_MAGIC_AT: Final = layouts.field_position(layouts.BATCH_V2, "magic")
_V1_CRC_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "crc")
_V2_CRC_AT: Final = layouts.field_position(layouts.BATCH_V2, "crc")
_V2_ATTRIBUTES_AT: Final = layouts.field_position(layouts.BATCH_V2, "attributes")
#: Header and record of a control batch.
_MARKER_BYTES: Final = 78
#: Bytes of it that decide most: what kind of batch it is, whose, and the record.
_DECISIVE: Final = (
    *[_V2_ATTRIBUTES_AT + 1] * 4,
    *[layouts.field_position(layouts.BATCH_V2, "producer_id") + 7] * 4,
    layouts.field_position(layouts.BATCH_V2, "records_count") + 3,
    *range(layouts.BATCH_V2.itemsize, _MARKER_BYTES),
)

#: A mutated log starts from at most this many bytes of a segment, in whole batches, ...
_SECTION_BYTES_MAX: Final = 64 * 1024
#: ... somewhere in the first of these.
_READ_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mutated:
    """A log that was changed, and how."""

    log: bytes
    done: tuple[str, ...]


def mutated_log(rng: random.Random, segment: Path, others: Sequence[Path]) -> Mutated:
    """Some batches of a segment, after one to three mutations. Half of such logs then have checksums that fit.

    Args:
        others: segments that batches may be taken from.
    """
    log = bytearray(_section(rng, segment))
    done = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        mutate = rng.choice((_flip_bits, _flip_bits, _flip_bits, _cut, _splice, _zero, _repeat))
        done.append(f"{mutate.__name__}: {mutate(rng, log, others)}")
    if rng.random() < 0.5:
        _fix_checksums(log)
        done.append("checksums fixed")
    return Mutated(bytes(log), tuple(done))


def _starts(log: bytes | bytearray) -> list[int]:
    """Where batches start, as far as their sizes lead, and where the last one ends."""
    starts = [0]
    while len(log) - starts[-1] > layouts.HEADER_SIZE_UP_TO_MAGIC:
        at = starts[-1] + _SIZE_AT
        size = int.from_bytes(log[at : at + 4], signed=True)
        end = starts[-1] + layouts.LOG_OVERHEAD + size
        if size < layouts.ENTRY_SIZE_MIN or end > len(log):
            break
        starts.append(end)
    return starts


def _section(rng: random.Random, segment: Path) -> bytes:
    with segment.open("rb") as file:
        log = file.read(_READ_BYTES_MAX)
    starts = _starts(log)
    first = rng.choice(starts[:-1] or [0])
    length = rng.choice((200, 2000, _SECTION_BYTES_MAX))
    ends = [end for end in starts if end > first] or [len(log)]
    return log[first : max([ends[0], *[end for end in ends if end <= first + length]])]


def _flip_bits(rng: random.Random, log: bytearray, others: Sequence[Path]) -> str:
    """Some bits, most often within a batch's header and what follows it, where most is at stake."""
    places = []
    starts = _starts(log)
    controls = [start for start in starts[:-1] if log[start + _V2_ATTRIBUTES_AT + 1] & layouts.ATTRIBUTE_CONTROL]
    for _ in range(rng.choice((1, 1, 2, 8)) if log else 0):
        place = rng.randrange(len(log))
        if rng.random() < 0.8:
            start = rng.choice(controls if controls and rng.random() < 0.5 else starts)
            place = start + rng.choice((rng.randrange(_MARKER_BYTES), rng.choice(_DECISIVE)))
            place = min(place, len(log) - 1)
        log[place] ^= 1 << rng.randrange(8)
        places.append(place)
    return f"at {places}"


def _cut(rng: random.Random, log: bytearray, others: Sequence[Path]) -> str:
    length = rng.randrange(len(log) + 1)
    del log[length:]
    return f"to {length}"


def _splice(rng: random.Random, log: bytearray, others: Sequence[Path]) -> str:
    """Batches of another segment, between two or within one."""
    piece = _section(rng, rng.choice(others))
    place = rng.choice(_starts(log)) if rng.random() < 0.8 else rng.randrange(len(log) + 1)
    log[place:place] = piece
    return f"{len(piece)} bytes at {place}"


def _zero(rng: random.Random, log: bytearray, others: Sequence[Path]) -> str:
    start, end = _range(rng, log)
    log[start:end] = bytes(end - start)
    return f"{start} to {end}"


def _repeat(rng: random.Random, log: bytearray, others: Sequence[Path]) -> str:
    start, end = _range(rng, log)
    log[end:end] = log[start:end]
    return f"{start} to {end}"


def _range(rng: random.Random, log: bytearray) -> tuple[int, int]:
    """Two positions, in half of all cases those of batches."""
    if rng.random() < 0.5:
        starts = _starts(log)
        start, end = sorted((rng.choice(starts), rng.choice(starts)))
        return start, end
    start = rng.randrange(len(log) + 1)
    return start, min(start + rng.choice((1, 4, 8, 100, 5000)), len(log))


def _fix_checksums(log: bytearray) -> None:
    """Give each batch the checksum of what it holds now."""
    starts = _starts(log)
    for start, end in itertools.pairwise(starts):
        magic = log[start + _MAGIC_AT]
        if layouts.MAGIC_V2 <= magic < 128:
            at, crc = start + _V2_CRC_AT, google_crc32c.value(bytes(log[start + _V2_ATTRIBUTES_AT : end]))
        else:
            at, crc = start + _V1_CRC_AT, zlib.crc32(log[start + _MAGIC_AT : end])
        if at + 4 <= end:
            log[at : at + 4] = crc.to_bytes(4)
