"""Reads logs for a forecast: once, as the scans are kept for the rebuild. Small logs of many partitions are read in one
pass (`read_logs_together`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.startup.simulation import SegmentRecovery, recoveries_of
from kidxlib.errors import LogChangedError
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.recovery.kept_scans import KeptScansWriter, PassPlace
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, recover, recover_in_sections, scan_logs
from kidxlib.storage.log_bytes import Access, LogBytes, LogTail
from kidxlib.storage.opened_log import OpenedTogether, opened_log


@dataclass(frozen=True, slots=True)
class SmallLog:
    """A log to read together with others."""

    path: str
    base_offset: int
    options: RecoverOptions


@dataclass(frozen=True, slots=True)
class EarlierRead:
    """What was found in a log that was read before: together with others, or by an earlier run.

    Attributes:
        options: with which it was scanned.
        epochs: where leader epochs change in it.
        kept: where the scans of its pass are kept; None where they are not.
        number: its number among these.
    """

    options: RecoverOptions
    recovery: SegmentRecovery
    epochs: tuple[EpochEntry, ...]
    kept: PassPlace | None = None
    number: int = 0


#: What an earlier run has found in a log, by its path, with these options; None: it is to be read.
FoundBefore: TypeAlias = Callable[[str, RecoverOptions], EarlierRead | None]


def log_path(directory: Path, base_offset: int) -> str:
    """The path of a log to read for a forecast, as `LogReader` and `read_logs_together` know it."""
    return f"{directory}/{segment_file(base_offset, LOG_SUFFIX)}"


def read_logs_together(
    logs: Sequence[SmallLog], use_mmap: bool, room: NDArray[np.uint8], kept: KeptScansWriter | None
) -> dict[str, EarlierRead]:
    """Read small logs for forecasts in one pass, by their paths. One that is not small, that cannot be read or that
    changes meanwhile is left out: who needs it reads it alone, and says what is wrong. `room` is that of
    `OpenedTogether`.
    """
    if not logs:
        return {}
    opened_ones: list[SmallLog] = []
    with OpenedTogether(room) as opened:
        for log in logs:
            with contextlib.suppress(LogChangedError, OSError):
                if opened.open(log.path, use_mmap=use_mmap) is not None:
                    opened_ones.append(log)
        base_offsets, options = [log.base_offset for log in opened_ones], [log.options for log in opened_ones]
        scans = scan_logs(opened.logs, base_offsets, options)
        recoveries = list(recoveries_of(opened.logs, base_offsets, scans))
        are_same = [_is_unchanged(opened, number) for number in range(len(opened_ones))]
    place = None if kept is None else kept.keep_pass(opened.versions, options, scans)
    return {
        log.path: EarlierRead(
            options=log.options,
            recovery=recovery,
            epochs=_epoch_entries(scans.of_log("leader_epochs", number)),
            kept=place,
            number=number,
        )
        for number, (log, recovery, is_same) in enumerate(zip(opened_ones, recoveries, are_same, strict=True))
        if is_same
    }


def _is_unchanged(opened: OpenedTogether, number: int) -> bool:
    try:
        opened.ensure_unchanged(number)
    except LogChangedError:
        return False
    return True


def _epoch_entries(changes: NDArray[np.void]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start_offset) for epoch, start_offset, _ in changes.tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """Reads logs of one partition.

    Attributes:
        use_mmap: map them, which is faster; a bad sector then kills the process.
        threads: how many may read one log at the same time.
        kept: gets the scans; None where nobody reads the logs again.
        known: logs that were read before, by their paths.
        recoveries: what recovering a log as a whole comes to, by base offset.
        epochs: where leader epochs change in these logs.
        end_epochs: of logs of which only the ends were read, the epochs there.
    """

    use_mmap: bool = False
    threads: int = 1
    kept: KeptScansWriter | None = None
    known: Mapping[str, EarlierRead] = field(default_factory=dict)
    recoveries: dict[int, SegmentRecovery] = field(default_factory=dict)
    epochs: dict[int, tuple[EpochEntry, ...]] = field(default_factory=dict)
    end_epochs: dict[int, tuple[EpochEntry, ...]] = field(default_factory=dict)

    def read(self, path: str, kept_bytes: int, base_offset: int, options: RecoverOptions) -> SegmentRecovery:
        """Read what is left of a log (a `ReadLog`). The checksum of the last batch is checked in any case."""
        known = self.known.get(path)
        if known is not None and (known.options, known.recovery.log_bytes) == (options, kept_bytes):
            if base_offset not in self.recoveries:
                self.recoveries[base_offset], self.epochs[base_offset] = known.recovery, known.epochs
                if self.kept is not None and known.kept is not None:
                    self.kept.keep_of_pass(base_offset, known.kept, known.number)
            return known.recovery
        with opened_log(path) as opened:
            # Where no checksum is looked at, what stands between headers is not to be read.
            access = Access.SEQUENTIAL if options.verify_crc else Access.NORMAL
            log = opened.log(kept_bytes, use_mmap=self.use_mmap, access=access)
            scanned = recover_in_sections(log, base_offset, options, self.threads)
            if not options.verify_crc:
                scanned = _without_broken_append(log, base_offset, options, scanned)
            recovery = SegmentRecovery.of(log, scanned, base_offset)
            if kept_bytes == opened.version.size and base_offset not in self.recoveries:
                self.recoveries[base_offset] = recovery
                self.epochs[base_offset] = _epoch_entries(scanned.leader_epochs)
                if self.kept is not None:
                    self.kept.keep(base_offset, opened.version, options, scanned)
        return recovery


def _without_broken_append(
    log: LogBytes, base_offset: int, options: RecoverOptions, scanned: RecoveredSegment
) -> RecoveredSegment:
    """A scan without checksums, without the last batch if that is not whole. Where a kill breaks off a write into a
    preallocated log, the header says more bytes than were written, and zeros follow in the file.
    """
    last = _last_scanned_batch(log, scanned)
    if last is None:
        return scanned
    checked = replace(options, verify_crc=True)
    if recover(LogTail(log, last.position), base_offset, checked).facts.batches:
        return scanned
    again = recover(log, base_offset, checked, checked_to=last.position)
    return replace(again, facts=replace(again.facts, log_crc32c=None))  # it was not computed from the start


def _last_scanned_batch(log: LogBytes, scanned: RecoveredSegment) -> BatchHeader | None:
    entries = np.frombuffer(scanned.offset_index, layouts.OFFSET_INDEX_ENTRY)
    position = int(entries["position"][-1]) if len(entries) else 0
    end, last = scanned.facts.valid_bytes, None
    coming: Iterator[BatchHeader] = batches(log, position)
    while position < end:
        last = next(coming)
        position = last.next_position
    return last
