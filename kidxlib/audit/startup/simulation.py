"""The result of a start-up simulation: what a starting broker would do with a partition and with each of its segments,
and what recovering one comes to.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd
from kidxlib.recovery.past_end import NOTHING_PAST, PastEnd, past_end
from kidxlib.recovery.recover import RecoveredSegment, ScannedLogs, recover, recovered_of
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.opened_log import LogFile

#: The minor versions of brokers whose own start was compared with the simulation. In 3.9 and 4.0 a
#: search for an offset ends at the first batch that does not end below it (`FileRecords.searchForOffsetWithSize`), in
#: 4.1 and later it goes by base offsets (`searchForOffsetFromPosition`). So where offsets go back from batch to batch,
#: which no broker writes, the log end offset may be another, and what is read for producers.
HOLDS_FOR: Final = ("3.9", "4.0", "4.1", "4.2", "4.3", "4.4")


class StartupAction(enum.StrEnum):
    """What a starting broker does with a segment."""

    LOAD = "load"  # as it is
    REBUILD = "rebuild"  # its log is read, and all of its indexes are rebuilt
    TRUNCATE = "truncate"  # as REBUILD, and the log is truncated to its last valid batch
    EMPTY = "empty"  # its log is truncated to nothing
    DELETE = "delete"  # it stands after one that is truncated or emptied, or below the log start offset
    FAIL = "fail"  # loading fails, and takes the log dir out of use
    SPLIT = "split"  # into several; what follows is not simulated


class Removal(enum.StrEnum):
    """Why a file is removed before segments are loaded."""

    DELETED = "marked as deleted"
    CLEANED = "left by the cleaner, unfinished"
    SWAP = "of a swap that was not complete"
    SWAPPED = "replaced by the files that are swapped in"
    ORPHAN = "an index without a log"


@dataclass(slots=True)
class SimulatedSegment:
    """What a broker's next start makes of one segment.

    It is not frozen: the passes of a simulated start change it one after the other, as a broker's do. Nothing changes
    it after the start has ended.

    Attributes:
        base_offset: the offset in its file names.
        action: what the broker does with it.
        log_bytes: size of its log now.
        kept_bytes: how many of these are left.
        read_bytes: what the broker reads of it, which may be its log twice.
        lost_batches, lost_records: how many are dropped; None if that is not known for certain.
        next_offset: the offset after what is kept; None where the broker did not recover it.
        detail: why.
    """

    base_offset: int
    action: StartupAction
    log_bytes: int
    kept_bytes: int
    read_bytes: int = 0
    lost_batches: int | None = 0
    lost_records: int | None = 0
    next_offset: int | None = None
    detail: str | None = None

    @property
    def lost_bytes(self) -> int:
        return self.log_bytes - self.kept_bytes


@dataclass(slots=True)
class StartupSimulation:
    """What a broker's next start makes of a partition. It is not frozen, for the reason that `SimulatedSegment` is not.

    Attributes:
        segments: what becomes of each, by base offset.
        removed: names of files that are removed first, and why.
        renamed: names of files that lose their `.swap`.
        log_start_offset: the first offset that is served; None where loading does not come to it.
        log_end_offset: None where loading fails at a segment, or a segment is split.
        failures: why a broker does not start with it, besides segments. The segments are reported as if that were
            mended.
        ends_below_start: where the log ends, if that is below its log start, so that all of it is deleted; else None.
        forgets_producers: there is no producer snapshot, and after a clean stop a broker takes that for no producers.
    """

    segments: list[SimulatedSegment] = field(default_factory=list)
    removed: dict[str, Removal] = field(default_factory=dict)
    renamed: list[str] = field(default_factory=list)
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    failures: list[str] = field(default_factory=list)
    ends_below_start: int | None = None
    forgets_producers: bool = False

    @property
    def read_bytes(self) -> int:
        return sum(segment.read_bytes for segment in self.segments)

    @property
    def left(self) -> list[SimulatedSegment]:
        """The segments that the broker does not delete."""
        return [segment for segment in self.segments if segment.action is not StartupAction.DELETE]

    @property
    def fails(self) -> bool:
        return bool(self.failures) or any(segment.action is StartupAction.FAIL for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecovery:
    """What the recovery of a segment's log finds, whether a starting broker recovers that segment or an audit has read
    it.

    Attributes:
        log_bytes: size of its log when it was read.
        end: where and why the scan ended.
        next_offset, map_end_offset: as in `SegmentFacts`.
        batches, records: up to the end of the scan; no records where wrappers hide their count.
        past: what is in the file after the end of the scan.
        max_timestamp_ms: the largest timestamp of all batches, in ms since the epoch; −1: none.
        highest_producer_id: of all batches; −1: none has one.
        transactional_batches: how many are of transactions, markers among them; None: they were not counted.
    """

    log_bytes: int
    end: ScanEnd
    next_offset: int
    map_end_offset: int
    batches: int
    records: int | None
    past: PastEnd
    max_timestamp_ms: int = -1
    highest_producer_id: int = -1
    transactional_batches: int | None = None

    @classmethod
    def of(cls, log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> Self:
        facts, end = recovered.facts, recovered.end
        return cls(
            log_bytes=log.size,
            end=end,
            next_offset=facts.next_offset,
            map_end_offset=facts.map_end_offset,
            batches=facts.batches,
            records=facts.records,
            past=past_end(log, recovered, base_offset),
            max_timestamp_ms=facts.max_timestamp_ms,
            highest_producer_id=int(recovered.producer_events["producer_id"].max(initial=-1)),
            transactional_batches=facts.transactional_batches,
        )

    @classmethod
    def read(cls, path: str, kept_bytes: int, base_offset: int, options: RecoverOptions) -> Self:
        """The recovery of what is left of a log, which is read for it."""
        with contextlib.closing(LogFile(path)) as log:
            log.keep_valid(kept_bytes)
            return cls.of(log, recover(log, base_offset, options), base_offset)

    def may_lack_records(self, base_offset: int) -> bool:
        """Whether the log has fewer records than offsets, or old wrappers that hide how many it has."""
        return self.records is None or self.records < self.next_offset - base_offset


def recoveries_of(
    logs: Sequence[LogBytes], base_offsets: Sequence[int], scans: ScannedLogs
) -> Iterator[SegmentRecovery]:
    """`SegmentRecovery.of` of logs that were scanned together."""
    states, of_events = scans.states, scans.bounds["producer_events"].tolist()
    names = (
        "next_offset",
        "map_end_offset",
        "batches",
        "records",
        "compressed_messages",
        "max_timestamp",
        "transactional_batches",
    )
    columns = zip(*(states[name].tolist() for name in names), strict=True)
    for number, (log, base_offset, end, of_log) in enumerate(
        zip(logs, base_offsets, scans.ends(), columns, strict=True)
    ):
        next_offset, map_end_offset, batches, records, compressed_messages, max_timestamp_ms, transactional = of_log
        first, stop = of_events[number : number + 2]
        is_whole = end.position >= log.size
        yield SegmentRecovery(
            log_bytes=log.size,
            end=end,
            next_offset=next_offset,
            map_end_offset=map_end_offset,
            batches=batches,
            records=None if compressed_messages else records,
            past=NOTHING_PAST if is_whole else past_end(log, recovered_of(scans, number), base_offset),
            max_timestamp_ms=max_timestamp_ms,
            highest_producer_id=int(scans.producer_events["producer_id"][first:stop].max()) if first < stop else -1,
            transactional_batches=transactional,
        )


#: Reads what is left of a log: its path, the bytes that are left, the base offset, and the options of its topic.
ReadLog: TypeAlias = Callable[[str, int, int, RecoverOptions], SegmentRecovery]
