"""What has changed since the last build: the listing, compared with the catalog."""

from __future__ import annotations

from kidxlib.build.changes import Changes, all_new, compare
from kidxlib.build.plan import Plan
from kidxlib.build.vanished import of_changes
from kidxlib.errors import UsageError
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.terminal.console import warn_of_first


def find_changes(request: BuildRequest, plan: Plan, catalog: TablesCatalog | None) -> Changes:
    """What has changed; all is new where there is no catalog to compare with.

    Raises:
        UsageError: an index directory holds the files of another source.
    """
    if catalog is None:
        return all_new(plan, request.fill_bytes)
    sources = [source.name for source in request.sources]
    others = catalog.index_directories_of_others(sources)
    for partition in plan.partitions:
        if (other := others.get(str(partition.index_directory))) is not None:
            raise UsageError(
                f"{partition.index_directory}: holds the index files of the same partition of source {other}; "
                "give each source its own --index-dir, or all of them in one run"
            )
    known = catalog.known_segments(sources, request.topics)
    changes = compare(
        plan,
        known,
        request.auxiliary_files,
        publish_truncated=request.publish_truncated,
        explicit_interval=request.interval_bytes is not None,
        rebuild=request.rebuild,
        fill_bytes=request.fill_bytes,
    )
    warn_of_first(of_changes(changes, request.sources))  # before they are recorded: a later run finds nothing new
    return changes
