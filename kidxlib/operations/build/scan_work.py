"""Reads and indexes segments in a worker: a row of facts for each, and one for each event of a producer. Segments that
were read together become rows column by column, from the arrays of a scan to Arrow, with no object for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.catalog.index_bytes import packed_batches
from kidxlib.catalog.matching import Flags, Positions, Values, taken_at
from kidxlib.catalog.partitions import named_key
from kidxlib.catalog.results import SCANNED, PublishedSegmentRow, Publishing
from kidxlib.catalog.rows import SEGMENT_KEY, rows_of_kind
from kidxlib.catalog.segments import EndFacts, IndexFacts, LogVersion, ReadCost
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.engine.work import ItemRows
from kidxlib.format import layouts
from kidxlib.format.checksums import crc32c
from kidxlib.indexing.plan import BuildTask, SegmentsToBuild
from kidxlib.indexing.segments import NOT_READ, BuiltSegment, BuiltSegments, build_in_passes
from kidxlib.operations.producer_events import event_batches, from_leader_epochs
from kidxlib.records.arrow_columns import flags_array, numbers_array, words_array
from kidxlib.recovery.facts import SegmentFacts, codecs_of, magics_of
from kidxlib.recovery.log_checksums import NOT_KNOWN
from kidxlib.recovery.partition_fold import NO_EVENTS
from kidxlib.recovery.recover import ScannedLogs, are_epoch_increases, epoch_increases
from kidxlib.recovery.scan.header_facts_kernel import FURTHER_HOURS
from kidxlib.storage.location import Directory, as_text

_TYPES: Final[Mapping[str, pa.DataType]] = {column.name: column.arrow_type for column in PublishedSegmentRow.columns()}
#: Columns that are a count or an offset of the scan's state, by the name there.
_OF_STATE: Final = {
    "next_offset": "next_offset",
    "valid_bytes": "position",
    "batches": "batches",
    "max_timestamp_ms": "max_timestamp",
    "transactional_batches": "transactional_batches",
    "control_batches": "control_batches",
    "map_end_offset": "map_end_offset",
}
#: Those that are null where the state says −1.
_KNOWN_OF_STATE: Final = ("offset_of_max_timestamp", "first_leader_epoch", "last_leader_epoch")
#: The facts of a segment that are columns of its row.
_FACT_NAMES: Final = {fact.name for fact in fields(SegmentFacts)} & set(PublishedSegmentRow.names())


def scan_shares(shares: Iterable[SegmentsToBuild], use_mmap: bool) -> Iterator[ItemRows]:
    """Scan the segments of shares in a worker (`scan_segments`)."""
    return scan_segments((task for share in shares for task in share.tasks()), use_mmap)


def scan_segments(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[ItemRows]:
    """Scan segments and write their index files in a worker, as rows of `SCANNED`. Done again, it gives the same files
    and the same rows, but for `published`.
    """
    for built in build_in_passes(tasks, use_mmap):
        if built.scans is None:
            yield from map(_item_rows, built)
            continue
        yield ItemRows(
            segments=len(built.tasks),
            log_bytes=sum(task.log_bytes for task in built.tasks),
            batches=[
                *_event_batches(built, built.scans),
                *_segment_batches(built, built.scans),
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


def _segment_batches(built: BuiltSegments, scans: ScannedLogs) -> Iterator[pa.RecordBatch]:
    """Segments that were read together, and their scans, as rows of `SCANNED` with `segment` set; and their index files
    that a catalog is to keep (`packs`), with `packed` set.
    """
    scan_of = np.array(built.scan_of, np.int64)
    of_logs = _fact_columns(scans)
    if not np.array_equal(scan_of, np.arange(len(scans))):
        of_logs = {name: taken_at(column, scan_of) for name, column in of_logs.items()}
    columns = _of_tasks(built.tasks) | _of_results(built)
    yield rows_of_kind("segment", columns | of_logs, len(built.tasks), SCANNED)
    packed = np.flatnonzero(built.packs)
    if len(packed):
        yield rows_of_kind("packed", _of_packed(built, columns, packed), 2 * len(packed), SCANNED)


def _of_packed(built: BuiltSegments, columns: Mapping[str, Values], packed: Positions) -> dict[str, Values]:
    """The time indexes of segments, and after them their offset indexes, as columns of `index_bytes`."""
    both: Values = pa.array(np.concatenate([packed, packed]))
    numbers, count = packed.tolist(), len(packed)
    contents = [index[number] for index in (built.time_index, built.offset_index) for number in numbers]
    kinds = words_array(["timeindex", "index"], np.repeat(np.arange(2, dtype=np.int32), count))
    return {
        **{name: columns[name].take(both) for name in SEGMENT_KEY},
        "kind": kinds,
        "content": pa.array(contents, pa.binary()),
        **{
            name: pa.concat_arrays(
                [columns[f"{index}_{of}"].take(both[:count]) for index in ("time_index", "offset_index")]
            )
            for name, of in (("size_bytes", "bytes"), ("crc32c", "crc32c"))
        },
    }


def _of_tasks(tasks: Sequence[BuildTask]) -> dict[str, Values]:
    segments, options = [task.segment for task in tasks], [task.options for task in tasks]
    directories: dict[Directory, str] = {}
    for task in tasks:
        if task.index_directory not in directories:
            directories[task.index_directory] = as_text(str(task.index_directory))
    return {
        "source": _array("source", [segment.source for segment in segments]),
        "topic": _array("topic", [segment.topic_partition.topic for segment in segments]),
        "partition": _array("partition", [segment.topic_partition.partition for segment in segments]),
        "base_offset": _array("base_offset", [segment.base_offset for segment in segments]),
        "active": _array("active", [segment.active for segment in segments]),
        "log_path": _array("log_path", [as_text(segment.path) for segment in segments]),
        "topic_id": _array("topic_id", [task.topic_id for task in tasks]),
        "interval_source": _array("interval_source", [task.interval_source for task in tasks]),
        "index_directory": _array("index_directory", [directories[task.index_directory] for task in tasks]),
        "interval_bytes": _array("interval_bytes", [option.interval_bytes for option in options]),
        "max_index_bytes": _array("max_index_bytes", [option.max_index_bytes for option in options]),
        "crc_checked": _array("crc_checked", [option.verify_crc for option in options]),
        "catalog_version": _array("catalog_version", [CATALOG_VERSION] * len(tasks)),
    }


def _of_results(built: BuiltSegments) -> dict[str, Values]:
    versions, ends = built.versions, built.ends
    return {
        "log_bytes": _array("log_bytes", [None if version is None else version.size for version in versions]),
        "log_mtime_ns": _array("log_mtime_ns", [None if version is None else version.mtime_ns for version in versions]),
        "log_inode": _array("log_inode", [None if version is None else version.inode for version in versions]),
        "status": _array("status", [end.status for end in ends]),
        "reason": _array("reason", [end.reason for end in ends]),
        "reason_position": _array("reason_position", [None if end.reason is None else end.position for end in ends]),
        "reason_detail": _array("reason_detail", [end.detail for end in ends]),
        "published": _array("published", [published.value for published in built.published]),
        **_of_index("offset_index", built.offset_index, layouts.OFFSET_INDEX_ENTRY),
        **_of_index("time_index", built.time_index, layouts.TIME_INDEX_ENTRY),
    }


def _of_index(name: str, contents: Sequence[bytes | None], entry: np.dtype[np.void]) -> dict[str, Values]:
    sizes = np.array([-1 if content is None else len(content) for content in contents], np.int64)
    crcs = np.array([-1 if content is None else crc32c(content) for content in contents], np.int64)
    return {
        f"{name}_entries": _numbers(f"{name}_entries", sizes // entry.itemsize, sizes >= 0),
        f"{name}_bytes": _numbers(f"{name}_bytes", sizes, sizes >= 0),
        f"{name}_crc32c": _numbers(f"{name}_crc32c", crcs, sizes >= 0),
    }


def _fact_columns(scans: ScannedLogs) -> dict[str, Values]:
    """`SegmentFacts` and leader epochs of scanned logs as columns of the catalog, which have the facts' names."""
    states, bounds = scans.states, scans.bounds
    every = np.ones(len(states), np.bool_)
    counts_records = states["compressed_messages"] == 0
    is_certain = scans.header_facts["uncertain_batches"] == 0
    first = bounds["timestamps"][:-1]
    has_timestamps = first < bounds["timestamps"][1:]
    smallest = np.full(len(states), layouts.NO_TIMESTAMP, np.int64)
    smallest[has_timestamps] = scans.timestamps["timestamp_ms"][first[has_timestamps]]
    begun = _begun(scans)
    epoch_bounds = np.concatenate([[0], np.cumsum(begun)])[bounds["leader_epochs"]]
    return {
        **{name: _numbers(name, states[field], every) for name, field in _OF_STATE.items()},
        **{name: _numbers(name, states[name], states[name] >= 0) for name in _KNOWN_OF_STATE},
        "records": _numbers("records", states["records"], counts_records),
        "offsets_increase": flags_array(states["disordered"] == 0),
        "magics": _by_mask("magics", states["magics"], magics_of),
        "codecs": _by_mask("codecs", states["codecs"], codecs_of),
        "log_crc32c": _numbers("log_crc32c", scans.log_crc32c, scans.log_crc32c != NOT_KNOWN),
        "smallest_timestamp_ms": _numbers("smallest_timestamp_ms", smallest, is_certain),
        "smallest_timestamps": _lists("smallest_timestamps", bounds["timestamps"], scans.timestamps, is_certain),
        "offset_digests": _lists("offset_digests", bounds["digests"], scans.digests, every),
        "records_by_hour": _lists("records_by_hour", bounds["hours"], scans.hours, counts_records),
        "leader_epochs": _lists("leader_epochs", epoch_bounds, scans.leader_epochs[begun], every),
    }


