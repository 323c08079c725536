"""Partitions finished: transactions, producers and leader epochs from what the catalog keeps of their segments."""

from __future__ import annotations

from jobs.common.build.counts import count_finished, count_withdrawn
from jobs.common.build.partitions import finish_on_executors
from jobs.common.build.request import BuildRequest
from jobs.common.catalog.catalog import Catalog
from jobs.common.spark.stop_file import StopFile
from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan
from kidxlib.build.summary import Counts
from kidxlib.terminal import interrupts


def finish_partitions(
    request: BuildRequest,
    plan: Plan,
    changes: Changes,
    catalog: Catalog,
    build_id: str,
    counts: Counts,
    stop: StopFile,
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
    shares = min(len(tasks), catalog.spark.sparkContext.defaultParallelism * BINS_PER_CORE)
    with stop.stopping(), catalog.staging(f"{build_id}-finish") as materialise:
        rows = materialise(finish_on_executors(catalog.to_finish(changes.to_finish), tasks, shares, stop))
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        finished = rows.where("segment IS NOT NULL").select("segment.*")
        aborted = rows.where("aborted IS NOT NULL").select("aborted.*")
        counts.kept += [row["path"] for row in rows.where("kept IS NOT NULL").select("kept.path").collect()]
        count_finished(finished, counts)
        count_withdrawn(catalog.withdrawn(finished), counts)
        catalog.replace_aborted(tasks, aborted)
        return catalog.merge_finished(finished.drop("published"), build_id)
