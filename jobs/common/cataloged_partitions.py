"""What the catalog knows of the partitions that somebody asks about, on the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog import Catalog, is_present
from jobs.common.driver_rows import of_driver
from jobs.common.runs import runs
from jobs.common.tables import PARTITIONS, SEGMENTS, Table
from kidxlib.cataloged import PARTITION_COLUMNS, SEGMENT_COLUMNS, CatalogedPartition, KnownPartitions
from kidxlib.names import TopicPartition

#: So many topics are worth naming to Delta, which then leaves out files that hold none of them.
_TOPICS_NAMED: Final = 200

_KEY: Final = ("source", "topic", "partition")


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

    segments = rows(SEGMENTS).where(is_present()).select(*_KEY, *SEGMENT_COLUMNS).toArrow()
    by_key = _by_partition(segments)
    none = segments.slice(0, 0)
    held: dict[tuple[str, int], list[CatalogedPartition]] = defaultdict(list)
    for facts in rows(PARTITIONS).select(*PARTITION_COLUMNS).orderBy(*_KEY).toArrow().to_pylist():
        key = tuple(facts[name] for name in _KEY)
        held[facts["topic"], facts["partition"]].append(CatalogedPartition(facts, by_key.get(key, none)))
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
