"""The library's own work without Spark, on all cores at once: what a job's is measured against."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from kidxlib.indexing.plan import BuildTask, Plan, find_segments
from kidxlib.indexing.segments import build_segments
from kidxlib.indexing.source import IndexPlace, source_at
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.location import Directory
from kidxlib.storage.opened_log import map_log, open_local_log
from kidxlib.storage.publisher import FileOwner, Published, Publisher

_P = ParamSpec("_P")
_T = TypeVar("_T")

_start: Barrier


def at_once(work: Callable[..., _T], arguments: Sequence[tuple[Any, ...]]) -> list[_T]:
    """Do some work several times, each in a process of its own; what each gives.

    Args:
        work: a function of a module, which calls `wait_for_others` once it is ready.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments))
    with ProcessPoolExecutor(len(arguments), mp_context=context, initializer=_keep, initargs=(barrier,)) as processes:
        return [future.result() for future in [processes.submit(work, *each) for each in arguments]]


def _keep(barrier: Barrier) -> None:
    global _start
    _start = barrier


def wait_for_others() -> None:
    """Return when all processes of `at_once` are here."""
    _start.wait()


def recover_rate(log: Path, base_offset: int, passes: int) -> float:
    """Bytes a second of one process that scans a log again and again, opening and mapping it each time."""
    _recover(log, base_offset)
    wait_for_others()
    start = time.perf_counter()
    for _ in range(passes):
        _recover(log, base_offset)
    return log.stat().st_size * passes / (time.perf_counter() - start)


def _recover(log: Path, base_offset: int) -> None:
    with open_local_log(str(log)) as (descriptor, version):
        recover(map_log(descriptor, version.size), base_offset, RecoverOptions())


def plan_build(place: Path) -> Plan:
    """List `kafka-logs` in a directory, to be built into `index` beside it."""
    index_place = IndexPlace(index_dir=place / "index", by_source=False)
    source = source_at(str(place / "kafka-logs"), "bench")
    return find_segments([source], re.compile(".*"), index_place, lambda _: OptionsOfTopic(RecoverOptions()))


@dataclass(frozen=True, slots=True)
class TimedBuild:
    """Seconds of one process: in all, of these for staging files, and for flushing and renaming them."""

    seconds: float
    staging_seconds: float
    commit_seconds: float


def timed_build(warm_up: BuildTask, tasks: Sequence[BuildTask]) -> TimedBuild:
    """Build segments as a task on an executor does."""
    with mock.patch("kidxlib.indexing.segments.Publisher", _TimedPublisher):
        list(build_segments([warm_up], use_mmap=True))
        wait_for_others()
        _TimedPublisher.staging_seconds = _TimedPublisher.commit_seconds = 0.0
        start = time.perf_counter()
        for _ in build_segments(tasks, use_mmap=True):
            pass
        seconds = time.perf_counter() - start
    return TimedBuild(seconds, _TimedPublisher.staging_seconds, _TimedPublisher.commit_seconds)


class _TimedPublisher(Publisher):
    staging_seconds = 0.0
    commit_seconds = 0.0

    def begin_staging(
        self, directory: Directory, name: str, content: bytes, owner: FileOwner | None = None
    ) -> Callable[[], Published]:
        start = time.perf_counter()
        outcome = super().begin_staging(directory, name, content, owner)
        _TimedPublisher.staging_seconds += time.perf_counter() - start
        return outcome

    def commit(self) -> None:
        start = time.perf_counter()
        super().commit()
        _TimedPublisher.commit_seconds += time.perf_counter() - start
