"""What the broker does once all is written, worked out by all workers at the same time: it comes to the same logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import StartupSimulation
from kidxlib.build.bins import pack
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, Work
from kidxlib.errors import KidxError
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.options import Level

_STARTS: Final = pa.schema([pa.field("start", pa.struct([pa.field("read_bytes", pa.int64())]))])


@dataclass(frozen=True, slots=True)
class _StartTask:
    """A partition to look at again."""

    forecast: Forecast
    level: Level

    @property
    def log_bytes(self) -> int:
        """Nothing: what was read of its logs is known."""
        return 0

    def with_threads(self, threads: int) -> Self:
        """See `Packed`."""
        return replace(self)


def ensure_same_starts(forecasts: Sequence[Forecast], level: Level, engine: Engine) -> int:
    """See that the broker comes to the same logs, as partitions are now.

    Returns:
        How many bytes of logs it reads for that.

    Raises:
        KidxError: as `ensure_same_start`.
    """
    tasks = [_StartTask(each, level) for each in forecasts]
    with engine.stopping():
        staged = engine.run(Work("starts", pack(tasks, engine.cores), look_at_starts, _STARTS, bytes=0))
    read_bytes: int = pc.sum(staged.rows("start")["read_bytes"]).as_py() or 0
    staged.remove()
    return read_bytes


def look_at_starts(tasks: Iterable[_StartTask], use_mmap: bool) -> Iterator[ItemRows]:
    """In a worker: what the broker reads of some partitions.

    Args:
        use_mmap: no log is read.

    Raises:
        KidxError: as `ensure_same_start`.
    """
    for task in tasks:
        yield ItemRows(rows=[{"start": {"read_bytes": ensure_same_start(task.forecast, task.level).read_bytes}}])


def ensure_same_start(each: Forecast, level: Level) -> StartupSimulation:
    """What the broker does with a partition as it is now, once recovery points or a marker are written. It has to come
    to the same log.

    Raises:
        KidxError: it does not; neither is written.
    """
    end = each.simulation.log_end_offset
    then = simulate_startup(
        each.directory,
        each.options,
        clean_shutdown=level is Level.MARKER,
        recovery_point=each.stop.recovery_point if end is None else end,
        log_start_offset=each.stop.log_start_offset,
        recoveries=each.recoveries,
    )
    for what, before, now in (
        ("would start at offset", each.simulation.log_start_offset, then.log_start_offset),
        ("would end at offset", each.simulation.log_end_offset, then.log_end_offset),
        ("would keep bytes", _kept(each.simulation), _kept(then)),
        ("would fail of", each.simulation.failures, then.failures),
    ):
        if before != now:
            raise KidxError(
                f"{each.directory}: by itself the log {what} {before}, and with level {level} {now}; nothing was "
                "written that spares the broker its recovery. Start it by itself, and report this"
            )
    if then.forgets_producers:
        raise KidxError(
            f"{each.directory}: no producer snapshot, and the segments do not tell all of its producers; with a marker "
            f"a broker would forget them. Give --level {Level.CHECKPOINT}, which leaves that to it"
        )
    return then


def _kept(simulation: StartupSimulation) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.kept_bytes) for segment in simulation.segments]
