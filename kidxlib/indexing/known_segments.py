"""Segments that the catalog knows, matched with those of a listing (`match_known_segments`), and what the listing
lacks: segments (`missing_segments`), and partitions without a directory.

A person is warned of partitions, or the last of their segments, that are missing from a source: a deleted topic looks
like a lost directory, and no log is left to tell them apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.matching import Flags, Positions, is_any_of, numbers_in, positions_in, same_text
from kidxlib.catalog.partitions import rows_of_keys
from kidxlib.catalog.rows import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, KnownSegment
from kidxlib.format.topic_partition import PartitionKey, TopicPartition, parse_partition_directory
from kidxlib.indexing.listed_segments import partition_numbers
from kidxlib.indexing.listing import list_offset_indexes
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import IndexPlace, PartitionDirectory, Source
from kidxlib.recovery.outcome import ABSENT
from kidxlib.storage.location import Location, location
from kidxlib.text.words import counted

#: The catalog's columns that a listing is compared with. Columns of text may be dictionary-encoded.
KNOWN: Final = SEGMENTS.schema({*SEGMENT_KEY, *KnownSegment.names()})

#: The position of a row that is not there.
NOWHERE: Final = -1

KEYS: Final = SEGMENTS.schema(SEGMENT_KEY)

_NO_DIRECTORY: Final = "and no directory: the topic was deleted or moved, or the directory is lost"


@dataclass(frozen=True, slots=True)
class KnownSegments:
    """Segments that the catalog knows, matched with a listing.

    Attributes:
        known: rows with the columns of `KNOWN`.
        partitions: of each row, the position of its partition in the plan; `NOWHERE` if it was not listed.
        listed: of each row, the position of its segment in the listing; `NOWHERE` if it was not listed.
    """

    known: pa.Table
    partitions: Positions
    listed: Positions

    def where(self, flags: Flags) -> KnownSegments:
        if flags.all():
            return self
        return KnownSegments(self.known.filter(pa.array(flags)), self.partitions[flags], self.listed[flags])

    @property
    def present(self) -> Flags:
        """Which segments were there when the catalog was written."""
        return ~is_any_of(self.known["status"], ABSENT)


def match_known_segments(plan: Plan, known: pa.Table) -> KnownSegments:
    """Match the segments that the catalog knows with those that were listed. `known` has the columns of `KNOWN`."""
    keys = known.select(PARTITION_KEY)
    partitions = positions_in(keys, plan.partition_keys().cast(keys.schema), PARTITION_KEY)
    segments = pa.table({"listed_partition": partitions, "base_offset": known["base_offset"]})
    listed = pa.table(
        {"listed_partition": partition_numbers(plan.segments), "base_offset": plan.segments["base_offset"]}
    )
    return KnownSegments(known, partitions, positions_in(segments, listed, listed.column_names))


def known_segment_counts(rows: pa.Table) -> dict[PartitionKey, int]:
    """How many of some known segments each partition has, in the order of the keys."""
    counted = rows.select(PARTITION_KEY).cast(SEGMENTS.schema(PARTITION_KEY))
    counted = counted.group_by(list(PARTITION_KEY)).aggregate([([], "count_all")])
    columns = [counted[name].to_pylist() for name in (*PARTITION_KEY, "count_all")]
    return {(source, topic, number): count for source, topic, number, count in sorted(zip(*columns, strict=True))}


def missing_segments(
    plan: Plan, matched: KnownSegments
) -> tuple[pa.Table, dict[PartitionKey, int], dict[PartitionKey, list[int]]]:
    """The segments that a listing lacks, of all that were there when the catalog was written: what is `gone`,
    `emptied` and `missing_at_end`, as in `Changes`.
    """
    not_listed = matched.where(matched.listed == NOWHERE)
    not_listed = not_listed.where(not_listed.present)
    in_listed_partitions = np.append(plan.have_segments(), False)[not_listed.partitions]  # the last is for `NOWHERE`
    of_listed, of_others = not_listed.where(in_listed_partitions), not_listed.where(~in_listed_partitions)
    others = of_others.known.select(SEGMENT_KEY).cast(KEYS)
    emptied = _emptied(plan, others)
    is_emptied = positions_in(others, rows_of_keys(emptied), PARTITION_KEY) >= 0
    gone = pa.concat_tables([of_listed.known.select(SEGMENT_KEY).cast(KEYS), others.filter(pa.array(is_emptied))])
    gone = gone.sort_by([(name, "ascending") for name in SEGMENT_KEY])
    return gone, emptied, _missing_at_end(plan, of_listed)


def _emptied(plan: Plan, missing: pa.Table) -> dict[PartitionKey, int]:
    """How many segments each partition lacks that has none left. `missing` are keys of segments of partitions that were
    not listed, or have no segment.
    """
    listed = {partition.key for partition in plan.partitions}
    return {
        key: count
        for key, count in known_segment_counts(missing).items()
        if (key[0] in plan.log_dirs or key in listed) and key not in plan.unlistable and key[0] not in plan.empty
    }


def _missing_at_end(plan: Plan, missing: KnownSegments) -> dict[PartitionKey, list[int]]:
    """The base offsets of missing segments after the last segment that exists, by partition, of partitions that have
    segments. Retention leaves none. A topic that was recreated under its name starts from the beginning.
    """
    base_offsets, _ = numbers_in(missing.known["base_offset"])
    last = plan.segments["base_offset"].to_numpy()[plan.bounds()[missing.partitions + 1] - 1]
    topic_ids = [partition.topic_id for partition in plan.partitions]
    same_topic = same_text(missing.known["topic_id"], topic_ids, missing.partitions)
    same_topic |= missing.known["topic_id"].is_null().to_numpy()
    same_topic |= np.array([topic_id is None for topic_id in topic_ids], np.bool_)[missing.partitions]
    cut = (base_offsets > last) & same_topic
    by_partition: dict[PartitionKey, list[int]] = defaultdict(list)
    for number, base_offset in sorted(zip(missing.partitions[cut].tolist(), base_offsets[cut].tolist(), strict=True)):
        by_partition[plan.partitions[number].key].append(base_offset)
    return dict(by_partition)


def without_directory(
    plan: Plan,
    sources: Sequence[Source],
    topics: Pattern[str],
    index_place: IndexPlace,
    in_catalog: Mapping[PartitionKey, int],
) -> Mapping[PartitionKey, str]:
    """A line for each partition without a directory in the log dirs that an index directory or the catalog knows, in
    order. `in_catalog` has the number of segments of partitions without a listed segment. A source without any segment
    is reported as a whole.
    """
    log_dirs = [source for source in sources if source.name in plan.log_dirs and source.name not in plan.empty]
    listed = {partition.key for partition in plan.partitions}
    lines = _of_catalog(log_dirs, listed, in_catalog)
    for source in log_dirs:
        for partition in _indexed(source, index_place):
            key = source.name, partition.topic, partition.partition
            if key not in listed and topics.fullmatch(partition.topic):
                directory = PartitionDirectory(source, partition, source.path / partition.directory)
                index_directory = location(str(index_place.directory(directory)))
                if count := len(list_offset_indexes(index_directory)):
                    lines[key] = (
                        f"{directory.path}: it has index files of {counted(count, 'segment')} in {index_directory}, "
                        f"{_NO_DIRECTORY}"
                    )
    return dict(sorted(lines.items()))


def _of_catalog(
    log_dirs: Sequence[Source], listed: Collection[PartitionKey], in_catalog: Mapping[PartitionKey, int]
) -> dict[PartitionKey, str]:
    paths = {source.name: source.path for source in log_dirs}
    return {
        key: f"{_directory(paths[key[0]], key)}: it has {counted(count, 'segment')} in the catalog, {_NO_DIRECTORY}"
        for key, count in in_catalog.items()
        if count and key[0] in paths and key not in listed
    }


def _indexed(source: Source, index_place: IndexPlace) -> Iterator[TopicPartition]:
    """The partitions of a source with a directory in the index directory."""
    if index_place.index_dir is None:
        return
    root = index_place.index_dir / source.name if index_place.by_source else index_place.index_dir
    try:
        partitions = [parse_partition_directory(path.name) for path in root.iterdir()]
    except OSError:  # there is no index of this source, which is reported for each segment
        return
    yield from filter(None, partitions)


def warnings_of_missing(
    emptied: Mapping[PartitionKey, int], missing_at_end: Mapping[PartitionKey, Sequence[int]], sources: Sequence[Source]
) -> list[str]:
    """The warnings of a build about partitions that end elsewhere than in the catalog: losses first."""
    paths = {source.name: source.path for source in sources}
    lost = [
        f"lost: {_directory(paths[key[0]], key)}: {_last_missing(len(offsets))}, from offset {min(offsets)} "
        "on, and those before are there: a broker has truncated the log, or files are lost (retention deletes at the "
        "beginning)"
        for key, offsets in sorted(missing_at_end.items())
    ]
    gone = [
        f"missing: {_directory(paths[key[0]], key)}: {_all_missing(count)}: the topic was deleted or moved, or its "
        "directory is lost"
        for key, count in sorted(emptied.items())
    ]
    return [*lost, *gone]


def _directory(source: Location, key: PartitionKey) -> Location:
    """Where a partition's directory was; the source may be that directory."""
    name = TopicPartition(key[1], key[2]).directory
    return source if source.name == name else source / name


def _last_missing(count: int) -> str:
    return "its last segment is missing" if count == 1 else f"its last {count:,} segments are missing"


def _all_missing(count: int) -> str:
    return "its one segment is missing" if count == 1 else f"all its {count:,} segments are missing"
