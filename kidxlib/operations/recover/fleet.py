"""Forecasts how long the log dirs of a fleet take to start after a crash, alone and with kidx at each level, from what
a catalog knows of each broker's logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.partitions import PARTITIONS, partition_keys
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import CatalogError
from kidxlib.indexing.source import ANY_TOPIC
from kidxlib.operations.damage.lost import not_built
from kidxlib.run.sources import as_sources, list_sources, source_paths
from kidxlib.tables.protocol import SqlQuestion, Tables, TablesToAsk
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome

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
#: After an unclean stop a broker recovers, in each partition, the segment with the recovery point and all later ones;
#: without a recovery point it recovers all. The raft layer recovers the cluster's metadata, which is left out here. The
#: rows of a source that was stopped cleanly only name it.
UNFLUSHED: Final = SqlQuestion(
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
class RecoveryRates:
    """How fast logs are recovered.

    Attributes:
        broker: bytes a second that one thread of a broker reads.
        kidx: bytes a second that kidx reads, with all cores.
        threads: how many a broker has for each log dir.
    """

    broker: int
    kidx: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStart:
    """A source at the next start of its broker.

    Attributes:
        source: by name: a log dir.
        partitions: how many are recovered.
        log_bytes: bytes of their unflushed logs.
        last_bytes: bytes of their last segments, which the broker reads again at the level of checkpoints.
        seconds_alone: how long the broker reads by itself.
        seconds_checkpoint, seconds_marker: how long kidx and the broker read at each level.
    """

    source: str
    partitions: int
    log_bytes: int
    last_bytes: int
    seconds_alone: float
    seconds_checkpoint: float
    seconds_marker: float


def _starts_of(tables: TablesToAsk, rates: RecoveryRates) -> tuple[Sequence[SourceStart], Sequence[str]]:
    """The next start of each source, the longest first; and the sources that were stopped cleanly, by name."""
    rows = tables.ask(UNFLUSHED).to_pylist()
    starts = [_estimated_start(row, rates) for row in rows if not row["clean_shutdown"]]
    starts.sort(key=lambda start: (-start.seconds_alone, start.source))
    return starts, [row["source"] for row in rows if row["clean_shutdown"]]


def _estimated_start(row: dict[str, Any], rates: RecoveryRates) -> SourceStart:
    kidx = row["log_bytes"] / rates.kidx
    return SourceStart(
        source=row["source"],
        partitions=row["partitions"],
        log_bytes=row["log_bytes"],
        last_bytes=row["last_bytes"],
        seconds_alone=_seconds_reading(row["log_bytes"], row["largest_bytes"], rates),
        seconds_checkpoint=kidx + _seconds_reading(row["last_bytes"], row["largest_last_bytes"], rates),
        seconds_marker=kidx,
    )


def _seconds_reading(log_bytes: int, largest_bytes: int, rates: RecoveryRates) -> float:
    """How long a broker reads, as it gives each partition to one of its threads."""
    return max(log_bytes / rates.threads, largest_bytes) / rates.broker


def forecast_fleet(rates: RecoveryRates, tables: Tables) -> Outcome:
    """Ask a catalog of brokers' log dirs, and give a row for each. Nothing is recorded, and no log is read; what the
    catalog says of a log dir that is not there may be long past.
    """
    if not isinstance(tables, TablesToAsk):
        raise CatalogError(
            f"{tables.path}: this kind of catalog answers no SQL; expected a directory, an s3:// URL or one of Spark's"
        )
    starts, clean = _starts_of(tables, rates)
    sources = as_sources(source_paths(tables))
    seen = list_sources(sources)
    not_reached = seen.not_reached
    keys = set(partition_keys(tables.read(PARTITIONS, PARTITIONS.key)))
    left_out = list(not_built(sources, seen, keys, ANY_TOPIC))
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if not_reached else ExitCode.OK,
        counts={"sources": len(starts), "partitions": sum(start.partitions for start in starts)},
        bytes=sum(start.log_bytes for start in starts),
    )
    outcome.values.update(
        catalog=tables.path,
        rates=asdict(rates),
        sources=[asdict(start) for start in starts],
        stopped_cleanly=list(clean),
        not_reached=[source.as_json() for source in not_reached],
        not_built=[asdict(log_dir) for log_dir in left_out],
    )
    away = {source.source.name for source in not_reached}
    _tell_starts(outcome, tables.path, rates, starts, [name for name in clean if name not in away])
    if by_catalog := [name for name in clean if name in away]:
        outcome.line(f"stopped cleanly by the catalog, and nobody has looked since: {', '.join(by_catalog)}")
    outcome.line(*(f"not counted: {log_dir}" for log_dir in left_out))
    outcome.line(*(f"{source} What is said of it is by the catalog" for source in not_reached))
    return outcome


def _tell_starts(
    outcome: Outcome, catalog: str, rates: RecoveryRates, starts: Sequence[SourceStart], clean: Sequence[str]
) -> None:
    if starts:
        outcome.table(
            f"the next start after a crash, by {catalog}: seconds that reading logs takes",
            ("source", "alone", "checkpoint", "marker", "partitions", "log bytes", "last segments"),
            [_start_row(start) for start in starts],
            text_columns=4,
        )
        outcome.line(
            f"a broker reads {rates.broker:,} bytes a second with each of {rates.threads} threads for a log dir, kidx "
            f"{rates.kidx:,}: --broker-rate, --recovery-threads, --kidx-rate"
        )
    if clean:
        outcome.line(f"stopped cleanly, so nothing is recovered: {', '.join(clean)}")
    if not starts and not clean:
        outcome.line(f"{catalog} knows of no partition that a broker would start with")


def _start_row(start: SourceStart) -> list[str | int]:
    seconds = (start.seconds_alone, start.seconds_checkpoint, start.seconds_marker)
    shown = [f"{number:,.1f}" for number in seconds]
    return [start.source, *shown, start.partitions, start.log_bytes, start.last_bytes]
