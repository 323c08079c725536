"""The first batch that two replicas do not both have, found in their logs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from kidxlib.catalog.columns import Int32
from kidxlib.catalog.rows import Row, view_of
from kidxlib.catalog.segments import SegmentRow
from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.operations.compare.replicas.verdict import Difference, LogPlace
from kidxlib.records.bulk.batch_table import BatchWalk
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.store.s3 import is_object


@view_of(SegmentRow)
class SegmentToWalk(Row):
    """A segment whose log may be read.

    Its row says how far its bytes are valid; what follows was not compared.
    """

    source: str
    topic: str
    partition: Int32
    base_offset: int
    next_offset: int | None
    valid_bytes: int | None
    log_bytes: int | None
    log_mtime_ns: int | None
    log_path: str


@dataclass(frozen=True, slots=True)
class _FoundBatch:
    """A batch of a log: what is compared of it, and where it is."""

    base_offset: int
    last_offset: int
    crc: int
    place: LogPlace

    @property
    def compared(self) -> tuple[int, int, int]:
        return self.base_offset, self.last_offset, self.crc


def with_first_offset(
    difference: Difference, one: Sequence[SegmentToWalk], other: Sequence[SegmentToWalk]
) -> Difference:
    """The difference with the first offset that differs, if both logs can be read here and are as the catalog knows
    them. Only headers of batches are read.

    Args:
        one, other: the segments of both replicas in the order of offsets, all that may hold something of the range.
    """
    wanted = Wanted(difference.first_offset, difference.last_offset)
    try:
        with contextlib.closing(_batches(one, wanted)) as some, contextlib.closing(_batches(other, wanted)) as others:
            found = _first_pair(some, others)
    except (OSError, LogChangedError, MalformedRecordsError) as error:
        return replace(difference, note=str(error))
    if found is None:
        return replace(difference, note="the logs do not differ there, though the catalog says it: build again")
    offsets = [batch.base_offset for batch in found if batch is not None]
    place, other_place = (None if batch is None else batch.place for batch in found)
    return replace(difference, offset=min(offsets), place=place, other_place=other_place)


def _first_pair(
    some: Iterable[_FoundBatch], others: Iterable[_FoundBatch]
) -> tuple[_FoundBatch | None, _FoundBatch | None] | None:
    """The first batches that are not the same; None where there are none."""
    for pair in itertools.zip_longest(some, others):
        if pair[0] is None or pair[1] is None or pair[0].compared != pair[1].compared:
            return pair
    return None


def _batches(segments: Sequence[SegmentToWalk], wanted: Wanted) -> Generator[_FoundBatch, None, None]:
    """Batches that begin in a range of offsets.

    Raises:
        OSError: a log is an object in a store, or cannot be read.
        LogChangedError: a log is not as the catalog knows it.
        MalformedRecordsError: a header that no batch has.
    """
    for segment in segments:
        next_offset = segment.next_offset
        if segment.base_offset > wanted.last_offset or (next_offset is not None and next_offset <= wanted.first_offset):
            continue
        if is_object(segment.log_path):
            raise OSError(f"{segment.log_path}: an object in a store; logs of this machine alone are walked over")
        with opened_log(segment.log_path) as opened:
            if (opened.version.size, opened.version.mtime_ns) != (segment.log_bytes, segment.log_mtime_ns):
                raise LogChangedError(f"{segment.log_path}: changed since the catalog was built; build again")
            log = opened.log(segment.valid_bytes, use_mmap=False)
            for table in BatchWalk(log, 0, wanted, whole=False).tables():
                for offset, last, crc, at in table.rows[["offset_field", "last_offset", "crc", "position"]].tolist():
                    if wanted.first_offset <= offset <= wanted.last_offset:
                        place = LogPlace(log_path=segment.log_path, position=at)
                        yield _FoundBatch(offset, last, crc, place)
