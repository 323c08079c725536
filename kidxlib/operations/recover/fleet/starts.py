"""The next start of each source's broker after a crash, from what a catalog knows of its logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.recover.fleet.options import Rates
from kidxlib.tables.protocol import Question, TablesToAsk

_COLUMNS: Final[tuple[tuple[str, pa.DataType], ...]] = (
    ("source", pa.string()),
    ("clean_shutdown", pa.bool_()),
    ("partitions", pa.int64()),
    ("segments", pa.int64()),
    ("log_bytes", pa.int64()),
    ("largest_bytes", pa.int64()),
    ("last_bytes", pa.int64()),
    ("largest_last_bytes", pa.int64()),
)
#: Of each source what a broker recovers there after an unclean stop: of each partition the segment with the recovery
#: point and all later ones. Without a recovery point these are all. The cluster's metadata is recovered by the raft
#: layer. A source that was stopped cleanly has no partition among them.
UNFLUSHED: Final = Question(
    "unflushed logs",
    """
WITH ordered AS (
  SELECT source, topic, partition, log_bytes,
         lead(base_offset) OVER (PARTITION BY source, topic, partition ORDER BY base_offset) AS next_base_offset
  FROM segments
  WHERE status NOT IN ('gone', 'deleted')
),
unflushed AS (
  SELECT p.source AS source, p.clean_shutdown AS clean_shutdown, count(*) AS segments,
         coalesce(sum(log_bytes), 0) AS log_bytes,
         coalesce(sum(CASE WHEN next_base_offset IS NULL THEN log_bytes END), 0) AS last_bytes
  FROM partitions AS p
  JOIN ordered AS o ON p.source = o.source AND p.topic = o.topic AND p.partition = o.partition
  WHERE present AND p.topic <> '__cluster_metadata'
    AND (next_base_offset IS NULL OR next_base_offset > coalesce(recovery_point, 0))
  GROUP BY p.source, p.topic, p.partition, p.clean_shutdown
)
SELECT source, clean_shutdown, count(*) AS partitions, sum(segments) AS segments,
       sum(log_bytes) AS log_bytes, max(log_bytes) AS largest_bytes,
       sum(last_bytes) AS last_bytes, max(last_bytes) AS largest_last_bytes
FROM unflushed
GROUP BY source, clean_shutdown
ORDER BY source, clean_shutdown
""".strip(),
    (PARTITIONS, SEGMENTS),
    pa.schema([pa.field(*column) for column in _COLUMNS]),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A source at the next start of its broker.

    Attributes:
        source: by name: a log dir.
        partitions: that are recovered.
        log_bytes: of their logs that are not flushed.
        last_bytes: of their last segments, which the broker reads again at the level of checkpoints.
        seconds_alone: that reading takes the broker by itself.
        seconds_checkpoint, seconds_marker: that it takes kidx and the broker at each level.
    """

    source: str
    partitions: int
    log_bytes: int
    last_bytes: int
    seconds_alone: float
    seconds_checkpoint: float
    seconds_marker: float


def starts_of(tables: TablesToAsk, rates: Rates) -> tuple[Sequence[Start], Sequence[str]]:
    """The next start of each source, the longest first; and the sources that were stopped cleanly, by name.

    Raises:
        CatalogError: a table cannot be read.
    """
    rows = tables.ask(UNFLUSHED).to_pylist()
    starts = [_start(row, rates) for row in rows if not row["clean_shutdown"]]
    starts.sort(key=lambda start: (-start.seconds_alone, start.source))
    return starts, [row["source"] for row in rows if row["clean_shutdown"]]


def _start(row: dict[str, Any], rates: Rates) -> Start:
    kidx = row["log_bytes"] / rates.kidx
    return Start(
        source=row["source"],
        partitions=row["partitions"],
        log_bytes=row["log_bytes"],
        last_bytes=row["last_bytes"],
        seconds_alone=_seconds(row["log_bytes"], row["largest_bytes"], rates),
        seconds_checkpoint=kidx + _seconds(row["last_bytes"], row["largest_last_bytes"], rates),
        seconds_marker=kidx,
    )


def _seconds(log_bytes: int, largest_bytes: int, rates: Rates) -> float:
    """What a broker takes, which gives each partition to one of its threads."""
    return max(log_bytes / rates.threads, largest_bytes) / rates.broker
