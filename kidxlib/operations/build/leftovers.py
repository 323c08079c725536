"""Files left over by runs that were killed or interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

from kidxlib.build.finish.held_index import remove_held
from kidxlib.build.plan import Plan
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.request import BuildRequest
from kidxlib.storage.publisher import sweep
from kidxlib.text.times import NS_PER_MS


def sweep_leftovers(request: BuildRequest, plan: Plan, backend: Backend) -> None:
    """Remove what killed runs left: by the clock, whatever `--now` says, or a run that works now loses it."""
    older_than_ms = int((datetime.now(UTC) - request.limits.longest_run).timestamp() * 1000)
    for partition in plan.partitions if plan.is_listed else ():  # else workers have done so as they planned
        sweep(partition.index_directory, older_than_ms * NS_PER_MS)
    backend.catalog.sweep_staging(older_than_ms)
    backend.engine.sweep(older_than_ms)


@contextlib.contextmanager
def removing_held_indexes(request: BuildRequest, plan: Plan) -> Iterator[None]:
    """In place no offset index waits for the end of its partition once the run is over, however it ends: the directory
    is a broker's. What a killed run left there goes first: under the lock nobody else's can be there.
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
