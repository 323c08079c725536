"""A large segment, its checksums computed in pieces by several threads, and then one scan over its headers.

That pays where batches are large. Where they are small, the headers alone take as long as all the bytes: each of them
says where the next one is, and so it has to wait for memory.

That a piece starts with a batch is never taken for granted: a piece counts where the one before it ended, and what does
not count the scan checks itself. So the result is that of `recover`, whatever the positions were that it was cut at.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib import formats, kernels
from kidxlib.recover import RecoveredSegment, RecoverOptions, recover
from kidxlib.storage import LogBytes

#: A thread is not worth its start for less.
PIECE_BYTES_MIN: Final = 64 * 1024 * 1024
#: Where batches are smaller on average, a second pass over their headers costs more than several threads save.
BATCH_BYTES_MIN: Final = 8 * 1024
#: How many batches are taken for the average.
_SAMPLE: Final = 64
#: A batch is looked for in so many bytes; Kafka's have 1 MiB at most by default.
_PROBE_BYTES: Final = 4 * 1024 * 1024


def recover_in_pieces(
    log: LogBytes,
    base_offset: int,
    options: RecoverOptions,
    threads: int,
    offset_index: bytes | None = None,
    piece_bytes_min: int = PIECE_BYTES_MIN,
    batch_bytes_min: int = BATCH_BYTES_MIN,
) -> RecoveredSegment:
    """`recover`, with several threads where that pays: the log and its batches are large, and it is in memory as a
    whole and to be checked.

    Args:
        threads: how many, at most.
        offset_index: an `.index` of this log, whose entries tell where batches start; it may be damaged, or another's.
            Without it, and where its entries are wrong, pieces are found by looking for a batch of magic 2.

    Raises:
        LogChangedError: see `recover`.
    """
    pieces = min(threads, log.size // piece_bytes_min)
    if pieces < 2 or not options.verify_crc:
        return recover(log, base_offset, options)
    _, data = log.window(0)
    if len(data) < log.size or _average_batch_bytes(data) < batch_bytes_min:
        return recover(log, base_offset, options)
    starts = [0, *_starts(data, [log.size * number // pieces for number in range(1, pieces)], offset_index)]
    with ThreadPoolExecutor(len(starts)) as pool:
        ends = list(pool.map(kernels.check_batches, repeat(data), starts, [*starts[1:], log.size]))
    checked_to = 0
    for start, end in zip(starts, ends, strict=True):
        if start != checked_to:
            break
        checked_to = end
    return recover(log, base_offset, options, checked_to)


def _average_batch_bytes(data: NDArray[np.uint8]) -> float:
    position, batches = 0, 0
    while batches < _SAMPLE and (end := kernels.check_batches(data, position, position + 1)) > position:
        position, batches = end, batches + 1
    return position / max(batches, 1)


def _starts(data: NDArray[np.uint8], wanted: list[int], offset_index: bytes | None) -> Iterator[int]:
    """Where batches seem to start at or behind each wanted position, but for those behind which none was found."""
    indexed = _positions(offset_index or b"")
    for position, stop in zip(wanted, [*wanted[1:], len(data)], strict=True):
        near = indexed[np.searchsorted(indexed, position) :][:1]
        if len(near) and near[0] < stop and kernels.check_batches(data, int(near[0]), int(near[0]) + 1) > near[0]:
            yield int(near[0])
        elif (found := kernels.find_batch(data, position, min(stop, position + _PROBE_BYTES))) >= 0:
            yield found


def _positions(offset_index: bytes) -> NDArray[np.int64]:
    whole = len(offset_index) // formats.OFFSET_INDEX_ENTRY.itemsize * formats.OFFSET_INDEX_ENTRY.itemsize
    positions = np.frombuffer(offset_index[:whole], formats.OFFSET_INDEX_ENTRY)["position"].astype(np.int64)
    return np.unique(positions[positions >= 0])
