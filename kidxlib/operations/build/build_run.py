"""One run of a build: its parts, how far it is, the locks of log dirs in which it writes, as a broker would, and what
it removes of killed runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import Changes, PartitionChange
from kidxlib.indexing.finish_files import remove_held
from kidxlib.indexing.plan import Plan, log_dirs_to_lock
from kidxlib.indexing.summary import Counts
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.storage.lock import locked
from kidxlib.storage.publisher import sweep_staging_files
from kidxlib.text.times import NS_PER_MS


@dataclass(frozen=True, slots=True)
class BuildRun:
    """The parts of a run. `commit` commits the changes of `segments` that are held; those of other tables never are."""

    request: BuildRequest
    plan: Plan
    backend: Backend
    build_id: str
    commit: Callable[[], None]


@dataclass(slots=True)
class Scanned:
    """How far a build is, wave by wave.

    Attributes:
        unfinished: partitions that are still to be finished.
        seconds: of all waves, until their results were there.
        read_seconds: in which some executor was reading, so without the time until one began.
        finishing: how many groups of partitions were finished.
        rows_changed: rows of `segments` that reading and finishing have changed.
    """

    unfinished: dict[PartitionKey, PartitionChange]
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    read_seconds: float = 0.0
    waves: int = 0
    finishing: int = 0
    rows_changed: int = 0


def hold_log_dirs(request: BuildRequest, plan: Plan, stack: contextlib.ExitStack) -> None:
    """Lock the log dirs of a plan that is built in place, until the stack is left."""
    if request.in_place:
        for log_dir in log_dirs_to_lock(plan):
            stack.enter_context(locked(log_dir))


def ensure_locks_cover_workers(request: BuildRequest, changes: Changes, backend: Backend) -> None:
    if not request.in_place or not (changes.to_read.num_rows or changes.to_finish):
        return
    if not backend.engine.is_on_this_machine:
        raise UsageError(
            "--in-place: only with a local master, so that the log dir's lock covers every writer; give -- "
            "--master 'local[*]', or use kidx"
        )


def sweep_leftovers(request: BuildRequest, plan: Plan, backend: Backend) -> None:
    """Remove what killed runs left: by the clock, whatever `--now` says, or a run that is going on loses its files."""
    older_than_ms = int((datetime.now(UTC) - request.limits.longest_run).timestamp() * 1000)
    for partition in plan.partitions if plan.is_listed else ():  # else workers have swept as they planned
        sweep_staging_files(partition.index_directory, older_than_ms * NS_PER_MS)
    backend.catalog.sweep_staging(older_than_ms)
    backend.engine.sweep(older_than_ms)


@contextlib.contextmanager
def removing_held_indexes(request: BuildRequest, plan: Plan) -> Iterator[None]:
    """In place no offset index waits for the end of its partition once the run is over, however it ends: the directory
    is a broker's. Those of a killed run go first: under the lock, none can be another run's.
    """
    if not request.in_place:
        yield
        return
    _remove_held(plan)
    try:
        yield
    except BaseException:  # interrupted, or the disk is full
        _remove_held(plan)
        raise


def _remove_held(plan: Plan) -> None:
    for partition in plan.partitions:
        remove_held(partition.index_directory)
