"""What a build must read, and what is gone: the listed segments, compared with the catalog's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.build.comparison.facts_to_fill import count_unknown, segments_to_fill
from kidxlib.build.comparison.index_sizes import IndexSizes
from kidxlib.build.comparison.known_segments import KNOWN, NOWHERE, match
from kidxlib.build.comparison.missing import KEYS, missing
from kidxlib.build.comparison.unchanged import recorded_otherwise, to_be_finished, unchanged, with_kept_intervals
from kidxlib.build.listed import TO_READ, partitions_of, sum_of_bytes
from kidxlib.build.plan import AuxiliaryFiles, Plan
from kidxlib.catalog.matching import Flags, Positions
from kidxlib.catalog.segment_key import SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import parse_snapshot
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.storage.directory import list_directory

#: Segments by their keys, with what a listing says of them.
RELISTED: Final = SEGMENTS.schema({*SEGMENT_KEY, "active", "log_path"})


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A partition that is to be finished.

    Attributes:
        first_present: the base offset of its first segment that exists now.
        changed_from: that of the first one to read, or to finish again; None if all are to be finished again.
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


def compare(
    plan: Plan,
    known: pa.Table,
    auxiliary_files: AuxiliaryFiles,
    *,
    publish_truncated: bool,
    explicit_interval: bool,
    rebuild: bool,
    fill_bytes: int | None = None,
) -> Changes:
    """What has changed since the catalog was written.

    A source without any segment is not compared: it may be a directory on which nothing is mounted. If its segments
    became `gone`, they all would have to be read again. A broker's log dir has a segment for each partition.

    Args:
        known: the catalog's rows of the plan's sources and topics only, in any order, with the columns of `KNOWN`.
        auxiliary_files: which index and auxiliary files are wanted; without one, its partition is finished again.
        publish_truncated: the index of a valid prefix is wanted too.
        explicit_interval: the interval was given as an option, so what compaction chose does not stay.
        rebuild: read every segment, whatever the catalog says.
        fill_bytes: read logs of so many bytes together for facts that are not known; None for none.
    """
    matched, sizes = match(plan, known), IndexSizes(plan)
    both = matched.where(matched.listed != NOWHERE)
    to_read = plan.to_read() if explicit_interval or rebuild else with_kept_intervals(plan, both)
    same = np.zeros(len(both.listed), np.bool_)
    if not rebuild:
        same = unchanged(plan, both, to_read, sizes, publish_truncated=publish_truncated)
    fill = segments_to_fill(plan, both.where(same), fill_bytes)
    stay = both.where(same & ~fill[both.listed])
    is_read = np.ones(to_read.num_rows, np.bool_)
    is_read[stay.listed] = False
    to_fold = is_read.copy()
    to_fold[stay.listed[to_be_finished(plan, stay, sizes)]] = True
    lacking = missing(plan, matched)
    return Changes(
        to_read=_for_all_facts(to_read, fill).filter(pa.array(is_read)),
        unchanged=len(stay.listed),
        unchanged_bytes=sum_of_bytes(plan.segments.filter(pa.array(~is_read))),
        relisted=_relisted(plan, np.sort(stay.listed[recorded_otherwise(plan, stay)])),
        gone=lacking.gone,
        emptied=lacking.emptied,
        missing_at_end=lacking.missing_at_end,
        to_finish=_to_finish(plan, _without_auxiliary_files(plan, auxiliary_files), to_fold),
        unknown_facts=count_unknown(stay.known),
    )


def all_new(plan: Plan, fill_bytes: int | None = None) -> Changes:
    """The changes if no catalog exists: everything is new."""
    fill = segments_to_fill(plan, match(plan, KNOWN.empty_table()), fill_bytes)
    every, none = np.ones(len(plan.partitions), np.bool_), np.zeros(plan.segments.num_rows, np.bool_)
    return Changes(to_read=_for_all_facts(plan.to_read(), fill), to_finish=_to_finish(plan, every, none))


def _for_all_facts(to_read: pa.Table, fill: Flags) -> pa.Table:
    """Rows of `TO_READ`, of which some are read for all facts."""
    return to_read.set_column(to_read.schema.get_field_index("all_facts"), TO_READ.field("all_facts"), pa.array(fill))


def _relisted(plan: Plan, which: Positions) -> pa.Table:
    """Rows of `RELISTED`."""
    rows = plan.segments.take(which)
    keys, paths = plan.keys(rows), plan.paths_of_logs(rows)
    return keys.append_column("active", rows["active"]).append_column("log_path", paths).cast(RELISTED)


def _to_finish(plan: Plan, whole: Flags, to_fold: Flags) -> dict[PartitionKey, PartitionChange]:
    """The partitions to finish, of those that have segments.

    Args:
        whole: flags of partitions of which all segments are to be finished again.
        to_fold: flags of listed segments that are.
    """
    base_offsets, bounds = plan.segments["base_offset"].to_numpy(), plan.bounds()
    rows = np.flatnonzero(to_fold)
    changed, first = np.unique(partitions_of(plan.segments)[rows], return_index=True)  # listed in order
    changed_from = dict(zip(changed.tolist(), base_offsets[rows[first]].tolist(), strict=True))
    which = whole & plan.have_segments()
    which[changed] = True
    found = {}
    for number in np.flatnonzero(which).tolist():
        partition, first_present = plan.partitions[number], int(base_offsets[bounds[number]])
        since = None if whole[number] else changed_from[number]
        count = int(bounds[number + 1] - bounds[number])
        found[partition.key] = PartitionChange(partition.topic_id, first_present, since, count)
    return found


def _without_auxiliary_files(plan: Plan, wanted: AuxiliaryFiles) -> Flags:
    """The partitions whose index directory lacks a wanted file, or has a broken one."""
    found = np.array([partition.only is not None for partition in plan.partitions], np.bool_)
    if not (wanted.snapshots or wanted.epochs):
        return found
    base_offsets, bounds = plan.segments["base_offset"].to_numpy(), plan.bounds()
    for number in np.flatnonzero(plan.have_segments()).tolist():
        names = list_directory(plan.partitions[number].index_directory)
        if wanted.epochs and LEADER_EPOCH_CHECKPOINT not in names:
            found[number] = True
        if wanted.snapshots:  # none at the start of the log
            later = base_offsets[bounds[number] + 1 : bounds[number + 1]]
            snapshots = [offset for offset in map(parse_snapshot, names) if offset is not None]
            found[number] |= not np.isin(later, np.array(snapshots, np.int64)).all()
    return found
