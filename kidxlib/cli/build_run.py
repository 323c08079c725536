"""A build from the listing to the last file, and what became of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kidxlib.build.discover import find_segments
from kidxlib.build.plan import Plan, log_dirs_to_lock, repairs
from kidxlib.build.summary import Counts
from kidxlib.cli.build_request import LocalBuildRequest
from kidxlib.cli.local_build import done_so_far, finish_partitions, removing_held, scan_segments
from kidxlib.engine.processes import Workers
from kidxlib.engine.scratch import scratch_directory
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.storage.lock import locked
from kidxlib.storage.publisher import sweep
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn
from kidxlib.terminal.progress import begin_phase

#: No run takes longer; staging files of killed runs are swept when they are older.
_LONGEST_RUN: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build did.

    Attributes:
        plan: what was listed; with `--repair`, what of it was broken.
        broken: names of the files that an audit before it found broken, by partition.
        broken_logs: how many logs it did.
        scan_seconds: in which logs were read, without what it took to begin.
        seconds: of the whole run.
    """

    plan: Plan
    counts: Counts
    broken: Mapping[PartitionKey, frozenset[str]]
    broken_logs: int
    scan_seconds: float
    seconds: float


def run_build(request: LocalBuildRequest) -> Built:
    """Index the segments of a source.

    Raises:
        KidxError: a log dir is in use, or an index directory cannot be written.
    """
    start = time.monotonic()
    begin_phase("listing")
    plan = find_segments((request.source,), request.topics, request.target, lambda topic: request.options)
    for warning in plan.warnings:
        warn(warning)
    broken, broken_logs = dict[PartitionKey, frozenset[str]](), 0
    with _alone_in(plan, request), scratch_directory() as scratch, Workers(request.processes) as workers:
        if request.repair:
            # Whoever repairs nothing does not wait for what an audit imports.
            from kidxlib.cli.local_audit import broken_now

            broken, broken_logs = broken_now(plan, request.options, workers)
            plan = repairs(plan, broken)
        counts = Counts()
        with interrupts.telling(lambda: done_so_far(counts, plan, request.in_place)), removing_held(plan):
            tasks = plan.build_tasks(publish_truncated=request.publish_truncated)
            spooled, scan_seconds = scan_segments(tasks, workers, scratch, counts)
            what = [
                (listed.partition_task(request.auxiliary_files), segments)
                for listed in plan.partitions
                if (segments := spooled[listed.key])
            ]
            begin_phase("finishing partitions")
            counts.merge(finish_partitions(what, workers))
    return Built(
        plan=plan,
        counts=counts,
        broken=broken,
        broken_logs=broken_logs,
        scan_seconds=scan_seconds,
        seconds=time.monotonic() - start,
    )


@contextlib.contextmanager
def _alone_in(plan: Plan, request: LocalBuildRequest) -> Iterator[None]:
    """In place, hold the locks of the log dirs; and sweep what killed runs left in the index directories."""
    with contextlib.ExitStack() as stack:
        if request.in_place:
            for log_dir in log_dirs_to_lock(plan):
                stack.enter_context(locked(log_dir))
        older_than_ns = int((datetime.now(UTC) - _LONGEST_RUN).timestamp()) * 1_000_000_000
        for partition in plan.partitions:
            sweep(partition.index_directory, older_than_ns)
        yield
