"""A build without a catalog, by this machine's processes."""

from __future__ import annotations

from functools import partial

from kidxlib.indexing.plan import Plan
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.without_catalog import BrokenFiles, BuiltOnce, build_once
from kidxlib.operations.local_once import open_local_once


def run_build(request: BuildRequest, processes: int | None) -> BuiltOnce:
    """Index the segments of a source."""
    return build_once(request, partial(open_local_once, processes), _broken_now)


def _broken_now(request: BuildRequest, plan: Plan, backend: Backend) -> BrokenFiles:
    # Whoever repairs nothing does not wait for what an audit imports.
    from kidxlib.operations.audit.broken import broken_now

    return broken_now(request, plan, backend)