def _begun(scans: ScannedLogs) -> Flags:
    """Which leader epochs are above all before them in their log."""
    begun = np.ones(len(scans.leader_epochs), np.bool_)
    bounds = scans.bounds["leader_epochs"]
    for number in np.flatnonzero(np.diff(bounds) > 1).tolist():
        rows = slice(bounds[number], bounds[number + 1])
        begun[rows] = are_epoch_increases(scans.leader_epochs[rows])
    return begun


def _array(name: str, values: Sequence[Any]) -> Values:
    return pa.array(values, _TYPES[name])


def _numbers(name: str, values: NDArray[Any], filled: Flags) -> Values:
    return numbers_array(_TYPES[name], values, filled)


def _by_mask(name: str, masks: NDArray[np.uint64], words: Callable[[int], tuple[Any, ...]]) -> Values:
    """A column of what masks say, of which there are few."""
    few, which = np.unique(masks, return_inverse=True)
    return _array(name, [words(mask) for mask in few.tolist()]).take(pa.array(which))


def _lists(name: str, bounds: NDArray[np.int64], rows: NDArray[np.void], filled: Flags) -> Values:
    """A column of lists of structs, whose fields have the rows' names; `bounds` are those of each list's rows."""
    kind = _TYPES[name]
    assert isinstance(kind, pa.ListType)
    struct = kind.value_type
    fields = []
    for field in struct:
        values = np.ascontiguousarray(rows[field.name])
        is_null = values == FURTHER_HOURS if field.name == "hour_ms" else None
        fields.append(pa.array(values, field.type, mask=is_null))
    return pa.ListArray.from_arrays(
        pa.array(bounds, pa.int32()),
        pa.StructArray.from_arrays(fields, fields=list(struct)),
        type=kind,
        mask=pa.array(~filled),
    )


def _item_rows(built: BuiltSegment) -> ItemRows:
    """The rows of a segment that was read alone."""
    segment, events = built.task.segment, built.recovered.producer_events if built.recovered else NO_EVENTS
    return ItemRows(
        segments=1,
        log_bytes=built.task.log_bytes,
        batches=[*event_batches([segment], [len(events)], events, SCANNED), *packed_batches(built.packed, SCANNED)],
        rows=[{"segment": _result_row(built).values()}],
    )


def _as_value(fact: Any) -> Any:
    """A fact as a row has it: a sequence of structs by name."""
    return [part._asdict() if hasattr(part, "_asdict") else part for part in fact] if isinstance(fact, tuple) else fact


def _result_row(built: BuiltSegment) -> PublishedSegmentRow:
    segment, options, recovered = built.task.segment, built.task.options, built.recovered
    known: dict[str, Any] = {
        **named_key(segment.partition_key),
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
        known["leader_epochs"] = from_leader_epochs(epoch_increases(recovered.leader_epochs))
    return PublishedSegmentRow.of(known)
