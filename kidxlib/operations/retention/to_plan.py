"""What partitions are planned from: rows of the catalog, shared with workers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.source import PartitionDirectory
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.matching import Values, differing, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segment_views import SegmentToPlan
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.engine.shared_rows import SharedRows
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.retention.plan_options import IS_ONLY_REPLICA, Configs
from kidxlib.operations.retention.recorded import PresentSegments
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.reading.only_replica import OnlyReplicas
from kidxlib.run.recorded_sources import as_sources, source_paths
from kidxlib.tables.scope import scope_of

#: Segments that a worker plans at a time; a partition that has more is planned in one piece.
_SHARE_ROWS: Final = 65_536
#: Reads of the catalog at most: tables whose files were not written in order are read as a whole each time.
_READS_MAX: Final = 16

#: A partition has two logs opened, which takes as long as reading this many bytes of a log: half a millisecond. Beside
#: that its rows count for nothing, as they are decided on by columns, a million in a second.
_PARTITION_BYTES: Final = 32_768

_OFFSETS: Final = ("log_start_offset", "high_watermark")
_COUNT: Final = "count_all"


@dataclass(frozen=True, slots=True)
class PartitionsToPlan:
    """Some partitions, and what is known of their segments.

    Attributes:
        rows: the key of each segment, the other columns of `SegmentToPlan`, the offsets that checkpoints gave of its
            partition, and whether that is its only replica; each partition's in one piece and segments in order.
        configs: of their topics.
        compacted_topics: those of them that look so.
        bytes: of logs that could be read in the time that they take.
    """

    rows: SharedRows
    configs: Configs
    compacted_topics: Collection[str]
    bytes: int


def partitions_to_plan(
    segments: PresentSegments,
    keys: pa.Table,
    engine: Engine,
    configs: Configs,
    compacted_topics: Collection[str],
) -> Iterator[PartitionsToPlan]:
    """The partitions in shares, each with the rows that it is planned from. They are read for few shares at a time, as
    all of them may be many.

    Args:
        keys: of the partition of each segment; other columns are ignored.
        engine: shares the rows.
        compacted_topics: topics that look compacted.
    """
    offsets = segments.tables.read(PARTITIONS, [*PARTITIONS.key, *_OFFSETS], [Among("source", segments.sources)])
    partitions = keys.group_by(list(PARTITIONS.key)).aggregate([([], _COUNT)])
    partitions = partitions.sort_by([(name, "ascending") for name in PARTITIONS.key])
    share_rows = min(_SHARE_ROWS, keys.num_rows // (engine.cores * BINS_PER_CORE) + 1)
    only_replicas = _OnlyReplicas(source_paths(segments.tables))
    for of_read in _pieces(partitions, max(_SHARE_ROWS, keys.num_rows // _READS_MAX)):
        rows = only_replicas.told_in(_read(segments, of_read, offsets))
        start = 0
        for of_share in _pieces(of_read, share_rows):
            count = int(_counts(of_share).sum())
            share = rows.slice(start, count)
            start += count
            topics = [str(topic) for topic in pc.unique(of_share["topic"]).to_pylist()]
            yield PartitionsToPlan(
                rows=engine.share(share),
                configs={topic: configs[topic] for topic in topics},
                compacted_topics=frozenset(topics).intersection(compacted_topics),
                bytes=of_share.num_rows * _PARTITION_BYTES,
            )


def _read(segments: PresentSegments, partitions: pa.Table, offsets: pa.Table) -> pa.Table:
    """The segments of some partitions in order, with the offsets of their partitions."""
    rows = segments.read(SegmentToPlan.names(), scope_of({"wanted": partitions}, PARTITIONS.key))
    rows = rows.filter(positions_in(rows, partitions, PARTITIONS.key) >= 0)
    rows = rows.sort_by([(name, "ascending") for name in SEGMENTS.key])
    at = positions_in(rows, offsets, PARTITIONS.key)
    places: Values = pa.array(at, mask=at < 0)
    for name in _OFFSETS:
        rows = rows.append_column(name, offsets[name].take(places))
    return rows


class _OnlyReplicas:
    """Which partitions have all of their logs counted, as the broker that starts on them does: see `OnlyReplicas`.

    Args:
        paths: of the catalog's sources, by name.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._sources = {source.name: source for source in as_sources(paths)}
        places = [source.path for source in self._sources.values()]  # of a bucket nobody can tell
        self._asked = OnlyReplicas(BrokersMetadata(path for path in places if isinstance(path, Path)))

    def told_in(self, rows: pa.Table) -> pa.Table:
        """Segments, with `IS_ONLY_REPLICA` of their partitions.

        Args:
            rows: all of each partition's, in order. Logs that end at their checkpoint are not asked about.
        """
        count = rows.num_rows
        is_last = np.append(differing(rows.slice(1), rows.slice(0, count - 1), PARTITIONS.key), count > 0)
        ends: NDArray[np.int64] = np.flatnonzero(is_last).astype(np.int64)
        starts = np.append(0, ends[:-1] + 1)[: len(ends)]
        flags = np.zeros(count, np.bool_)
        last = rows.select([*PARTITIONS.key, "next_offset", "high_watermark"]).take(ends)
        is_beyond: Values = pc.greater(last["next_offset"], last["high_watermark"]).fill_null(False)
        for number in np.flatnonzero(is_beyond.to_numpy()).tolist():
            if self._holds(last.slice(number, 1).to_pylist()[0]):
                flags[starts[number] : ends[number] + 1] = True
        return rows.append_column(IS_ONLY_REPLICA, pa.array(flags))

    def _holds(self, row: Mapping[str, Any]) -> bool:
        source, partition = self._sources.get(row["source"]), TopicPartition(row["topic"], row["partition"])
        if source is None:
            return False
        return self._asked.holds(PartitionDirectory(source, partition, source.path / partition.directory))


def _pieces(partitions: pa.Table, rows: int) -> Iterator[pa.Table]:
    """The partitions in pieces that begin at about each so many of their segments."""
    counts = _counts(partitions)
    piece_of = (np.cumsum(counts) - counts) // rows
    starts = [0, *(np.flatnonzero(np.diff(piece_of)) + 1).tolist(), len(counts)]
    for start, end in itertools.pairwise(starts):
        yield partitions.slice(start, end - start)


def _counts(partitions: pa.Table) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = partitions[_COUNT].to_numpy()
    return counts
