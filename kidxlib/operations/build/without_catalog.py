"""A build without a catalog, step by step (`build_once`): it reads all segments, and its tables go with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from kidxlib.audit.gaps import FoundGaps
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import all_new
from kidxlib.indexing.plan import Plan, repairs
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build_report import listed_log_dirs, policies_and_directories
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.build_run import BuildRun, Scanned, removing_held_indexes, sweep_leftovers
from kidxlib.operations.build.finish import finish_partitions_of
from kidxlib.operations.build.waves import scan_in_waves
from kidxlib.operations.damage.gaps import gaps_between, known_logs
from kidxlib.operations.damage.lost import Lost
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.console import begin_phase


@dataclass(frozen=True, slots=True)
class BrokenFiles:
    """Names of index and auxiliary files by partition that an audit found broken, and how many logs."""

    files: Mapping[PartitionKey, frozenset[str]] = field(default_factory=dict)
    logs: int = 0


@dataclass(frozen=True, slots=True)
class BuiltOnce:
    """What a build did.

    Attributes:
        plan: of a repair, the part that was broken.
        broken: of a repair.
        gaps: between the logs that were read.
        lost: what the log dirs had, and have not any more.
        seconds: of the whole run.
        requests: to object stores.
    """

    plan: Plan
    scanned: Scanned
    broken: BrokenFiles
    gaps: FoundGaps
    lost: Lost
    seconds: float
    requests: Requests


def build_once(request: BuildRequest, plan: Plan, backend: Backend, *, start: float) -> BuiltOnce:
    """Index the segments of the sources. The backend's catalog has no rows yet, and nobody reads it later; `start` is
    when the run began, by the monotonic clock.
    """
    expected_in_log_dirs, broken = listed_log_dirs(request, plan), BrokenFiles()
    sweep_leftovers(request, plan, backend)
    if request.repair:
        # Other builds do not wait for the imports of an audit. There is no catalog with the findings of the last one.
        from kidxlib.operations.audit.broken import broken_now

        broken = BrokenFiles(*broken_now(request, plan, backend))
        plan = repairs(plan, broken.files)
    scanned = read_and_finish(request, plan, backend)
    tables = backend.catalog.tables
    logs = known_logs(tables, [source.name for source in request.sources], request.topics)
    gaps = gaps_between(tables, logs, *policies_and_directories(request, plan)).found
    not_known = expected_in_log_dirs.log_dirs if request.repair else plan.unlistable  # a repair reads a few logs
    lost = expected_in_log_dirs.lost(tables, logs, not_known)
    requests = request.context.requests(backend.engine.requests())
    return BuiltOnce(plan, scanned, broken, gaps, lost, time.monotonic() - start, requests)


def read_and_finish(request: BuildRequest, plan: Plan, backend: Backend) -> Scanned:
    """Read all segments of a plan, and finish its partitions. In place, the caller holds the log dirs' locks."""
    with removing_held_indexes(request, plan):
        # Rows are in the tables at once, so there is nothing to commit.
        run = BuildRun(request, plan, backend, request.context.run_id(), commit=lambda: None)
        scanned = scan_in_waves(run, all_new(plan))
        begin_phase("finishing partitions")
        finish_partitions_of(run, plan.partitions, scanned)
    return scanned
