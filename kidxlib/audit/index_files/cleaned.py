"""Which offsets of a partition no batch holds, though its logs go on behind: the cleaner took the batches out."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.index_files.reading import read_index
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.errors import LogChangedError
from kidxlib.format import segment_files
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kidxlib.index.offset import OffsetIndex
from kidxlib.records import header_search
from kidxlib.records.header_search import SearchOutcome
from kidxlib.recovery.outcome import USABLE
from kidxlib.storage.location import Location
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log


@dataclass(frozen=True, slots=True)
class CleanedLogs:
    """The logs of a partition, to be asked for single offsets. They are opened when they are asked, and no sooner.

    Attributes:
        logs: by base offset.
        broken: the base offsets and suffixes of index files that lead nowhere.
    """

    directory: Location
    index_directory: Location
    logs: Sequence[AuditedLog]
    broken: Container[tuple[int, str]]

    def are_cleaned(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether no batch holds these offsets, though the logs go on behind them."""
        found = np.zeros(len(offsets), np.bool_)
        for number, log in enumerate(self.logs):
            if log.recovery is None or log.recovery.end.status not in USABLE:
                continue
            is_last = number + 1 == len(self.logs)
            end = log.recovery.next_offset if is_last else self.logs[number + 1].base_offset
            asked = np.flatnonzero((offsets >= log.base_offset) & (offsets < end))
            if len(asked):
                found[asked] = self._lacks(log.base_offset, offsets[asked])
        return found

    def any_between(self, first: int, end: int) -> bool:
        """Whether a log that has offsets from `first` to below `end` lacks some of its offsets."""
        recoveries = [(log.base_offset, log.recovery) for log in self.logs if log.recovery is not None]
        return any(
            base_offset < end and recovery.next_offset > first and _lacks_some(recovery, base_offset)
            for base_offset, recovery in recoveries
        )

    def _lacks(self, base_offset: int, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        order = np.argsort(offsets, kind="stable")
        walks = header_search.new_walks(offsets[order], self._starts(base_offset, offsets[order]))
        path = self.directory / segment_files.segment_file(base_offset, LOG_SUFFIX)
        try:
            with opened_log(str(path)) as opened:
                header_search.walk(
                    opened.log(use_mmap=False, access=Access.RANDOM), walks, header_search.step_to_offsets
                )
        except (LogChangedError, OSError):
            return np.zeros(len(offsets), np.bool_)
        is_behind = (walks["outcome"] == SearchOutcome.FOUND) & (walks["base_offset"] > walks["target"])
        lacks = np.empty(len(offsets), np.bool_)
        lacks[order] = is_behind | (walks["outcome"] == SearchOutcome.NONE)
        return lacks

    def _starts(self, base_offset: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        content = None
        if (base_offset, OFFSET_INDEX_SUFFIX) not in self.broken:
            path = self.index_directory / segment_files.segment_file(base_offset, OFFSET_INDEX_SUFFIX)
            content = read_index(path, use_mmap=False)
        if content is None or isinstance(content, OSError):
            return np.zeros(len(offsets), np.int64)
        starts: NDArray[np.int64] = OffsetIndex.from_bytes(content, base_offset).lookup_many(offsets)["position"]
        return starts


def _lacks_some(recovery: Recovery, base_offset: int) -> bool:
    return recovery.records is None or recovery.records < recovery.next_offset - base_offset
