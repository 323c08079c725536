"""What recovering a segment comes to, if a broker must recover it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd
from kidxlib.recovery.past_end import PastEnd, past_end
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.log_bytes import LogBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovering a segment comes to.

    Attributes:
        log_bytes: size of its log when it was read.
        end: where and why the scan ended.
        next_offset, map_end_offset: as in `SegmentFacts`.
        batches, records: up to the end of the scan; no records where wrappers hide their count.
        past: what is in the file after the end of the scan.
    """

    log_bytes: int
    end: ScanEnd
    next_offset: int
    map_end_offset: int
    batches: int
    records: int | None
    past: PastEnd

    @classmethod
    def of(cls, log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> Self:
        """What a scan of `log` has found.

        Raises:
            OSError, LogChangedError: the log cannot be read.
        """
        facts, end = recovered.facts, recovered.end
        return cls(
            log_bytes=log.size,
            end=end,
            next_offset=facts.next_offset,
            map_end_offset=facts.map_end_offset,
            batches=facts.batches,
            records=facts.records,
            past=past_end(log, recovered, base_offset),
        )


#: Reads what is left of a log: its path, the bytes that are left, the base offset, and the options of its topic.
ReadLog: TypeAlias = Callable[[str, int, int, RecoverOptions], Recovery]


def read_in_chunks(path: str, kept_bytes: int, base_offset: int, options: RecoverOptions) -> Recovery:
    """Read what is left of a log, a chunk at a time.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    log = LogFile(path)
    log.keep_valid(kept_bytes)
    try:
        return Recovery.of(log, recover(log, base_offset, options), base_offset)
    finally:
        log.close()
