"""Partitions that a source lacks and another one has, which has most of its partitions, too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.tables.protocol import TablesToRead

#: So many are named.
_NAMED = 20


def missing_partitions(tables: TablesToRead, left_out: Collection[str] = ()) -> list[dict[str, Any]]:
    """Compare which partitions each source has with those of the source with which it has most in common.

    A copy should have all of them; another broker of a cluster need not, and the catalog does not know which it is.

    Args:
        left_out: sources that are no log dirs.

    Returns:
        For each source that lacks some: its name and the other's, how many it lacks of how many, and the first names.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    rows = tables.read(PARTITIONS, (*PARTITIONS.key, "topic_id", "present"), [])
    of_sources: dict[str, set[tuple[str, int, str | None]]] = defaultdict(set)
    for row in rows.filter(rows["present"]).to_pylist():
        if row["source"] not in left_out:
            of_sources[row["source"]].add((row["topic"], row["partition"], row["topic_id"]))
    found = []
    for source, partitions in sorted(of_sources.items()):
        others = [(len(has & partitions), other) for other, has in of_sources.items() if other != source]
        shared, other = max(others, default=(0, ""))
        lacked = of_sources[other] - partitions if shared else set()
        if lacked:
            names = [
                TopicPartition(topic, number).directory for topic, number, _ in sorted(lacked, key=lambda key: key[:2])
            ]
            found.append(
                {
                    "source": source,
                    "compared_with": other,
                    "count": len(lacked),
                    "of": len(of_sources[other]),
                    "partitions": names[:_NAMED],
                }
            )
    return found
