"""What a build must read, and what is gone: listed segments and the sizes of their index files, compared with the
catalog's rows by columns. `compare_with_catalog` is the whole of it; `all_new` where there is no catalog.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.matching import Flags, Longs, Positions, Values, flags_of, is_any_of, numbers_in, same_text, texts
from kidxlib.catalog.rows import SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, FillableFacts, IntervalSource
from kidxlib.catalog.tables import FACTS_VERSION
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot,
    segment_file,
)
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.build_counts import count_unknown_facts
from kidxlib.indexing.known_segments import KEYS, NOWHERE, KnownSegments, match_known_segments, missing_segments
from kidxlib.indexing.listed_segments import TO_READ, partition_numbers, runs_of_partitions, sum_of_bytes
from kidxlib.indexing.plan import INTERVAL_SOURCES, AuxiliaryFiles, Plan
from kidxlib.records.arrow_columns import words_array
from kidxlib.recovery.options import INTERVAL, MAX_INDEX
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import Directory, list_directory, object_sizes, packed_sizes
from kidxlib.storage.packed import is_packed
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import is_object

#: Segments by their keys, with what a listing says of them.
RELISTED: Final = SEGMENTS.schema({*SEGMENT_KEY, "active", "log_path"})

#: Rows whose paths are made at the same time: 0.1 kB each.
_PATHS_AT_ONCE: Final = 65_536

#: The size of a file that cannot be looked at.
_NOT_SEEN: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition that is to be finished.

    Attributes:
        first_present: the base offset of its first segment that exists now.
        changed_from: that of the first segment to read or to finish again; None if all are to be finished again.
        segments: how many exist now.
    """

    topic_id: str | None
    first_present: int
    changed_from: int | None
    segments: int


@dataclass(slots=True)
class Changes:
    """A plan compared with the catalog.

    Attributes:
        to_read: rows of `TO_READ`, of segments whose logs must be read.
        unchanged: how many need not be read; `unchanged_bytes`, their bytes.
        relisted: rows of `RELISTED`, of unchanged segments whose path, or whether they are active, differs from what
            the catalog says.
        gone: rows of `KEYS`, of segments of the catalog that are missing from the listed sources.
        emptied: partitions that have no segment left, with the number of segments missing.
        missing_at_end: the missing segments after the last segment that exists, by partition.
        to_finish: partitions with segments to read, or whose derived files and facts must be rebuilt.
        unknown_facts: of how many unchanged segments each of `FillableFacts` is not known.
    """

    to_read: pa.Table = field(default_factory=TO_READ.empty_table)
    unchanged: int = 0
    unchanged_bytes: int = 0
    relisted: pa.Table = field(default_factory=RELISTED.empty_table)
    gone: pa.Table = field(default_factory=KEYS.empty_table)
    emptied: dict[PartitionKey, int] = field(default_factory=dict)
    missing_at_end: dict[PartitionKey, list[int]] = field(default_factory=dict)
    to_finish: dict[PartitionKey, PartitionChange] = field(default_factory=dict)
    unknown_facts: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_to_read(self) -> int:
        """The bytes of the logs to read, as they were listed."""
        return sum_of_bytes(self.to_read)


