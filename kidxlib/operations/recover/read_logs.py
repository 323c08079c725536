"""Reads logs for a forecast: once, as the scans are kept for the rebuild."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kidxlib.audit.startup.simulation import Recovery
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.recovery.kept_scans import ScanWriter
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.parallel import recover_in_sections
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.storage.log_bytes import Access, LogBytes, LogTail
from kidxlib.storage.opened_log import opened_log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads logs of one partition.

    Attributes:
        use_mmap: map them, which is faster; a bad sector then kills the process.
        threads: how many may read one log at the same time.
        kept: gets the scans; None where nobody reads the logs again.
        recoveries: what recovering a log as a whole comes to, by base offset.
        epochs: where leader epochs change in these logs.
    """

    use_mmap: bool = False
    threads: int = 1
    kept: ScanWriter | None = None
    recoveries: dict[int, Recovery] = field(default_factory=dict)
    epochs: dict[int, tuple[EpochEntry, ...]] = field(default_factory=dict)

    def read(self, path: str, kept_bytes: int, base_offset: int, options: RecoverOptions) -> Recovery:
        """Read what is left of a log (a `ReadLog`). The checksum of the last batch is checked in any case."""
        with opened_log(path) as opened:
            # Where no checksum is looked at, what stands between headers is not to be read.
            access = Access.SEQUENTIAL if options.verify_crc else Access.NORMAL
            log = opened.log(kept_bytes, use_mmap=self.use_mmap, access=access)
            scanned = recover_in_sections(log, base_offset, options, self.threads)
            if not options.verify_crc:
                scanned = _without_broken_append(log, base_offset, options, scanned)
            recovery = Recovery.of(log, scanned, base_offset)
            if kept_bytes == opened.version.size and base_offset not in self.recoveries:
                self.recoveries[base_offset] = recovery
                self.epochs[base_offset] = tuple(
                    EpochEntry(epoch, start_offset) for epoch, start_offset, _ in scanned.leader_epochs.tolist()
                )
                if self.kept is not None:
                    self.kept.keep(base_offset, opened.version, options, scanned)
        return recovery


def _without_broken_append(
    log: LogBytes, base_offset: int, options: RecoverOptions, scanned: RecoveredSegment
) -> RecoveredSegment:
    """A scan without checksums, without the last batch if that is not whole. Where a kill breaks off a write into a
    preallocated log, the header says more bytes than were written, and zeros follow in the file.
    """
    last = _last_batch(log, scanned)
    if last is None:
        return scanned
    checked = replace(options, verify_crc=True)
    if recover(LogTail(log, last.position), base_offset, checked).facts.batches:
        return scanned
    again = recover(log, base_offset, checked, checked_to=last.position)
    return replace(again, facts=replace(again.facts, log_crc32c=None))  # it was not computed from the start


def _last_batch(log: LogBytes, scanned: RecoveredSegment) -> Batch | None:
    entries = np.frombuffer(scanned.offset_index, layouts.OFFSET_INDEX_ENTRY)
    position = int(entries["position"][-1]) if len(entries) else 0
    end, last = scanned.facts.valid_bytes, None
    coming: Iterator[Batch] = batches(log, position)
    while position < end:
        last = next(coming)
        position = last.next_position
    return last
