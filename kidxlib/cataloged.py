"""A partition as the catalog knows it, ready to be searched: no folder is listed, and no file is opened before it is
needed.

The files are held to the catalog. A log that is gone or has another size than when it was recorded is said, not
searched.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa

from kidxlib.epochs import LeaderEpochs
from kidxlib.log import Log
from kidxlib.names import TopicPartition, no_such_partition
from kidxlib.objects import location
from kidxlib.recover import USABLE, Status
from kidxlib.seek import Seeker
from kidxlib.seek_segment import SeekSegment
from kidxlib.time_index import TimestampOffset
from kidxlib.times import NS_PER_MS

#: The columns of the catalog's tables that a search needs.
PARTITION_COLUMNS: Final = ("source", "topic", "partition", "log_start_offset", "log_end_offset", "folder")
SEGMENT_COLUMNS: Final = (
    "base_offset",
    "status",
    "reason",
    "reason_position",
    "log_path",
    "log_bytes",
    "valid_bytes",
    "log_mtime_ns",
    "max_timestamp_ms",
    "offset_of_max_timestamp",
    "index_folder",
    "offset_index_bytes",
    "time_index_bytes",
    "leader_epochs",
)


@dataclass(frozen=True, slots=True)
class CatalogedPartition:
    """A partition of one source.

    Attributes:
        facts: its row of `partitions`, with `PARTITION_COLUMNS`.
        segments: its rows of `segments` that are there, with `SEGMENT_COLUMNS`.
    """

    facts: Mapping[str, Any]
    segments: pa.Table

    def seeker(self) -> Seeker | str:
        """What answers questions to it; if none can be answered, why."""
        rows = sorted(self.segments.to_pylist(), key=lambda row: int(row["base_offset"]))
        if not rows:
            return f"{self.facts['folder']}: no segment was there when the catalog was built"
        log = Log(
            [_segment(row) for row in rows],
            name=self.facts["folder"],
            log_start_offset=self.facts["log_start_offset"] or 0,
            log_end_offset=self.facts["log_end_offset"],
            leader_epochs=_leader_epochs(rows),
        )
        return Seeker(log)


def _segment(row: Mapping[str, Any]) -> SeekSegment:
    base_offset = row["base_offset"]
    timestamp, offset = row["max_timestamp_ms"], row["offset_of_max_timestamp"]
    is_broken = row["status"] not in USABLE
    return SeekSegment(
        location(row["log_path"]),
        base_offset,
        location(row["index_folder"]),
        mtime_ms=None if is_broken else row["log_mtime_ns"] // NS_PER_MS,
        max_timestamp=None if is_broken else TimestampOffset(timestamp, base_offset if offset is None else offset),
        log_bytes=row["log_bytes"],
        valid_bytes=row["valid_bytes"],
        offset_index_bytes=row["offset_index_bytes"],
        time_index_bytes=row["time_index_bytes"],
        broken=_why_not_well(row) if is_broken else None,
        cut=_why_not_well(row) if row["status"] == Status.TRUNCATED else None,
    )


def _why_not_well(row: Mapping[str, Any]) -> str:
    where = "" if row["reason_position"] is None else f" at byte {row['reason_position']}"
    reason = "" if row["reason"] is None else f" ({row['reason']}{where})"
    return f"{row['log_path']} was {row['status']}{reason} when the catalog was built"


def _leader_epochs(rows: list[dict[str, Any]]) -> LeaderEpochs:
    """As recovery assigns them."""
    epochs = LeaderEpochs()
    for entry in (entry for row in rows for entry in row["leader_epochs"] or ()):
        if epochs.is_news(entry["epoch"]):
            epochs.assign(entry["epoch"], entry["start_offset"])
    return epochs


def not_cataloged(wanted: TopicPartition, source: str | None, known: Iterable[Mapping[str, Any]]) -> str:
    """Why a catalog cannot be asked about a partition, or about one source of it.

    Args:
        known: `source`, `topic` and `partition` of those that it has.
    """
    by_name: dict[TopicPartition, list[str]] = defaultdict(list)
    for row in known:
        by_name[TopicPartition(row["topic"], row["partition"])].append(row["source"])
    if source is not None and wanted in by_name:
        return f"{wanted.folder} is not in source {source}; it is in {', '.join(sorted(by_name[wanted]))}"
    return no_such_partition(wanted, by_name)


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The partitions of a catalog, for what to say of one that is not among them.

    Attributes:
        sources: of each partition, by topic and number.
    """

    sources: Mapping[str, Mapping[int, Sequence[str]]]

    @classmethod
    def of(cls, rows: pa.Table) -> Self:
        """Of rows with `source`, `topic` and `partition`."""
        sources: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for source, topic, partition in zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True):
            sources[topic][partition].append(source)
        return cls(sources)

    def why_unknown(self, wanted: TopicPartition, source: str | None) -> str:
        """That a partition is not in the catalog, or not in a source, and what is."""
        numbers = self.sources.get(wanted.topic)
        if numbers is None:
            return f"no partition of topic {wanted.topic} in the catalog; there are {self._topics_like(wanted.topic)}"
        if wanted.partition not in numbers:
            return (
                f"no partition {wanted.partition} of topic {wanted.topic} in the catalog; there are "
                f"{_some(list(map(str, sorted(numbers))))}"
            )
        held = sorted(numbers[wanted.partition])
        return f"{wanted.folder} is not in source {source}; it is in {_some(held)}"

    def _topics_like(self, topic: str) -> str:
        there = sorted(self.sources)
        nearest = difflib.get_close_matches(topic, there, n=_NAMED)
        more = f" and {len(there) - len(nearest)} more" if nearest and len(there) > len(nearest) else ""
        return f"{', '.join(nearest)}{more}" if nearest else _some(there)


_KEY: Final = ("source", "topic", "partition")
#: So many names are worth listing.
_NAMED: Final = 3


def _some(there: Sequence[str]) -> str:
    more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
    return f"{', '.join(there[:_NAMED]) or 'none'}{more}"