class IndexSizes:
    """The sizes that the index files of a plan's segments have now, in bytes. A link is not followed.

    Only files that are asked for are looked at, one by one in their open directory: to list it takes longer, as each
    file has to be looked at all the same. A directory of a store is listed, once: that saves a request for each file.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._listed: dict[Directory, dict[str, int]] = {}

    def of(self, rows: pa.Table, suffixes: Sequence[str]) -> list[Longs]:
        """The sizes that index files have now, to compare with the catalog's: for each suffix, that of each row's file.
        Rows are of `LISTED`, in order.
        """
        sizes = np.full((rows.num_rows, len(suffixes)), _NOT_SEEN, np.int64)
        self._list_in_stores(
            self._plan.partitions[number].index_directory for number in np.unique(partition_numbers(rows)).tolist()
        )
        start = 0
        for number, of_partition in runs_of_partitions(rows):
            base_offsets = of_partition["base_offset"].to_numpy().tolist()
            end = start + len(base_offsets)
            of_files = self._of_partition(self._plan.partitions[number].index_directory, base_offsets, suffixes)
            sizes[start:end] = np.array(of_files, np.int64).reshape(end - start, len(suffixes))
            start = end
        return [sizes[:, column] for column in range(len(suffixes))]

    def _list_in_stores(self, directories: Iterable[Directory]) -> None:
        """List the new ones in object stores, several at a time."""
        new = [directory for directory in directories if is_object(directory.root) and directory not in self._listed]
        self._listed.update(zip(new, in_order(object_sizes, new), strict=True))

    def _of_partition(self, directory: Directory, base_offsets: Sequence[int], suffixes: Sequence[str]) -> list[int]:
        beginnings = [segment_file(base_offset, "") for base_offset in base_offsets]
        names = [beginning + suffix for beginning in beginnings for suffix in suffixes]
        if is_object(directory.root) or is_packed(directory.root):
            listed = self._listed[directory] if is_object(directory.root) else packed_sizes(directory)
            return [listed.get(name, _NOT_SEEN) for name in names]
        try:
            descriptor = os.open(str(directory), getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return [_NOT_SEEN] * len(names)
        try:
            return [_size_of(name, descriptor) for name in names]
        finally:
            os.close(descriptor)


def _size_of(name: str, directory: int) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except OSError:
        return _NOT_SEEN


def _with_kept_intervals(plan: Plan, matched: KnownSegments) -> pa.Table:
    """All listed segments as rows of `TO_READ`. The interval that compaction chose stays. So does the one that the
    metadata of the topic's cluster once gave, where nobody gives one now, as when the metadata cannot be read. Repaired
    files get the interval of the files that are not repaired.
    """
    rows = plan.to_read()
    by_compaction = is_any_of(matched.known["interval_source"], [IntervalSource.COMPACTION])
    repaired = np.array([partition.only is not None for partition in plan.partitions], np.bool_)
    kept = by_compaction | _only_once_told(plan, matched, INTERVAL) | repaired[matched.partitions]
    known, _ = numbers_in(matched.known["interval_bytes"])
    intervals = rows["interval_bytes"].to_numpy().copy()
    intervals[matched.listed[kept]] = known[kept]
    sources = _positions(rows["interval_source"]).copy()
    sources[matched.listed[kept]] = _positions(matched.known["interval_source"])[kept]
    chosen = {"interval_bytes": pa.array(intervals), "interval_source": words_array(INTERVAL_SOURCES, sources)}
    return pa.table([chosen.get(name, rows[name]) for name in rows.column_names], schema=rows.schema)


def _are_unchanged(
    plan: Plan, matched: KnownSegments, to_read: pa.Table, sizes: IndexSizes, *, publish_truncated: bool
) -> Flags:
    """Whether reading each log again would give the same row and the same files as the catalog and the disk have.
    `to_read` has all listed segments; `publish_truncated`: the index of a valid prefix is wanted too.
    """
    known = matched.known
    same = _as_listed(plan, matched, to_read)
    offset_index, has_offset_index = numbers_in(known["offset_index_bytes"])
    time_index, has_time_index = numbers_in(known["time_index_bytes"])
    published = has_offset_index & has_time_index
    if publish_truncated:
        # Nothing was published: right for a quarantined segment, and for a truncated one whose prefix is not wanted.
        same &= published | is_any_of(known["status"], [Status.QUARANTINED])
    looked_at = np.flatnonzero(same & published)
    of_offset, of_time = _sizes(plan, matched, sizes, looked_at, [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX])
    same[looked_at] = (of_offset == offset_index[looked_at]) & (of_time == time_index[looked_at])
    return same


def _to_be_finished(plan: Plan, unchanged: KnownSegments, sizes: IndexSizes) -> Flags:
    """Which segments lack what finishing their partition adds: facts, or the transaction index."""
    unfinished: Flags = ~flags_of(unchanged.known["producer_state"].is_valid())
    expected, has_index = numbers_in(unchanged.known["transaction_index_bytes"])
    looked_at = np.flatnonzero(has_index & ~unfinished)
    [actual] = _sizes(plan, unchanged, sizes, looked_at, [TRANSACTION_INDEX_SUFFIX])
    unfinished[looked_at] = actual != expected[looked_at]
    return unfinished


def _recorded_otherwise(plan: Plan, unchanged: KnownSegments) -> Flags:
    """Segments of which the catalog has another path, or says otherwise whether they are active."""
    other: Flags = flags_of(unchanged.known["active"]) != flags_of(plan.segments["active"])[unchanged.listed]
    for start in range(0, len(other), _PATHS_AT_ONCE):
        part = slice(start, start + _PATHS_AT_ONCE)
        paths = plan.paths_of_logs(plan.segments.take(unchanged.listed[part]))
        known = texts(unchanged.known["log_path"].slice(start, _PATHS_AT_ONCE))
        other[part] |= flags_of(pc.not_equal(known, paths))
    return other


def _as_listed(plan: Plan, matched: KnownSegments, to_read: pa.Table) -> Flags:
    """Which rows have the log, options and topic of the listing. Their index files are not looked at."""
    known, partitions = matched.known, plan.partitions
    versions, intervals, max_index_bytes = (
        numbers_in(known[name])[0] for name in ("catalog_version", "interval_bytes", "max_index_bytes")
    )
    same: Flags = versions >= FACTS_VERSION
    same &= is_any_of(known["status"], [Status.OK, Status.TRUNCATED, Status.QUARANTINED])
    same &= _same_version(plan, matched)
    same &= same_text(known["topic_id"], [partition.topic_id for partition in partitions], matched.partitions)
    same &= intervals == to_read["interval_bytes"].to_numpy()[matched.listed]
    wanted = np.array([partition.options.max_index_bytes for partition in partitions], np.int64)
    same &= (max_index_bytes == wanted[matched.partitions]) | _only_once_told(plan, matched, MAX_INDEX)
    trusted = np.array([not partition.options.verify_crc for partition in partitions], np.bool_)
    same &= flags_of(known["crc_checked"]) | trusted[matched.partitions]
    index_directories = [str(partition.index_directory) for partition in partitions]
    same &= same_text(known["index_directory"], index_directories, matched.partitions)
    same &= ~_repaired(plan)[matched.listed]
    return same


def _positions(sources: Values) -> NDArray[np.int32]:
    """Positions in `INTERVAL_SOURCES`."""
    indices: Values = pc.index_in(texts(sources), value_set=pa.array(INTERVAL_SOURCES, pa.string()))
    positions: NDArray[np.int32] = indices.to_numpy()
    return positions


def _only_once_told(plan: Plan, matched: KnownSegments, setting: str) -> Flags:
    """Which segments were built with a setting from the metadata of the topic's cluster, which nobody gives now."""
    told = [partition.choice.is_told(setting, partition.topic_id) for partition in plan.partitions]
    return (
        is_any_of(matched.known["interval_source"], [IntervalSource.METADATA])
        & ~np.array(told, np.bool_)[matched.partitions]
    )


