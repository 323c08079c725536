"""Scans a large segment: several threads check the checksums of its sections, then one scan reads its headers.

This helps if batches are large. If they are small, the headers alone take as long as all the bytes: each header says
where the next one is, so the scan must wait for memory.

A section need not start with a batch. It counts only if it starts where the section before it ended; the scan checks
all other sections itself. So the result is that of `recover`, wherever sections begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.recovery import check_kernel
from kidxlib.recovery.log_facts.crc32c_kernel import joined_crc32c
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.storage.log_bytes import LogBytes

#: Starting a thread does not pay for less.
_SECTION_BYTES_MIN: Final = 64 * 1024 * 1024
#: With smaller batches on average, a second pass over their headers costs more than several threads save.
_BATCH_BYTES_MIN: Final = 8 * 1024
#: How many batches the average is taken from.
_SAMPLE: Final = 64
#: How many bytes are searched for a batch; Kafka's batches have at most 1 MiB by default.
_PROBE_BYTES: Final = 4 * 1024 * 1024


def recover_in_sections(
    log: LogBytes,
    base_offset: int,
    options: RecoverOptions,
    threads: int,
    offset_index: bytes | None = None,
    section_bytes_min: int = _SECTION_BYTES_MIN,
    batch_bytes_min: int = _BATCH_BYTES_MIN,
) -> RecoveredSegment:
    """Do what `recover` does, with several threads if that is faster: if the log and its batches are large, the whole
    log is in memory, and checksums are to be verified.

    Args:
        threads: the most threads.
        offset_index: an `.index` of this log, whose entries say where batches start. It may be damaged, or another
            log's. If it is missing or wrong, sections begin at batches of magic 2 that a search finds.
    """
    sections_max = min(threads, log.size // section_bytes_min)
    if sections_max < 2 or not options.verify_crc:
        return recover(log, base_offset, options)
    _, data = log.window(0)
    if len(data) < log.size or _average_batch_bytes(data) < batch_bytes_min:
        return recover(log, base_offset, options)
    targets = [log.size * number // sections_max for number in range(1, sections_max)]
    starts = [0, *_section_starts(data, targets, offset_index)]
    with ThreadPoolExecutor(len(starts)) as pool:
        sections = list(pool.map(check_kernel.check_section, repeat(data), starts, [*starts[1:], log.size]))
    checked_to, crc = 0, 0
    for start, (end, section_crc) in zip(starts, sections, strict=True):
        if start != checked_to:
            break
        checked_to, crc = end, joined_crc32c(crc, section_crc, end - start)
    recovered = recover(log, base_offset, options, checked_to, crc)
    if recovered.facts.valid_bytes < checked_to:  # the checksum is of more than the valid bytes
        return recover(log, base_offset, options)
    return recovered


def _average_batch_bytes(data: NDArray[np.uint8]) -> float:
    position, batches = 0, 0
    while batches < _SAMPLE and (end := check_kernel.check_batches(data, position, position + 1)) > position:
        position, batches = end, batches + 1
    return position / max(batches, 1)


def _section_starts(data: NDArray[np.uint8], targets: list[int], offset_index: bytes | None) -> Iterator[int]:
    """Where the first batch seems to start at or after each target. Targets without a batch are left out."""
    indexed = _indexed_positions(offset_index or b"")
    for target, stop in zip(targets, [*targets[1:], len(data)], strict=True):
        number = int(np.searchsorted(indexed, target))
        start = int(indexed[number]) if number < len(indexed) else stop
        if start < stop and check_kernel.check_batches(data, start, start + 1) > start:  # the entry may be wrong
            yield start
        elif (batch_start := check_kernel.find_batch(data, target, min(stop, target + _PROBE_BYTES))) >= 0:
            yield batch_start


def _indexed_positions(offset_index: bytes) -> NDArray[np.int64]:
    """The positions in an `.index` in increasing order, each once; bytes after the last whole entry are ignored."""
    whole = len(offset_index) // layouts.OFFSET_INDEX_ENTRY.itemsize * layouts.OFFSET_INDEX_ENTRY.itemsize
    positions = np.frombuffer(offset_index[:whole], layouts.OFFSET_INDEX_ENTRY)["position"].astype(np.int64)
    return np.unique(positions[positions >= 0])
