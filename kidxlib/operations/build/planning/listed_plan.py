"""The plan of a build, as the listing of its sources gives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.build.discover import add_segments, find_partitions, find_segments, judge_listing
from kidxlib.build.plan import Plan
from kidxlib.build.source import Source
from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.operations.build.request import BuildRequest
from kidxlib.storage.checkpoints import usable_checkpoints
from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.grouped import ROWS
from kidxlib.terminal.console import note, warn_of_first
from kidxlib.terminal.phase import Done
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted


def listed_plan(request: BuildRequest) -> Plan:
    """List the sources, and say what is there. Where there are many segments, or where it is asked for, only their
    partitions: workers list these. Checkpoints are read first: what they say a running broker has written by then.

    Raises:
        UsageError: a source cannot be listed, or none has a segment.
    """
    checkpoints = {log_dir: usable_checkpoints(log_dir) for log_dir in _log_dirs(request.sources)}
    plan = _listed(request)
    plan.checkpoints = checkpoints
    return plan


def _log_dirs(sources: Iterable[Source]) -> Iterator[Location]:
    """Where checkpoints may be: in each source, and above one that may be a partition's directory."""
    for source in sources:
        if source.remote is None:
            yield source.path
            if parse_partition_directory(source.path.name) is not None:
                yield source.path.parent


def _listed(request: BuildRequest) -> Plan:
    listed = 0

    def say_listed(segments: int) -> None:
        nonlocal listed
        listed = segments

    warn_of_first(request.known_topics.warnings)
    begin_phase("listing", done=lambda: Done(listed))
    listing = (request.sources, request.topics, request.target, request.options_for)
    if request.plans_on_workers or _knows_many(request):
        return find_partitions(*listing)
    # Without a catalog there is nothing to compare with; and who fills facts shares bytes out among all segments.
    is_to_be_held = not request.keeps_catalog or request.fill_bytes is not None
    plan = find_segments(
        *listing, at_most=None if is_to_be_held else request.limits.driver_listing_max, say_listed=say_listed
    )
    if plan.is_listed:
        say_what_was_listed(request, plan, plan.segments.num_rows, plan.log_bytes)
    return plan


def _knows_many(request: BuildRequest) -> bool:
    """Whether the catalog has more segments than the command lists itself, as far as it can be asked without Spark."""
    path = request.context.catalog
    if path is None or request.fill_bytes is not None or ("://" in path and not is_object(path)):
        return False
    from kidxlib.tables.delta_tables import DeltaTables  # who keeps no catalog may not have delta-rs

    of_sources = Among("source", tuple(source.name for source in request.sources))
    counted = DeltaTables(path).counts(SEGMENTS, ["source"], [of_sources, PRESENT])
    return int(pc.sum(counted[ROWS.name]).as_py() or 0) > request.limits.driver_listing_max


def list_here(request: BuildRequest, plan: Plan) -> None:
    """List the partitions of a plan that is not `is_listed`, however many segments they have.

    Raises:
        UsageError: none has a segment.
    """
    add_segments(plan)
    judge_listing(plan, request.sources, request.topics, plan.have_segments())
    say_what_was_listed(request, plan, plan.segments.num_rows, plan.log_bytes)


def say_what_was_listed(request: BuildRequest, plan: Plan, segments: int, log_bytes: int) -> None:
    """Say how much there is, where a part of it may be known already, and warn of what a person should know."""
    warn_of_first(plan.warnings)
    if request.keeps_catalog:
        note(f"{counted(segments, 'segment')}, {decimal(log_bytes)}, in {counted(len(plan.partitions), 'partition')}")
