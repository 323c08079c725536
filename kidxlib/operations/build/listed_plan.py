"""The plan of a build, as the listing of its sources gives it."""

from __future__ import annotations

from kidxlib.build.discover import find_segments
from kidxlib.build.plan import Plan
from kidxlib.operations.build.request import BuildRequest
from kidxlib.terminal.console import warn
from kidxlib.terminal.progress import begin_phase


def listed_plan(request: BuildRequest) -> Plan:
    """List the sources, and warn of what a person should know of them.

    Raises:
        UsageError: a source cannot be listed.
    """
    begin_phase("listing")
    plan = find_segments(request.sources, request.topics, request.target, request.recover_options)
    for warning in plan.warnings:
        warn(warning)
    return plan
