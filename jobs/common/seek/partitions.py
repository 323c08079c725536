"""What the catalog knows of the partitions that somebody asks about, on the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.status import is_present
from jobs.common.seek.executors import Partitions, Unknown
from jobs.common.seek.queries import Asked
from jobs.common.spark.local_rows import of_driver
from jobs.common.spark.run_lengths import runs
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.known_partitions import KnownPartitions
from kidxlib.lookup.partition import CatalogedPartition

#: So many topics are worth naming to Delta, which then leaves out files that hold none of them.
_TOPICS_NAMED: Final = 200

_KEY: Final = PARTITIONS.key


def cataloged_partitions(
    catalog: Catalog, wanted: Collection[TopicPartition], source: str | None
) -> dict[tuple[str, int], list[CatalogedPartition]]:
    """The partitions of these names, of each source or of one, by topic and number; about 300 bytes a segment."""

    def rows(table: Table) -> DataFrame:
        found = catalog.read(table)
        if source is not None:
            found = found.where(F.col("source") == source)
        topics = {partition.topic for partition in wanted}
        if len(topics) <= _TOPICS_NAMED:
            found = found.where(F.col("topic").isin(*topics))
        names = [(partition.topic, partition.partition) for partition in wanted]
        asked = of_driver(catalog.spark, names, PARTITIONS.schema(("topic", "partition")))
        return found.join(F.broadcast(asked), ["topic", "partition"], "left_semi")

    segments = rows(SEGMENTS).where(is_present()).select(*_KEY, *SegmentToSearch.names()).toArrow()
    by_key = _by_partition(segments)
    none = segments.slice(0, 0)
    held: dict[tuple[str, int], list[CatalogedPartition]] = defaultdict(list)
    found = rows(PARTITIONS).select(*PartitionToSearch.names()).orderBy(*_KEY).toArrow()
    for facts in PartitionToSearch.of_arrow(found):
        segments_of = by_key.get((facts.source, facts.topic, facts.partition), none)
        held[facts.topic, facts.partition].append(CatalogedPartition(facts, segments_of))
    return dict(held)


def known_partitions(catalog: Catalog) -> KnownPartitions:
    """All partitions of the catalog."""
    return KnownPartitions.of(catalog.read(PARTITIONS).select(*_KEY).toArrow())


def _by_partition(segments: pa.Table) -> dict[tuple[Any, ...], pa.Table]:
    segments = segments.sort_by([(name, "ascending") for name in _KEY])
    parts = {}
    for start, end in runs([segments.column(name).combine_chunks() for name in _KEY]):
        part = segments.take(np.arange(start, end))  # a slice would take the whole table along to each executor
        parts[tuple(part.column(name)[0].as_py() for name in _KEY)] = part
    return parts


#: Partitions that the catalog does not have, for which the most similar names are looked up.
_EXPLAINED: Final = 100


def unknown_partitions(
    catalog: Catalog, wanted: Sequence[Asked], partitions: Partitions, source: str | None
) -> Unknown:
    """What to say of partitions that are asked and that the catalog, or one source of it, does not have."""
    missing = [
        each
        for each in wanted
        if not any(
            each.source in (None, held.facts.source) for held in partitions.get((each.topic, each.partition), ())
        )
    ]
    if not missing:
        return {}
    known = known_partitions(catalog)
    return {
        (each.topic, each.partition, each.source): known.why_unknown(
            TopicPartition(each.topic, each.partition), each.source or source
        )
        for each in missing[:_EXPLAINED]
    }
