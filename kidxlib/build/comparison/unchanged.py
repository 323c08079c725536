"""Which of the segments that the catalog knows need not be read again. All rows are compared at once, by columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.build.comparison.index_sizes import IndexSizes
from kidxlib.build.comparison.known_segments import Matched, flags_of, same_text, texts
from kidxlib.build.listed import Longs, numbers_in
from kidxlib.build.plan import INTERVAL_SOURCES, Plan
from kidxlib.catalog.arrow_arrays import words_array
from kidxlib.catalog.matching import Flags, Positions, Values
from kidxlib.catalog.segments import IntervalSource
from kidxlib.catalog.tables import FACTS_VERSION
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
)
from kidxlib.recovery.options import INTERVAL, MAX_INDEX
from kidxlib.recovery.outcome import Status

#: Rows whose paths are made at the same time: 0.1 kB each.
_PATHS_AT_ONCE: Final = 65_536


def with_kept_intervals(plan: Plan, both: Matched) -> pa.Table:
    """All listed segments as rows of `TO_READ`. What compaction chose stays. So does what the metadata of the topic's
    cluster once said, where now nobody says anything, as when that cannot be read. What is repaired shall be like the
    files that are not.

    Args:
        both: rows of segments that were listed.
    """
    rows = plan.to_read()
    by_compaction = _is_any_of(both.known["interval_source"], [IntervalSource.COMPACTION])
    repaired = np.array([partition.only is not None for partition in plan.partitions], np.bool_)
    kept = by_compaction | _only_once_told(plan, both, INTERVAL) | repaired[both.partitions]
    known, _ = numbers_in(both.known["interval_bytes"])
    intervals = rows["interval_bytes"].to_numpy().copy()
    intervals[both.listed[kept]] = known[kept]
    sources = _positions(rows["interval_source"]).copy()
    sources[both.listed[kept]] = _positions(both.known["interval_source"])[kept]
    chosen = {"interval_bytes": pa.array(intervals), "interval_source": words_array(INTERVAL_SOURCES, sources)}
    return pa.table([chosen.get(name, rows[name]) for name in rows.column_names], schema=rows.schema)


def unchanged(plan: Plan, both: Matched, to_read: pa.Table, sizes: IndexSizes, *, publish_truncated: bool) -> Flags:
    """Whether reading each log again would give the same row and the same files as the catalog and the disk have.

    Args:
        both: rows of segments that were listed.
        to_read: all listed segments as rows of `TO_READ`.
        publish_truncated: the index of a valid prefix is wanted too.
    """
    known = both.known
    same = _as_listed(plan, both, to_read)
    offset_index, has_offset_index = numbers_in(known["offset_index_bytes"])
    time_index, has_time_index = numbers_in(known["time_index_bytes"])
    published = has_offset_index & has_time_index
    if publish_truncated:
        # Nothing was published: right for a quarantined segment, and for a truncated one whose prefix is not wanted.
        same &= published | _is_any_of(known["status"], [Status.QUARANTINED])
    looked_at = np.flatnonzero(same & published)
    found = _sizes(plan, both, sizes, looked_at, [OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX])
    same[looked_at] = (found[0] == offset_index[looked_at]) & (found[1] == time_index[looked_at])
    return same


def to_be_finished(plan: Plan, stay: Matched, sizes: IndexSizes) -> Flags:
    """Which unchanged segments lack what finishing their partition adds: facts, or the transaction index.

    Args:
        stay: rows of unchanged segments.
    """
    unfinished: Flags = ~flags_of(stay.known["producer_state"].is_valid())
    expected, has_index = numbers_in(stay.known["transaction_index_bytes"])
    looked_at = np.flatnonzero(has_index & ~unfinished)
    [found] = _sizes(plan, stay, sizes, looked_at, [TRANSACTION_INDEX_SUFFIX])
    unfinished[looked_at] = found != expected[looked_at]
    return unfinished


def recorded_otherwise(plan: Plan, stay: Matched) -> Flags:
    """Flags of the unchanged segments of which the catalog has another path, or says otherwise whether they are active.

    Args:
        stay: rows of unchanged segments.
    """
    other: Flags = flags_of(stay.known["active"]) != flags_of(plan.segments["active"])[stay.listed]
    for start in range(0, len(other), _PATHS_AT_ONCE):
        part = slice(start, start + _PATHS_AT_ONCE)
        paths = plan.paths_of_logs(plan.segments.take(stay.listed[part]))
        known = texts(stay.known["log_path"].slice(start, _PATHS_AT_ONCE))
        other[part] |= flags_of(pc.not_equal(known, paths))
    return other


def _as_listed(plan: Plan, both: Matched, to_read: pa.Table) -> Flags:
    """Which rows say of logs, options and topics what a listing says. Their index files are not looked at."""
    known, partitions = both.known, plan.partitions
    versions, intervals, max_index_bytes = (
        numbers_in(known[name])[0] for name in ("catalog_version", "interval_bytes", "max_index_bytes")
    )
    same: Flags = versions >= FACTS_VERSION
    same &= _is_any_of(known["status"], [Status.OK, Status.TRUNCATED, Status.QUARANTINED])
    same &= _same_version(plan, both)
    same &= same_text(known["topic_id"], [each.topic_id for each in partitions], both.partitions)
    same &= intervals == to_read["interval_bytes"].to_numpy()[both.listed]
    wanted = np.array([each.options.max_index_bytes for each in partitions], np.int64)
    same &= (max_index_bytes == wanted[both.partitions]) | _only_once_told(plan, both, MAX_INDEX)
    trusted = np.array([not each.options.verify_crc for each in partitions], np.bool_)
    same &= flags_of(known["crc_checked"]) | trusted[both.partitions]
    same &= same_text(known["index_directory"], [str(each.index_directory) for each in partitions], both.partitions)
    same &= ~_repaired(plan)[both.listed]
    return same


def _positions(sources: Values) -> NDArray[np.int32]:
    """The positions of words in `INTERVAL_SOURCES`."""
    found: Values = pc.index_in(texts(sources), value_set=pa.array(INTERVAL_SOURCES, pa.string()))
    positions: NDArray[np.int32] = found.to_numpy()
    return positions


def _only_once_told(plan: Plan, both: Matched, setting: str) -> Flags:
    """Flags of segments for which the metadata of the topic's cluster was asked when they were built, and of which
    nobody says now what a setting is.
    """
    told = np.array([each.choice.is_told(setting, each.topic_id) for each in plan.partitions], np.bool_)
    return _is_any_of(both.known["interval_source"], [IntervalSource.METADATA]) & ~told[both.partitions]


def _same_version(plan: Plan, both: Matched) -> Flags:
    """Which logs are as they were read; those too that could be looked at neither then nor now."""
    names = ("log_bytes", "log_mtime_ns", "log_inode")
    before = [numbers_in(both.known[name]) for name in names]
    now = [numbers_in(plan.segments[name]) for name in names]
    seen_before, seen_now = before[0][1] & before[1][1], now[0][1][both.listed]
    same = seen_before & seen_now
    for (numbers, _), (listed, _) in zip(before, now, strict=True):
        same &= numbers == listed[both.listed]
    same &= before[2][1] == now[2][1][both.listed]
    return same | ~(seen_before | seen_now)


def _repaired(plan: Plan) -> Flags:
    """Flags of the listed segments whose offset index or time index is repaired, whatever the catalog says."""
    repaired = np.zeros(plan.segments.num_rows, np.bool_)
    base_offsets = plan.segments["base_offset"].to_numpy()
    bounds = plan.bounds()
    for number, partition in enumerate(plan.partitions):
        if partition.only is not None:
            parsed = (parse_segment_file(name) for name in partition.only)
            named = [each[0] for each in parsed if each and each[1] in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
            rows = slice(bounds[number], bounds[number + 1])
            repaired[rows] = np.isin(base_offsets[rows], np.array(named, np.int64))
    return repaired


def _sizes(plan: Plan, matched: Matched, sizes: IndexSizes, which: Positions, suffixes: Sequence[str]) -> list[Longs]:
    """Sizes of index files of some matched segments, a row each; see `IndexSizes.of`."""
    listed = matched.listed[which]
    order = np.argsort(listed, kind="stable")
    found = sizes.of(plan.segments.take(listed[order]), suffixes)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return [column[back] for column in found]


def _is_any_of(column: Values, words: Sequence[str]) -> Flags:
    return flags_of(pc.is_in(texts(column), value_set=pa.array(words, pa.string())))
