"""What producers did in logs that a catalog knows as they are: as a scan of them found it, and without the logs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.columns import Int32
from kidxlib.catalog.conditions import Among, Between, Condition
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.rows import Row, view_of
from kidxlib.catalog.segment_key import SEGMENT_KEY
from kidxlib.catalog.segment_views import SegmentToRead
from kidxlib.catalog.transactions import EVENT_KINDS, PRODUCER_EVENTS, ProducerEventRow
from kidxlib.reading.known_logs import KnownLog
from kidxlib.recovery.partition import NO_EVENTS
from kidxlib.recovery.scan.scan_events import PRODUCER_EVENT, EventKind
from kidxlib.tables.protocol import TablesToRead


@view_of(ProducerEventRow)
class _Event(Row):
    """What transactions follow from."""

    source: str
    topic: str
    partition: Int32
    base_offset: int
    position: int
    producer_id: int
    kind: str
    first_offset: int


class KnownEvents:
    """The table `producer_events` as it is when this is made: after the rows of segments were read, and before logs are
    listed.

    A build writes a segment's events before its row, and takes them away after it. So events of a log that is as its
    row says are those of this state of it: they are no older, as the row was there, and no newer, as the log was not
    another then.
    """

    def __init__(self, tables: TablesToRead) -> None:
        """
        Raises:
            CatalogError: the table cannot be read.
        """
        self._tables, self._version = tables, tables.version(PRODUCER_EVENTS)

    def of(self, logs: Sequence[KnownLog]) -> list[NDArray[np.void] | None]:
        """The events of each log, of dtype `PRODUCER_EVENT`; of their fields only position, producer, kind and first
        offset are set. None where the catalog does not have as many as the log's row says.

        Raises:
            CatalogError: the table cannot be read.
        """
        segments = [log.row for log in logs]
        with_transactions = [segment for segment in segments if segment.transactional_batches]
        events = iter(self._events(with_transactions))
        of_each = [next(events) if segment.transactional_batches else NO_EVENTS for segment in segments]
        return [each if _are_all(each, segment) else None for each, segment in zip(of_each, segments, strict=True)]

    def _events(self, segments: Sequence[SegmentToRead]) -> list[NDArray[np.void]]:
        """The events of each segment."""
        if not segments or self._version is None:
            return [NO_EVENTS] * len(segments)
        rows = self._tables.read(PRODUCER_EVENTS, _Event.names(), _where(segments), self._version)
        columns = zip(*map(_key, segments), strict=True)
        asked = pa.table([list(column) for column in columns], schema=PRODUCER_EVENTS.schema(SEGMENT_KEY))
        places = positions_in(rows, asked, SEGMENT_KEY)
        order = np.lexsort((rows["position"].to_numpy(), places))
        events, places = _to_events(rows)[order], places[order]
        bounds = np.searchsorted(places, np.arange(len(segments) + 1)).tolist()
        return [events[start:end] for start, end in pairwise(bounds)]


def _key(segment: SegmentToRead) -> tuple[str, str, int, int]:
    return segment.source, segment.topic, segment.partition, segment.base_offset


def _where(segments: Sequence[SegmentToRead]) -> list[Condition]:
    """What is true of events of these segments, and of few others."""
    sources, topics, partitions, base_offsets = zip(*map(_key, segments), strict=True)
    where: list[Condition] = [Among("source", sorted(set(sources))), Among("topic", sorted(set(topics)))]
    where.append(Between("partition", min(partitions), max(partitions)))
    if len(set(zip(topics, partitions, strict=True))) == 1:
        where.append(Between("base_offset", min(base_offsets), max(base_offsets)))
    return where


def _to_events(rows: pa.Table) -> NDArray[np.void]:
    events = np.zeros(rows.num_rows, PRODUCER_EVENT)
    for name in ("position", "producer_id", "first_offset"):
        events[name] = rows[name].to_numpy()
    events["kind"] = pc.index_in(rows["kind"], EVENT_KINDS).to_numpy()
    return events


def _are_all(events: NDArray[np.void], segment: SegmentToRead) -> bool:
    """Whether there are as many as the segment's row says: one for each marker, unless compaction has emptied some, and
    one for data if there is any in transactions. And whether a build has seen that producers did nothing that no broker
    lets them do.
    """
    if not segment.is_finished or segment.transactional_batches is None or segment.control_batches is None:
        return False
    counts = np.bincount(events["kind"], minlength=len(EventKind))
    markers = int(counts[EventKind.COMMIT] + counts[EventKind.ABORT])
    are_less = markers < segment.control_batches and bool(counts[EventKind.EMPTY_CONTROL])
    has_data = segment.transactional_batches <= segment.control_batches or bool(counts[EventKind.TRANSACTIONAL_DATA])
    return (markers == segment.control_batches or are_less) and has_data
