"""Partitions of a catalog that are asked without Spark."""

from __future__ import annotations

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.known_partitions import not_cataloged
from kidxlib.lookup.partition import CatalogedPartition
from kidxlib.lookup.seeker import Seeker
from kidxlib.tables.delta_tables import DeltaTables


def seekers_in_catalog(catalog: str, wanted: TopicPartition, source: str | None) -> list[tuple[str, Seeker | str]]:
    """The sources that have a partition, each with who answers for it."""
    tables = DeltaTables(catalog)
    if tables.version(PARTITIONS) is None:
        raise UsageError(f"--catalog {catalog}: no table partitions in it; expected a directory that build_index made")
    of_it = [Among("topic", (wanted.topic,)), Among("partition", (wanted.partition,))]
    of_source = [] if source is None else [Among("source", (source,))]
    held = PartitionToSearch.of_arrow(tables.read(PARTITIONS, PartitionToSearch.names(), [*of_it, *of_source]))
    if not held:
        known = tables.read(PARTITIONS, PARTITIONS.key).to_pylist()
        raise UsageError(f"--catalog {catalog}: {not_cataloged(wanted, source, known)}")
    seekers = []
    for row in sorted(held, key=lambda row: row.source):
        present = [*of_it, Among("source", (row.source,)), PRESENT]
        segments = tables.read(SEGMENTS, SegmentToSearch.names(), present)
        seekers.append((row.source, CatalogedPartition(row, segments).seeker()))
    return seekers
