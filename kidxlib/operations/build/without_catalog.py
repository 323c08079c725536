"""A build that keeps no catalog: it reads all that it lists, and what it found goes with it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kidxlib.audit.gaps import FoundGaps
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import all_new
from kidxlib.indexing.plan import Plan, repairs
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.operations.build.build_report import asked_of, listed_log_dirs
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.build_run import BuildRun, Scanned, hold_log_dirs, removing_held_indexes, sweep_leftovers
from kidxlib.operations.build.finish import finish_partitions_of
from kidxlib.operations.build.planning import listed_plan
from kidxlib.operations.build.waves import scan_in_waves
from kidxlib.operations.damage.gaps import gaps_between, known_logs
from kidxlib.operations.damage.lost import Lost
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.progress import begin_phase


@dataclass(frozen=True, slots=True)
class BrokenFiles:
    """What an audit found broken: names of index and auxiliary files by partition, and how many logs."""

    files: Mapping[PartitionKey, frozenset[str]] = field(default_factory=dict)
    logs: int = 0


#: Audits the files of a plan.
FindBroken: TypeAlias = Callable[[BuildRequest, Plan, Backend], BrokenFiles]


@dataclass(frozen=True, slots=True)
class BuiltOnce:
    """What a build did.

    Attributes:
        plan: what was listed; of a repair, what of it was broken.
        broken: of a repair.
        gaps: between the logs that were read.
        lost: what the log dirs had, and is not there.
        seconds: of the whole run.
        requests: of object stores.
    """

    plan: Plan
    scanned: Scanned
    broken: BrokenFiles
    gaps: FoundGaps
    lost: Lost
    seconds: float
    requests: Requests


def build_once(request: BuildRequest, open_backend: OpenBackend, find_broken: FindBroken) -> BuiltOnce:
    """Index the segments of the sources.

    Args:
        open_backend: called once the log dirs' locks are held; its catalog has nothing yet, and nobody reads it later.
        find_broken: for a repair, which has no catalog to say what an earlier audit found.
    """
    start = time.monotonic()
    plan = listed_plan(request)
    of_log_dirs = listed_log_dirs(request, plan)
    broken = BrokenFiles()
    with contextlib.ExitStack() as stack:
        hold_log_dirs(request, plan, stack)
        backend = stack.enter_context(open_backend())
        sweep_leftovers(request, plan, backend)
        if request.repair:
            broken = find_broken(request, plan, backend)
            plan = repairs(plan, broken.files)
        scanned = read_and_finish(request, plan, backend)
        sources = [source.name for source in request.sources]
        tables = backend.catalog.tables
        logs = known_logs(tables, sources, request.topics)
        gaps = gaps_between(tables, logs, *asked_of(request, plan)).found
        not_known = of_log_dirs.log_dirs if request.repair else plan.unlistable  # a repair reads a few logs
        lost = of_log_dirs.lost(tables, logs, not_known)
        requests = request.context.asked(backend.engine.requests())
    return BuiltOnce(plan, scanned, broken, gaps, lost, time.monotonic() - start, requests)


def read_and_finish(request: BuildRequest, plan: Plan, backend: Backend) -> Scanned:
    """Read all segments of a plan, and finish its partitions. In place the caller holds the log dirs' locks."""
    with removing_held_indexes(request, plan):
        run = BuildRun(request, plan, backend, request.context.run_id(), _commit_nothing)
        scanned = scan_in_waves(run, all_new(plan))
        begin_phase("finishing partitions")
        finish_partitions_of(run, plan.partitions, scanned)
    return scanned


def _commit_nothing() -> None:
    """What is found is in the tables at once."""
