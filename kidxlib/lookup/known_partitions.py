"""The partitions in a catalog, and the message for a partition that is not among them."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa

from kidxlib.catalog.segment_key import PARTITION_KEY
from kidxlib.format.topic_partition import TopicPartition


def not_cataloged(wanted: TopicPartition, source: str | None, known: Iterable[Mapping[str, Any]]) -> str:
    """Why a catalog cannot be asked about a partition, or about one source of it.

    Args:
        known: `source`, `topic` and `partition` of those that it has.
    """
    by_name: dict[TopicPartition, list[str]] = defaultdict(list)
    for row in known:
        by_name[TopicPartition(row["topic"], row["partition"])].append(row["source"])
    if source is not None and wanted in by_name:
        return f"{wanted.directory} is not in source {source}; it is in {', '.join(sorted(by_name[wanted]))}"
    return no_such_partition(wanted, by_name)


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The partitions in a catalog, for the message about one that is not among them.

    Attributes:
        sources: the sources of each partition, by topic and number.
    """

    sources: Mapping[str, Mapping[int, Sequence[str]]]

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """The partitions in rows with `source`, `topic` and `partition`."""
        sources: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for source, topic, partition in zip(*(rows.column(name).to_pylist() for name in PARTITION_KEY), strict=True):
            sources[topic][partition].append(source)
        return cls(sources)

    def why_unknown(self, wanted: TopicPartition, source: str | None) -> str:
        """The message that a partition is not in the catalog, or not in a source, and what is."""
        numbers = self.sources.get(wanted.topic)
        if numbers is None:
            topics = _like(wanted.topic, sorted(self.sources))
            return f"no partition of topic {wanted.topic} in the catalog; there are {topics}"
        if wanted.partition not in numbers:
            partitions = _some([str(number) for number in sorted(numbers)])
            return f"no partition {wanted.partition} of topic {wanted.topic} in the catalog; there are {partitions}"
        return f"{wanted.directory} is not in source {source}; it is in {_some(sorted(numbers[wanted.partition]))}"


#: So many names are worth listing.
_NAMED: Final = 3


def no_such_partition(wanted: TopicPartition, known: Iterable[TopicPartition]) -> str:
    """The message that a partition does not exist, with the most similar names that do."""
    there = sorted(partition.directory for partition in set(known))
    return f"no partition {wanted.directory} in it; it has {_like(wanted.directory, there)}"


def _like(name: str, there: Sequence[str]) -> str:
    """The names most similar to one that is not there; the first of all where none is similar."""
    return _some(there, difflib.get_close_matches(name, there, n=_NAMED))


def _some(there: Sequence[str], chosen: Sequence[str] = ()) -> str:
    """The names that are chosen, else the first, and how many there are besides, as a text."""
    named = chosen or there[:_NAMED]
    more = f" and {len(there) - len(named)} more" if len(there) > len(named) else ""
    return f"{', '.join(named) or 'none'}{more}"
