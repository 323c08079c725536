"""The segments to plan, by the catalog's rows, which are shared with workers. Also judges topics as a whole by these
rows: whether a topic looks compacted, and how many clusters its rows come from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.conditions import PRESENT, Among, Condition, rows_where
from kidxlib.catalog.matching import Positions, Values, differing, flags_of, numbers_in, positions_in, runs, taken_at
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS, SegmentToPlan
from kidxlib.engine.protocol import Engine
from kidxlib.engine.shares import share_rows_of, shares
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.operations.retention.plan_work import IS_ONLY_REPLICA, ShareToPlan
from kidxlib.reading.brokers_metadata import BrokersMetadata, OnlyReplicas
from kidxlib.recovery.outcome import Status
from kidxlib.run.retention_configs import Configs
from kidxlib.run.sources import as_sources, source_paths
from kidxlib.tables.protocol import ROWS, Tables
from kidxlib.text.words import counted

#: How many segments a worker plans at a time. A partition with more segments is planned as a whole.
_SHARE_ROWS: Final = 65_536
#: About how many reads of the catalog there are: a table whose files are in no order is read as a whole each time.
_READS_MAX: Final = 16

_OFFSETS: Final = ("log_start_offset", "high_watermark")

#: The columns that are read of segments besides the keys of their partitions.
FACTS_OF_OFFSETS: Final = ("base_offset", "next_offset", "status", "records")


def topics_to_plan(tables: Tables) -> dict[str, set[str]]:
    """The topics of which each source has segments to plan, by source."""
    topics: dict[str, set[str]] = defaultdict(set)
    names = ["source", "topic"]
    for row in tables.read(SEGMENTS, names, [PRESENT]).group_by(names).aggregate([]).to_pylist():
        topics[row["source"]].add(row["topic"])
    return dict(topics)


@dataclass(frozen=True, slots=True)
class SegmentsToPlan:
    """The segments to plan: all that are present of some sources and topics, in one version of the table `segments`."""

    tables: Tables
    version: int | None
    sources: Sequence[str]
    topics: Sequence[str]

    def read_columns(self, names: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """The keys of the partitions of the segments to plan, and some other columns; in any order."""
        wanted = [Among("source", self.sources), PRESENT, *where]
        rows = self.tables.read(SEGMENTS, [*PARTITIONS.key, *names], wanted, self.version)
        return rows_where(rows, [Among("topic", self.topics)])


def partitions_to_plan(
    segments: SegmentsToPlan,
    partitions: pa.Table,
    engine: Engine,
    configs: Configs,
    compacted_topics: Collection[str],
) -> Iterator[ShareToPlan]:
    """The partitions in shares, each with the rows to plan from. Rows are read for a few shares at a time: all together
    may be too many.
    """
    offsets = segments.tables.read(PARTITIONS, [*PARTITIONS.key, *_OFFSETS], [Among("source", segments.sources)])

    def read(scope: Sequence[Condition]) -> pa.Table:
        rows = segments.read_columns(SegmentToPlan.names(), scope)
        at = positions_in(rows, offsets, PARTITIONS.key)
        for name in _OFFSETS:
            rows = rows.append_column(name, taken_at(offsets[name], at))
        return rows

    rows_at_once = max(_SHARE_ROWS, int(pc.sum(partitions[ROWS.name]).as_py() or 0) // _READS_MAX)
    only_replicas = _OnlyReplicas(source_paths(segments.tables))
    share_rows = share_rows_of(partitions, engine.cores, _SHARE_ROWS)
    for of_share, rows in shares(read, partitions, share_rows, rows_at_once):
        topics = [str(topic) for topic in pc.unique(of_share["topic"]).to_pylist()]
        yield ShareToPlan(
            rows=engine.share(only_replicas.told_in(rows)),
            configs={topic: configs[topic] for topic in topics},
            compacted_topics=frozenset(topics).intersection(compacted_topics),
        )


class _OnlyReplicas:
    """Tells which partitions are only replicas: their whole logs count, as for the broker that starts on them
    (`OnlyReplicas`).
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._sources = {source.name: source for source in as_sources(paths)}
        places = [source.path for source in self._sources.values()]  # for a bucket this is not known
        self._asked = OnlyReplicas(BrokersMetadata(path for path in places if isinstance(path, Path)))

    def told_in(self, rows: pa.Table) -> pa.Table:
        """The rows, which are all rows of each partition in order, with the column `IS_ONLY_REPLICA` added. A partition
        whose log ends at its checkpoint is not looked up.
        """
        partitions = list(runs([rows[name].combine_chunks() for name in PARTITIONS.key]))
        flags = np.zeros(rows.num_rows, np.bool_)
        last_rows = pa.array([end - 1 for _, end in partitions], pa.int64())
        last = rows.select([*PARTITIONS.key, "next_offset", "high_watermark"]).take(last_rows)
        is_beyond: Values = pc.greater(last["next_offset"], last["high_watermark"]).fill_null(False)
        for number in np.flatnonzero(is_beyond.to_numpy()).tolist():
            if self._holds(last.slice(number, 1).to_pylist()[0]):
                flags[slice(*partitions[number])] = True
        return rows.append_column(IS_ONLY_REPLICA, pa.array(flags))

    def _holds(self, row: Mapping[str, Any]) -> bool:
        source, partition = self._sources.get(row["source"]), TopicPartition(row["topic"], row["partition"])
        if source is None:
            return False
        return self._asked.holds(PartitionDirectory(source, partition, source.path / partition.directory))


