"""Gaps between logs that reading meets: offsets that are neither in a log nor in the one after it.

The cleaner leaves such gaps, and a segment that was lost does. Logs of a topic that lack records within tell that the
cleaner was there (`kidxlib.audit.gaps` has more evidence, and asks who knows the offsets). Here nothing is read for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.format.layouts import MAGIC_V2
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.left_out import LeftOut, Why


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log, or a part of one, that was read to its end.

    Attributes:
        next_offset: behind its last batch, or where what is wanted begins, if that is later.
        end_offset: where the next log begins; the same where none does, or nothing from there on is wanted.
        lacks_records: offsets are missing within it.
    """

    topic: str
    partition: int
    next_offset: int
    end_offset: int
    lacks_records: bool


#: Takes each log, or part of one, that was read to its end.
TakeLog: TypeAlias = Callable[[LogRead], object]


def lacks_records(rows: NDArray[np.void], last_offset: int) -> bool:
    """Whether offsets are missing between batches that follow one another, or batches have fewer records than offsets.

    Args:
        last_offset: of the batch before; below 0 where there is none.
    """
    is_v2 = rows["magic"] >= MAGIC_V2
    begins = np.where(is_v2, rows["offset_field"], rows["last_offset"])
    before = np.concatenate([[last_offset if last_offset >= 0 else begins[0] - 1], rows["last_offset"][:-1]])
    is_cut = is_v2 & (rows["records_count"] < rows["last_offset"] - begins + 1)
    return bool((begins > before + 1)[is_v2].any() or is_cut.any())


def gaps_of(logs: Iterable[LogRead]) -> list[LeftOut]:
    """The gaps that no compaction explains, as far as the logs that were read tell."""
    found = list(logs)
    compacted = {log.topic for log in found if log.lacks_records}
    return [
        LeftOut(
            partition=TopicPartition(log.topic, log.partition),
            why=Why.BETWEEN_LOGS,
            first_offset=log.next_offset,
            end_offset=log.end_offset,
            edge=log.end_offset,
        )
        for log in found
        if log.next_offset < log.end_offset and log.topic not in compacted
    ]
