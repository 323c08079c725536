"""What the catalog's rows say of topics as a whole: whether they look compacted, and of how many clusters they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.build.listed import numbers_in
from kidxlib.catalog.matching import Positions, Values, differing, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.recovery.outcome import Status
from kidxlib.text.counted import counted

#: What is read of segments besides the keys of their partitions.
FACTS_OF_OFFSETS: Final = ("base_offset", "next_offset", "status", "records")


def topics_that_look_compacted(rows: pa.Table, *, what_if: bool) -> dict[str, str]:
    """Topics with segments that lack offsets, which nothing but compaction takes out of a log; each with the first
    place that looks so, in words.

    A broker gives offsets without a gap, markers of transactions included; so a segment has as many records as
    offsets, and one begins where the one before it ends. Segments that are `ok` tell. Where messages of magic 0 or 1
    are compressed, how many there are is not known: such a topic may be compacted, and counts as if it were. A segment
    that is missing looks like compaction, too: where another source has its offsets, a what-if takes it for missing.

    Args:
        rows: the segments' `FACTS_OF_OFFSETS` and the keys of their partitions, all of each partition.
        what_if: nothing is deleted by the answer. What deletes keeps all that may be compacted.
    """
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in SEGMENTS.key])
    base, end, records = rows["base_offset"], rows["next_offset"], rows["records"]
    is_ok = _numpy(pc.equal(rows["status"], pa.scalar(Status.OK.value)))
    fewer: Values = pc.less(records, pc.subtract(end, base)).fill_null(False)
    lacks = _numpy(pc.or_(records.is_null(), fewer)) & is_ok
    following: Values = pc.greater(base.slice(1), end.slice(0, rows.num_rows - 1)).fill_null(False)
    is_last = differing(rows.slice(1), rows.slice(0, rows.num_rows - 1), PARTITIONS.key)
    before_gap = np.flatnonzero(_numpy(following) & ~is_last & is_ok[:-1])
    compacted = pc.unique(rows["topic"].filter(pa.array(lacks)))
    if what_if:
        others: Values = pc.is_in(rows["topic"], value_set=compacted)
        before_gap = before_gap[~_numpy(others)[before_gap]]
        before_gap = before_gap[~_known_elsewhere(rows, before_gap)]
    places: Values = pa.array(before_gap)
    following_bases: Values = pa.array(before_gap + 1)
    with_gap = rows.take(places).append_column("next_base_offset", base.take(following_bases))
    between = {row["topic"]: _between(row) for row in _first_of_topics(with_gap)}
    return between | {row["topic"]: _within(row) for row in _first_of_topics(rows.filter(pa.array(lacks)))}


def _first_of_topics(rows: pa.Table) -> list[dict[str, Any]]:
    """The first row of each topic."""
    return rows.take(
        positions_in(rows.group_by("topic", use_threads=False).aggregate([]), rows, ("topic",))
    ).to_pylist()


def _between(row: Mapping[str, Any]) -> str:
    missing = f"offsets {row['next_offset']} to {row['next_base_offset'] - 1}"
    return f"{row['source']}: {row['topic']}-{row['partition']} has no log with {missing}"


def _within(row: Mapping[str, Any]) -> str:
    records = "an unknown number of records" if row["records"] is None else counted(row["records"], "record")
    segment = f"{row['source']}: {row['topic']}-{row['partition']}/{row['base_offset']}"
    return f"{segment} has {records} of {counted(row['next_offset'] - row['base_offset'], 'offset')}"


def _known_elsewhere(rows: pa.Table, before_gap: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether another source has a segment with the first offset that is missing, of each gap.

    Args:
        rows: segments, sorted by their keys.
        before_gap: the numbers of the segments before the gaps.
    """
    (base, _), (end, is_known) = numbers_in(rows["base_offset"]), numbers_in(rows["next_offset"])
    ranks = np.unique(np.concatenate([base, end]), return_inverse=True)[1]
    bases, ends = ranks[: len(base)], ranks[len(base) :]
    has_offsets = is_known & (base < end)

    def holding(groups: Positions) -> Positions:
        """How many segments of its group hold that offset: those that begin at or below it, less those that end so."""
        first = groups * len(ranks)
        asked = (first + ends)[before_gap]
        begun, ended = (
            np.searchsorted(np.sort((first + each)[has_offsets]), asked, side="right") for each in (bases, ends)
        )
        return begun - ended

    of_all, of_own = (positions_in(rows, rows, key) for key in (("topic", "partition"), PARTITIONS.key))
    return holding(of_all) > holding(of_own)


def ensure_one_cluster(rows: pa.Table, policy_file: Path) -> None:
    """What Kafka's tools print of a topic holds for the cluster that they asked. A topic that was made again has
    another id, too.

    Args:
        rows: `source`, `topic` and `topic_id` of segments.
        policy_file: what they printed.

    Raises:
        UsageError: a topic has several topic ids in the sources; one without an id could be any.
    """
    names = ["topic", "topic_id", "source"]
    ids = rows.filter(rows["topic_id"].is_valid()).group_by(names).aggregate([])
    found = ids.sort_by([(name, "ascending") for name in names]).to_pylist()
    first: dict[str, dict[str, Any]] = {}
    for row in found:
        one = first.setdefault(row["topic"], row)
        if row["topic_id"] != one["topic_id"]:
            of = f"{one['topic_id']} in source {one['source']} and {row['topic_id']} in source {row['source']}"
            raise UsageError(
                f"--policy {policy_file}: it tells of one cluster's topics, and {row['topic']} has the topic id {of}; "
                "choose the sources of that cluster with --source"
            )


def ensure_no_copies(rows: pa.Table) -> None:
    """A request to delete records names a partition once.

    Args:
        rows: `source`, `topic` and `partition` of segments.

    Raises:
        UsageError: several sources hold one partition.
    """
    names = ["topic", "partition", "source"]
    found = rows.group_by(names).aggregate([]).sort_by([(name, "ascending") for name in names]).to_pylist()
    sources: dict[tuple[str, int], list[str]] = {}
    for row in found:
        sources.setdefault((row["topic"], row["partition"]), []).append(row["source"])
    for (topic, partition), of_partition in sources.items():
        if len(of_partition) > 1:
            raise UsageError(
                f"--delete-records-json: {topic}-{partition} is in the sources {', '.join(of_partition)}; "
                "choose one with --source"
            )


def _numpy(flags: Values) -> Any:
    return flags.to_numpy().astype(np.bool_)