def topics_that_look_compacted(rows: pa.Table, *, what_if: bool) -> dict[str, str]:
    """The topics whose segments lack offsets, as only compaction removes offsets from a log. Each has the first place
    that lacks some, in words.

    A broker assigns offsets without gaps, also to markers of transactions. So a segment has as many records as offsets,
    and begins where the one before it ends. Only segments that are `ok` are judged. The number of compressed messages
    of magic 0 or 1 is not known: such a topic may be compacted, and is taken for compacted. A missing segment looks
    like compaction, too: if another source has its offsets, a what-if takes it for missing. A plan that deletes keeps
    every topic that may be compacted.

    The rows have `FACTS_OF_OFFSETS` and the keys of partitions, for all segments of each partition.
    """
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in SEGMENTS.key])
    base, end, records = rows["base_offset"], rows["next_offset"], rows["records"]
    is_ok = flags_of(pc.equal(rows["status"], pa.scalar(Status.OK.value)))
    fewer: Values = pc.less(records, pc.subtract(end, base)).fill_null(False)
    lacks = flags_of(pc.or_(records.is_null(), fewer)) & is_ok
    following: Values = pc.greater(base.slice(1), end.slice(0, rows.num_rows - 1)).fill_null(False)
    is_last = differing(rows.slice(1), rows.slice(0, rows.num_rows - 1), PARTITIONS.key)
    before_gap = np.flatnonzero(flags_of(following) & ~is_last & is_ok[:-1])
    compacted = pc.unique(rows["topic"].filter(pa.array(lacks)))
    if what_if:
        others: Values = pc.is_in(rows["topic"], value_set=compacted)
        before_gap = before_gap[~flags_of(others)[before_gap]]
        if len(before_gap):  # ranks of a million offsets take a second
            before_gap = before_gap[~_known_elsewhere(rows, before_gap)]
    places: Values = pa.array(before_gap)
    following_bases: Values = pa.array(before_gap + 1)
    with_gap = rows.take(places).append_column("next_base_offset", base.take(following_bases))
    between = {row["topic"]: _gap_between(row) for row in _first_of_topics(with_gap)}
    return between | {row["topic"]: _gap_within(row) for row in _first_of_topics(rows.filter(pa.array(lacks)))}


def _first_of_topics(rows: pa.Table) -> list[dict[str, Any]]:
    topics = rows.group_by("topic", use_threads=False).aggregate([])
    return rows.take(positions_in(topics, rows, ("topic",))).to_pylist()


def _gap_between(row: Mapping[str, Any]) -> str:
    missing = f"offsets {row['next_offset']} to {row['next_base_offset'] - 1}"
    return f"{row['source']}: {row['topic']}-{row['partition']} has no log with {missing}"


def _gap_within(row: Mapping[str, Any]) -> str:
    records = "an unknown number of records" if row["records"] is None else counted(row["records"], "record")
    segment = f"{row['source']}: {row['topic']}-{row['partition']}/{row['base_offset']}"
    return f"{segment} has {records} of {counted(row['next_offset'] - row['base_offset'], 'offset')}"


def _known_elsewhere(rows: pa.Table, before_gap: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each gap, whether another source has a segment with the first missing offset. The rows of segments are sorted
    by their keys, and `before_gap` has the positions of the rows before the gaps.
    """
    (base, _), (end, is_known) = numbers_in(rows["base_offset"]), numbers_in(rows["next_offset"])
    ranks = np.unique(np.concatenate([base, end]), return_inverse=True)[1]
    bases, ends = ranks[: len(base)], ranks[len(base) :]
    has_offsets = is_known & (base < end)

    def holding(groups: Positions) -> Positions:
        """How many segments of each gap's group hold the offset: as many as begin at or below it, less those that end
        at or below it.
        """
        first = groups * len(ranks)
        asked = (first + ends)[before_gap]
        begun, ended = (
            np.searchsorted(np.sort((first + offsets)[has_offsets]), asked, side="right") for offsets in (bases, ends)
        )
        return begun - ended

    of_all, of_own = (positions_in(rows, rows, key) for key in (("topic", "partition"), PARTITIONS.key))
    return holding(of_all) > holding(of_own)


def ensure_one_cluster(rows: pa.Table, policy_file: Path) -> None:
    """Refuse to plan topics with several ids: `policy_file` has the output of Kafka's tools, which holds for one
    cluster, and a topic that was made again has another id, too.
    """
    names = ["topic", "topic_id", "source"]
    with_ids = rows.filter(rows["topic_id"].is_valid()).group_by(names).aggregate([])
    first_of_topic: dict[str, dict[str, Any]] = {}
    for row in with_ids.sort_by([(name, "ascending") for name in names]).to_pylist():
        first = first_of_topic.setdefault(row["topic"], row)
        if row["topic_id"] != first["topic_id"]:
            ids = f"{first['topic_id']} in source {first['source']} and {row['topic_id']} in source {row['source']}"
            raise UsageError(
                f"--policy {policy_file}: it tells of one cluster's topics, and {row['topic']} has the topic id {ids}; "
                "choose the sources of that cluster with --source"
            )


def ensure_one_source_each(rows: pa.Table) -> None:
    """Refuse to plan a partition that several sources have: a request to delete records names each partition once."""
    names = ["topic", "partition", "source"]
    partitions = rows.group_by(names).aggregate([]).sort_by([(name, "ascending") for name in names])
    sources: dict[tuple[str, int], list[str]] = {}
    for row in partitions.to_pylist():
        sources.setdefault((row["topic"], row["partition"]), []).append(row["source"])
    for (topic, partition), of_partition in sources.items():
        if len(of_partition) > 1:
            raise UsageError(
                f"--delete-records-json: {topic}-{partition} is in the sources {', '.join(of_partition)}; "
                "choose one with --source"
            )
