"""The forecasts of many partitions, made by all workers at the same time."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.build.bins import pack
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, Work
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.recover.forecast import Forecast, forecast
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.recovery.kept_scans import ScanWriter
from kidxlib.recovery.options import RecoverOptions

#: A forecast as Python writes it, for this very run.
_FORECASTS: Final = pa.schema(
    [pa.field("forecast", pa.struct([pa.field("number", pa.int64()), pa.field("pickled", pa.binary())]))]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTask:
    """A partition to look at.

    Attributes:
        number: among all of them.
        segments, log_bytes: that it has.
        scans: a directory for the scans of its logs; None where nobody reads them again.
        is_compacted: as for `look_at_logs`.
        threads: that may read a log at the same time.
    """

    number: int
    topic_partition: TopicPartition
    directory: Path
    options: RecoverOptions
    stop: PartitionStop
    everything: bool
    trusts: bool
    segments: int
    log_bytes: int
    scans: Path | None
    is_compacted: bool = False
    threads: int = 1

    def with_threads(self, threads: int) -> Self:
        """See `Packed`."""
        return replace(self, threads=threads)


def forecasts_of(tasks: Sequence[ForecastTask], engine: Engine, name: str = "forecasts") -> list[Forecast]:
    """The forecasts of some partitions, in their order.

    Args:
        name: of the work; an engine does each name once.

    Raises:
        KidxError: as `Engine.run`.
    """
    log_bytes = sum(task.log_bytes for task in tasks)
    with engine.stopping():
        staged = engine.run(Work(name, pack(tasks, engine.cores), forecast_partitions, _FORECASTS, bytes=log_bytes))
    found: dict[int, Forecast] = {}
    for batch in staged.batches("forecast"):
        found.update({row["number"]: pickle.loads(row["pickled"]) for row in batch.to_pylist()})
    staged.remove()
    return [found[task.number] for task in tasks]


def forecast_partitions(tasks: Iterable[ForecastTask], use_mmap: bool) -> Iterator[ItemRows]:
    """In a worker: the forecasts of some partitions."""
    with contextlib.ExitStack() as stack:
        writer: ScanWriter | None = None
        for task in tasks:
            if writer is None and task.scans is not None:
                writer = stack.enter_context(contextlib.closing(ScanWriter(task.scans / str(task.number))))
            found = forecast(
                task.topic_partition,
                task.directory,
                task.options,
                task.stop,
                LogReader(use_mmap=use_mmap, threads=task.threads, kept=writer),
                everything=task.everything,
                trusts=task.trusts,
                is_compacted=task.is_compacted,
            )
            yield ItemRows(
                segments=task.segments,
                log_bytes=task.log_bytes,
                rows=[{"forecast": {"number": task.number, "pickled": pickle.dumps(found)}}],
            )
