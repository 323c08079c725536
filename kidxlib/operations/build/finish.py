"""Partitions finished: transactions, producers and leader epochs from what the catalog keeps of their segments."""

from __future__ import annotations

from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan
from kidxlib.build.summary import Counts
from kidxlib.operations.build.protocol import BuildBackend
from kidxlib.operations.build.request import BuildRequest
from kidxlib.terminal import interrupts


def finish_partitions(
    request: BuildRequest,
    plan: Plan,
    changes: Changes,
    backend: BuildBackend,
    build_id: str,
    counts: Counts,
) -> int:
    """Derive transactions, producers and leader epochs of partitions from what the catalog keeps of their segments.

    Returns:
        How many rows of `segments` it added to.
    """
    if not changes.to_finish:
        return 0
    tasks = {
        listed.key: listed.partition_task(request.auxiliary_files)
        for listed in plan.partitions
        if listed.key in changes.to_finish
    }
    with backend.stopping(), backend.finish(f"{build_id}-finish", tasks, changes.to_finish) as finished:
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        finished.count(counts)
        return finished.record(build_id)
