"""Compares two places, from the options to what is shown."""

from __future__ import annotations

from kidxlib.errors import UsageError
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.compare.copy import compare_copy
from kidxlib.operations.compare.known import KnownOfPlaces
from kidxlib.operations.compare.place import Place, ensure_two_places, list_place
from kidxlib.operations.compare.replica import compare_replicas_of_places
from kidxlib.operations.compare.report import result, show, show_json
from kidxlib.operations.compare.request import As, CompareRequest
from kidxlib.operations.compare.sources import compare_sources
from kidxlib.run.result import RunResult
from kidxlib.tables.protocol import TablesToRead
from kidxlib.terminal.progress import begin_phase


def run_compare(request: CompareRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Compare B with A, and show what came of it. Nothing is written.

    Raises:
        UsageError: one of them is no log dir and no partition's directory, or both are the same, or nothing in them
            has a topic that was asked for.
        Interrupted: the run is; nothing is reported.
    """
    begin_phase("listing")
    one, other = _places(request)
    known = KnownOfPlaces.of(one, other)
    compare = compare_copy if request.how is As.COPY else compare_replicas_of_places
    with open_backend() as backend:
        compared = compare(one, other, request.topics, known, backend.engine)
        (show_json if as_json else show)(request, compared)
    return result(request, compared)


def run_sources(request: CompareRequest, tables: TablesToRead, *, as_json: bool) -> RunResult:
    """Compare two sources of a catalog, and show what came of it. No log is read, but where batches differ.

    Raises:
        CatalogError: the catalog cannot be read.
        UsageError: it has no such source.
    """
    if request.a == request.b:
        raise UsageError(f"{request.a}: it is on both sides, and is the same as itself; name two sources")
    begin_phase("asking the catalog")
    compared = compare_sources(tables, request.a, request.b, request.topics)
    (show_json if as_json else show)(request, compared)
    return result(request, compared)


def _places(request: CompareRequest) -> tuple[Place, Place]:
    one, other = list_place(request.a), list_place(request.b, is_copy=True)
    ensure_two_places(one, other)
    if one.is_partition and other.is_partition and set(one.directories) != set(other.directories):
        raise UsageError(
            f"A is {min(one.directories)}, B is {min(other.directories)}: two partitions; name the same of both sides"
        )
    if one.is_partition != other.is_partition:  # the log dir may hold others
        (name,) = (one if one.is_partition else other).directories
        one, other = (place if place.is_partition else place.only(name) for place in (one, other))
    partitions = [each.topic_partition for place in (one, other) for each in place.directories.values()]
    if not any(each is not None and request.topics.fullmatch(each.topic) for each in partitions):
        raise UsageError(
            f"{request.a}, {request.b}: no partition of a topic that matches {request.topics.pattern}; give another "
            "--topics"
        )
    return one, other
