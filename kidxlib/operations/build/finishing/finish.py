"""Partitions finished: transactions, producers and leader epochs from what the catalog keeps of their segments."""

from __future__ import annotations

from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan
from kidxlib.build.summary import Counts
from kidxlib.catalog.results import FINISHED
from kidxlib.engine.work import Work
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.counts import count_finished
from kidxlib.operations.build.record_rows import record_finished, withdrawn
from kidxlib.operations.build.request import BuildRequest
from kidxlib.terminal import interrupts


def finish_changed(
    request: BuildRequest,
    plan: Plan,
    changes: Changes,
    backend: Backend,
    build_id: str,
    counts: Counts,
) -> int:
    """Derive transactions, producers and leader epochs of partitions from what the catalog keeps of their segments.

    Returns:
        How many rows of `segments` it added to.
    """
    if not changes.to_finish:
        return 0
    from kidxlib.operations.build.finishing.finish_work import finish_partitions  # compiled loops, as in waves.py
    from kidxlib.operations.build.finishing.to_finish import partitions_to_finish

    tasks = {
        listed.key: listed.partition_task(request.auxiliary_files)
        for listed in plan.partitions
        if listed.key in changes.to_finish
    }
    engine, catalog = backend.engine, backend.catalog
    shares = min(len(tasks), engine.cores * BINS_PER_CORE)
    with engine.stopping():
        found = partitions_to_finish(catalog.tables, engine, tasks, changes.to_finish, shares)
        row_bytes = sum(share.row_bytes for share in found.shares)
        units = [[share] for share in found.shares]
        work = Work(f"{build_id}-finish", units, finish_partitions, FINISHED, bytes=row_bytes)
        staged = engine.run(work)
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        count_finished(staged, found.unfolded, withdrawn(catalog, staged), counts)
        return record_finished(catalog, staged, build_id)
