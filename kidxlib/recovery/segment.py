"""Scans one segment's log: its index bytes, the facts for the catalog, the checksum of the whole log, and why the scan
ended.

`recover` returns byte for byte what `LogSegment.recover` of Kafka writes into `.index` and `.timeindex`, without
truncating the log. If Kafka would fail, the scan ends as `quarantined` and its bytes must not be published. Producers
and leader epochs depend on earlier segments, so `recover` returns events for `kidxlib.recovery.partition_fold`.

Of a large segment, several threads check the checksums of sections, then one scan reads the headers
(`recover_in_sections`). This helps if batches are large. If they are small, the headers alone take as long as all the
bytes: each header says where the next one is, so the scan must wait for memory. A section need not start with a batch.
It counts only if it starts where the section before it ended; the scan checks all other sections itself. So the result
is that of `recover`, wherever sections begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.recovery import check_kernel
from kidxlib.recovery.check_kernel import joined_crc32c
from kidxlib.recovery.facts import (
    SegmentFacts,
    codecs_of,
    magics_of,
    offset_digests,
    records_by_hour,
    smallest_of,
    smallest_timestamps,
)
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, scan_end
from kidxlib.recovery.scan.scan_state import SCAN_STATE
from kidxlib.recovery.scanned_logs import NOT_KNOWN, ScannedLogs, scan_logs
from kidxlib.storage.log_bytes import LogBytes

_STATE_FIELDS: Final = tuple(SCAN_STATE.names or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """A scanned segment. The index bytes of a quarantined one end at the failure and must not be published.

    Attributes:
        end: where and why the scan ended, with the segment's status.
        facts: from the batch headers of the valid prefix.
        odd_position: where the first batch of the valid prefix starts that no broker writes: its offsets are not above
            those before it, or its magic is not 0, 1 or 2. Kafka's recovery accepts it. None: there is none.
        offset_index: the bytes of the `.index`.
        time_index: the bytes of the `.timeindex`.
        producer_events: of shape (n,), in the order of the log, with the fields `position`,
            `producer_id`, `kind`, `producer_epoch`, `first_offset`, `last_offset`, `offset_delta`, `last_sequence`,
            `timestamp` and `coordinator_epoch` (`scan_state.PRODUCER_EVENT`).
        leader_epochs: where the leader epoch changes from batch to batch, of shape (n,), with the fields `epoch`,
            `start_offset` and `position` (`scan_state.LEADER_EPOCH`).
    """

    end: ScanEnd
    facts: SegmentFacts
    odd_position: int | None
    offset_index: bytes
    time_index: bytes
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]


def recover(
    log: LogBytes, base_offset: int, options: RecoverOptions, checked_to: int = 0, checked_crc32c: int = 0
) -> RecoveredSegment:
    """Scan a segment's log as `LogSegment.recover` does, without changing it. The arguments are those of `scan_logs`.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    return recovered_of(scan_logs([log], [base_offset], [options], checked_to, checked_crc32c), 0)


def recovered_of(scanned: ScannedLogs, number: int) -> RecoveredSegment:
    """One of the scanned segments."""
    state = scanned.states[number]
    return RecoveredSegment(
        end=scan_end(state),
        facts=_facts(scanned, number),
        odd_position=int(state["odd_position"]) if state["odd_position"] >= 0 else None,
        offset_index=scanned.of_log("offset_index", number).tobytes(),
        time_index=scanned.of_log("time_index", number).tobytes(),
        producer_events=scanned.of_log("producer_events", number),
        leader_epochs=scanned.of_log("leader_epochs", number),
    )


def _facts(scanned: ScannedLogs, number: int) -> SegmentFacts:
    state = dict(zip(_STATE_FIELDS, scanned.states[number].item(), strict=True))

    def known(field: str) -> int | None:
        return state[field] if state[field] >= 0 else None

    log_crc32c = int(scanned.log_crc32c[number])
    is_certain = not scanned.header_facts["uncertain_batches"][number]
    smallest = smallest_timestamps(scanned.of_log("timestamps", number)) if is_certain else None
    hours = None if state["compressed_messages"] else records_by_hour(scanned.of_log("hours", number))
    return SegmentFacts(
        next_offset=state["next_offset"],
        valid_bytes=state["position"],
        batches=state["batches"],
        records=None if state["compressed_messages"] else state["records"],
        max_timestamp_ms=state["max_timestamp"],
        offset_of_max_timestamp=known("offset_of_max_timestamp"),
        first_leader_epoch=known("first_leader_epoch"),
        last_leader_epoch=known("last_leader_epoch"),
        magics=magics_of(state["magics"]),
        codecs=codecs_of(state["codecs"]),
        transactional_batches=state["transactional_batches"],
        control_batches=state["control_batches"],
        offset_entries=state["offset_entries"],
        time_entries=state["time_entries"],
        map_end_offset=state["map_end_offset"],
        offsets_increase=not state["disordered"],
        log_crc32c=None if log_crc32c == NOT_KNOWN else log_crc32c,
        log_crc64nvme=None,
        offset_digests=offset_digests(scanned.of_log("digests", number)),
        smallest_timestamp_ms=None if smallest is None else smallest_of(smallest),
        smallest_timestamps=smallest,
        records_by_hour=hours,
    )


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