def _same_version(plan: Plan, matched: KnownSegments) -> Flags:
    """Which logs are as they were read; also those that could be looked at neither then nor now."""
    names = ("log_bytes", "log_mtime_ns", "log_inode")
    before = [numbers_in(matched.known[name]) for name in names]
    now = [numbers_in(plan.segments[name]) for name in names]
    seen_before, seen_now = before[0][1] & before[1][1], now[0][1][matched.listed]
    same = seen_before & seen_now
    for (numbers, _), (listed, _) in zip(before, now, strict=True):
        same &= numbers == listed[matched.listed]
    same &= before[2][1] == now[2][1][matched.listed]
    return same | ~(seen_before | seen_now)


def _repaired(plan: Plan) -> Flags:
    """Whose offset index or time index is repaired, of the listed segments, whatever the catalog says."""
    repaired = np.zeros(plan.segments.num_rows, np.bool_)
    base_offsets = plan.segments["base_offset"].to_numpy()
    bounds = plan.bounds()
    for number, partition in enumerate(plan.partitions):
        if partition.only is not None:
            files = filter(None, map(parse_segment_file, partition.only))
            of_indexes = [offset for offset, suffix in files if suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
            rows = slice(bounds[number], bounds[number + 1])
            repaired[rows] = np.isin(base_offsets[rows], np.array(of_indexes, np.int64))
    return repaired


def _sizes(
    plan: Plan, matched: KnownSegments, sizes: IndexSizes, which: Positions, suffixes: Sequence[str]
) -> list[Longs]:
    """`IndexSizes.of` some matched segments, which may be in any order."""
    listed = matched.listed[which]
    order = np.argsort(listed, kind="stable")
    columns = sizes.of(plan.segments.take(listed[order]), suffixes)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return [column[back] for column in columns]


def _segments_to_fill(plan: Plan, unchanged: KnownSegments | None, fill_bytes: int | None) -> Flags:
    """Which listed segments are read for all facts: in their order, of so many bytes together at most. A larger log is
    passed over. Segments that are not unchanged all lack facts.
    """
    lack = np.ones(plan.segments.num_rows, np.bool_)
    if fill_bytes is None:
        return ~lack
    if unchanged is not None:
        lack[unchanged.listed] = flags_of(unchanged.known[FillableFacts.names()[-1]].is_null())
    log_bytes, seen = numbers_in(plan.segments["log_bytes"])
    lack &= seen & (log_bytes <= fill_bytes)
    return lack & (np.cumsum(np.where(lack, log_bytes, 0)) <= fill_bytes)


def compare_with_catalog(
    plan: Plan,
    known: pa.Table,
    auxiliary_files: AuxiliaryFiles,
    *,
    publish_truncated: bool,
    explicit_interval: bool,
    rebuild: bool,
    fill_bytes: int | None = None,
) -> Changes:
    """What has changed since the catalog was written, by its rows of the plan's sources and topics, in any order.

    A source without any segment is not compared: it may be a directory on which nothing is mounted. If its segments
    became `gone`, they all would have to be read again. A broker's log dir has a segment for each partition.

    A partition that lacks one of the auxiliary files is finished again. `publish_truncated`: the index of a valid
    prefix is wanted too. `explicit_interval`: the user gave an interval, so the one that compaction chose does not
    stay. `fill_bytes`: logs of so many bytes together are read for facts that are not known.
    """
    of_catalog, sizes = match_known_segments(plan, known), IndexSizes(plan)
    matched = of_catalog.where(of_catalog.listed != NOWHERE)
    to_read = plan.to_read() if explicit_interval or rebuild else _with_kept_intervals(plan, matched)
    same = np.zeros(len(matched.listed), np.bool_)
    if not rebuild:
        same = _are_unchanged(plan, matched, to_read, sizes, publish_truncated=publish_truncated)
    to_fill = _segments_to_fill(plan, matched.where(same), fill_bytes)
    unchanged = matched.where(same & ~to_fill[matched.listed])
    is_read = np.ones(to_read.num_rows, np.bool_)
    is_read[unchanged.listed] = False
    to_fold = is_read.copy()
    to_fold[unchanged.listed[_to_be_finished(plan, unchanged, sizes)]] = True
    gone, emptied, missing_at_end = missing_segments(plan, of_catalog)
    return Changes(
        to_read=_for_all_facts(to_read, to_fill).filter(pa.array(is_read)),
        unchanged=len(unchanged.listed),
        unchanged_bytes=sum_of_bytes(plan.segments.filter(pa.array(~is_read))),
        relisted=_relisted(plan, np.sort(unchanged.listed[_recorded_otherwise(plan, unchanged)])),
        gone=gone,
        emptied=emptied,
        missing_at_end=missing_at_end,
        to_finish=_to_finish(plan, _without_auxiliary_files(plan, auxiliary_files), to_fold),
        unknown_facts=count_unknown_facts(unchanged.known),
    )


def all_new(plan: Plan, fill_bytes: int | None = None) -> Changes:
    """The changes if no catalog exists."""
    to_fill = _segments_to_fill(plan, None, fill_bytes)
    every, none = np.ones(len(plan.partitions), np.bool_), np.zeros(plan.segments.num_rows, np.bool_)
    return Changes(to_read=_for_all_facts(plan.to_read(), to_fill), to_finish=_to_finish(plan, every, none))


def _for_all_facts(to_read: pa.Table, flags: Flags) -> pa.Table:
    return to_read.set_column(to_read.schema.get_field_index("all_facts"), TO_READ.field("all_facts"), pa.array(flags))


def _relisted(plan: Plan, which: Positions) -> pa.Table:
    rows = plan.segments.take(which)
    keys, paths = plan.keys(rows), plan.paths_of_logs(rows)
    return keys.append_column("active", rows["active"]).append_column("log_path", paths).cast(RELISTED)


def _to_finish(plan: Plan, whole: Flags, to_fold: Flags) -> dict[PartitionKey, PartitionChange]:
    """The partitions to finish that have segments, by flags of partitions all of whose segments are finished again, and
    flags of listed segments that are.
    """
    base_offsets, bounds = plan.segments["base_offset"].to_numpy(), plan.bounds()
    rows = np.flatnonzero(to_fold)
    changed, first = np.unique(partition_numbers(plan.segments)[rows], return_index=True)  # listed in order
    changed_from = dict(zip(changed.tolist(), base_offsets[rows[first]].tolist(), strict=True))
    which = whole & plan.have_segments()
    which[changed] = True
    to_finish = {}
    for number in np.flatnonzero(which).tolist():
        partition, first_present = plan.partitions[number], int(base_offsets[bounds[number]])
        since = None if whole[number] else changed_from[number]
        count = int(bounds[number + 1] - bounds[number])
        to_finish[partition.key] = PartitionChange(partition.topic_id, first_present, since, count)
    return to_finish


def _without_auxiliary_files(plan: Plan, wanted: AuxiliaryFiles) -> Flags:
    """Which partitions' index directory lacks a wanted file, or has a broken one."""
    lack = np.array([partition.only is not None for partition in plan.partitions], np.bool_)
    if not (wanted.snapshots or wanted.epochs):
        return lack
    base_offsets, bounds = plan.segments["base_offset"].to_numpy(), plan.bounds()
    for number in np.flatnonzero(plan.have_segments()).tolist():
        names = list_directory(plan.partitions[number].index_directory)
        if wanted.epochs and LEADER_EPOCH_CHECKPOINT not in names:
            lack[number] = True
        if wanted.snapshots:  # none at the start of the log
            later = base_offsets[bounds[number] + 1 : bounds[number + 1]]
            snapshots = [offset for offset in map(parse_snapshot, names) if offset is not None]
            lack[number] |= not np.isin(later, np.array(snapshots, np.int64)).all()
    return lack
