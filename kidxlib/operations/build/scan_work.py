"""Reads and indexes segments in a worker: a row of facts for each, and one for each event of a producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.index_bytes import packed_batches
from kidxlib.catalog.results import SCANNED, PublishedSegmentRow, Publishing
from kidxlib.catalog.segments import EndFacts, IndexFacts, LogVersion, ReadCost
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.engine.work import ItemRows
from kidxlib.indexing.plan import SegmentsToBuild
from kidxlib.indexing.segments import NOT_READ, BuiltSegment, BuiltSegments, build_together
from kidxlib.indexing.tasks import BuildTask
from kidxlib.operations.build.scanned_rows import segment_batches
from kidxlib.operations.events import event_batches, from_leader_epochs
from kidxlib.recovery.facts import SegmentFacts
from kidxlib.recovery.partition_fold import NO_EVENTS
from kidxlib.recovery.scan.scan_state import begun_epochs
from kidxlib.recovery.scanned_logs import ScannedLogs
from kidxlib.storage.location import as_text


def scan_shares(shares: Iterable[SegmentsToBuild], use_mmap: bool) -> Iterator[ItemRows]:
    """`scan_segments` of all of them."""
    return scan_segments((task for share in shares for task in share.tasks()), use_mmap)


def scan_segments(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `SCANNED`. Done again, it gives the same files and the same rows, but for `published`."""
    for built in build_together(tasks, use_mmap):
        if built.scans is None:
            yield from map(_item_rows, built)
            continue
        yield ItemRows(
            segments=len(built.tasks),
            log_bytes=sum(task.log_bytes for task in built.tasks),
            batches=[
                *_event_batches(built, built.scans),
                *segment_batches(built, built.scans),
                *packed_batches(built.packed, SCANNED),
            ],
        )


def _event_batches(built: BuiltSegments, scans: ScannedLogs) -> Iterator[pa.RecordBatch]:
    if not len(scans.producer_events):
        return
    read = [(task, scan) for task, scan in zip(built.tasks, built.scan_of, strict=True) if scan != NOT_READ]
    events = [scans.of_log("producer_events", scan) for _, scan in read]
    segments, counts = [task.segment for task, _ in read], [len(of_log) for of_log in events]
    yield from event_batches(segments, counts, np.concatenate([NO_EVENTS, *events]), SCANNED)


def _item_rows(built: BuiltSegment) -> ItemRows:
    """The rows of a segment that was read alone."""
    segment, events = built.task.segment, built.recovered.producer_events if built.recovered else NO_EVENTS
    return ItemRows(
        segments=1,
        log_bytes=built.task.log_bytes,
        batches=[*event_batches([segment], [len(events)], events, SCANNED), *packed_batches(built.packed, SCANNED)],
        rows=[{"segment": _result_row(built).values()}],
    )


_FACT_NAMES: Final = {fact.name for fact in fields(SegmentFacts)} & set(PublishedSegmentRow.names())


def _as_value(fact: Any) -> Any:
    """A fact as a row has it: a sequence of structs by name."""
    return [part._asdict() if hasattr(part, "_asdict") else part for part in fact] if isinstance(fact, tuple) else fact


def _result_row(built: BuiltSegment) -> PublishedSegmentRow:
    segment, options, recovered = built.task.segment, built.task.options, built.recovered
    known: dict[str, Any] = {
        "source": segment.source,
        "topic": segment.topic_partition.topic,
        "partition": segment.topic_partition.partition,
        "base_offset": segment.base_offset,
        "topic_id": built.task.topic_id,
        **EndFacts.of_end(built.end).values(),
        "active": segment.active,
        **IndexFacts.of_files(options.interval_bytes, built.offset_index, built.time_index).values(),
        "max_index_bytes": options.max_index_bytes,
        "interval_source": built.task.interval_source,
        "crc_checked": options.verify_crc,
        "log_path": as_text(segment.path),
        "index_directory": as_text(str(built.task.index_directory)),
        "catalog_version": CATALOG_VERSION,
        **Publishing(published=built.published.value).values(),
    }
    if built.version is not None:
        known |= LogVersion.of_file(built.version).values()
    if built.reads is not None:
        known |= ReadCost(read_requests=built.reads.requests, read_bytes=built.reads.read_bytes).values()
    if recovered is not None:
        # Facts have the names of their columns.
        known |= {name: _as_value(getattr(recovered.facts, name)) for name in _FACT_NAMES}
        known["leader_epochs"] = from_leader_epochs(begun_epochs(recovered.leader_epochs))
    return PublishedSegmentRow.of(known)
