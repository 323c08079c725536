"""Applies a recorded plan."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.operations.retention.applied import AppliedPlan
from kidxlib.operations.retention.planned_deletions import partitions_then, planned_deletions
from kidxlib.operations.retention.recorded import mark_deleted
from kidxlib.operations.retention.recorded_plan import current_configs, plan_to_apply
from kidxlib.operations.retention.request import ApplyRequest
from kidxlib.retention.apply import SegmentResult, apply_deletions
from kidxlib.retention.outcomes import DeletionOutcome
from kidxlib.retention.plan import log_dirs_of
from kidxlib.retention.reconsider import reconsidered
from kidxlib.run.result import RunResult
from kidxlib.storage.lock import locked
from kidxlib.storage.remover import Remover
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import note, print_json
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.times import to_ms


def _apply_plan(tables: Tables, request: ApplyRequest) -> AppliedPlan:
    """Apply a plan, and write into the catalog what was deleted.

    Raises:
        UsageError: there is no such plan, it is none that may be applied, its policy says something else by now, or
            a log dir is not where it was or held by another process; nothing is done.
        PublishError: a file cannot be removed.
    """
    plan = plan_to_apply(tables, request)
    deletions = planned_deletions(plan)
    configs = current_configs(request, plan, {deletion.key[1] for deletion in deletions})

    def record(results: Sequence[SegmentResult]) -> None:
        deleted = [
            (*found.key, found.segment.base_offset) for found in results if found.outcome is DeletionOutcome.DELETED
        ]
        if deleted:
            mark_deleted(tables, deleted, request.context.now)

    def wait() -> None:
        if request.delete_delay:
            note(f"renamed; the files are removed in {request.delete_delay}")
        time.sleep(request.delete_delay.total_seconds())

    with contextlib.ExitStack() as stack:
        for log_dir in log_dirs_of(deletions):
            stack.enter_context(locked(log_dir))
        now_ms = to_ms(request.context.now)
        then = partitions_then(plan, [deletion.key for deletion in deletions])
        configs.ensure_recent({key: each.written for key, each in then.items()}, request.max_metadata_lag)
        remover = stack.enter_context(Remover())
        again = [
            reconsidered(remover, deletion, then[deletion.key], configs.of_topics[deletion.key[1]].policy, now_ms)
            for deletion in deletions
        ]
        results = apply_deletions(again, record, wait)
    before = {(key, each.file.base_offset) for key, found in then.items() for each in found.segments if each.deleted}
    return AppliedPlan(
        request.plan_id,
        results,
        configs.configured.other_log_dirs,
        before,
    )


def run_apply(backend: Backend, request: ApplyRequest, as_json: bool) -> RunResult:
    """Apply a plan, and show what it came to.

    Raises:
        UsageError: as `_apply_plan`; or workers are elsewhere.
        PublishError: as that.
    """
    if not backend.engine.is_on_this_machine:
        raise UsageError(
            "--apply: only with a local master, so that the log dir's lock covers every writer; give -- --master "
            "'local[*]', or use kidx"
        )
    begin_phase("deleting what the plan names")
    applied = _apply_plan(backend.catalog.tables, request)
    if as_json:
        print_json(applied.as_json())
    else:
        applied.show()
    return RunResult(
        code=ExitCode.OK if applied.is_problem_free else ExitCode.PROBLEMS_FOUND,
        run_id=applied.plan_id,
        counts=applied.by_outcome,
        bytes=applied.deleted_bytes,
    )
