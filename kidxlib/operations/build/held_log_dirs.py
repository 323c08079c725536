"""Log dirs in which a build writes: it holds their locks, as a broker would."""

from __future__ import annotations

import contextlib

from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan, log_dirs_to_lock
from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.request import BuildRequest
from kidxlib.storage.lock import locked


def hold_log_dirs(request: BuildRequest, plan: Plan, stack: contextlib.ExitStack) -> None:
    """Lock the log dirs of a plan that is built in place.

    Args:
        stack: gives them back when it is left.

    Raises:
        UsageError: another process holds one, as a broker does that runs.
    """
    if request.in_place:
        for log_dir in log_dirs_to_lock(plan):
            stack.enter_context(locked(log_dir))


def ensure_locks_cover_workers(request: BuildRequest, changes: Changes, backend: Backend) -> None:
    """Before anything is written beside a log.

    Raises:
        UsageError: workers on other machines would, where the log dir's lock does not reach.
    """
    if not request.in_place or not (changes.to_read.num_rows or changes.to_finish):
        return
    if not backend.engine.is_on_this_machine:
        raise UsageError(
            "--in-place: only with a local master, so that the log dir's lock covers every writer; give -- "
            "--master 'local[*]', or use kidx"
        )
