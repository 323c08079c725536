"""What has changed since the last build: the listing, compared with the catalog."""

from __future__ import annotations

from kidxlib.build.changes import Changes, all_new, compare
from kidxlib.build.plan import Plan
from kidxlib.build.vanished import of_changes
from kidxlib.engine.protocol import Engine
from kidxlib.errors import UsageError
from kidxlib.operations.build.planning.listed_plan import list_here
from kidxlib.operations.build.planning.on_workers import plan_on_workers
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.terminal.console import note, warn_of_first


def find_changes(request: BuildRequest, plan: Plan, catalog: TablesCatalog | None, engine: Engine) -> Changes:
    """What has changed; all is new where there is no catalog to compare with.

    Args:
        plan: where it is not `is_listed`, workers list its partitions and compare them.

    Raises:
        UsageError: an index directory holds the files of another source; or as `plan_on_workers`.
    """
    if catalog is None:
        return all_new(plan, request.fill_bytes) if plan.is_listed else plan_on_workers(request, plan, engine, None)
    if not plan.is_listed and not request.plans_on_workers and catalog.tables.for_workers() is None:
        note(f"{catalog.path}: Spark alone reaches this catalog, so its segments are listed and compared here")
        list_here(request, plan)
    sources = [source.name for source in request.sources]
    others = catalog.index_directories_of_others(sources)
    for partition in plan.partitions:
        if (other := others.get(str(partition.index_directory))) is not None:
            raise UsageError(
                f"{partition.index_directory}: holds the index files of the same partition of source {other}; "
                "give each source its own --index-dir, or all of them in one run"
            )
    if plan.is_listed:
        changes = compare(
            plan,
            catalog.known_segments(sources, request.topics),
            request.auxiliary_files,
            publish_truncated=request.publish_truncated,
            explicit_interval=request.interval_bytes is not None,
            rebuild=request.rebuild,
            fill_bytes=request.fill_bytes,
        )
    else:
        changes = plan_on_workers(request, plan, engine, catalog)
    warn_of_first(of_changes(changes, request.sources))  # before they are recorded: a later run finds nothing new
    return changes
