"""A build beside those that the catalog has: whether it goes on with the same sources, and in the same place."""

from __future__ import annotations

from kidxlib.errors import UsageError
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.run.recorded_sources import recorded_sources, warn_of_other_names


def ensure_as_recorded(request: BuildRequest, catalog: TablesCatalog) -> None:
    """See that a build whose index directory comes from the settings alone goes on where the last one wrote: elsewhere
    it would make all index files anew, and leave the others to nobody. Warn of a source that has another name there.

    Raises:
        UsageError: the last build of a source wrote elsewhere.
    """
    recorded = recorded_sources(catalog.tables)
    warn_of_other_names(request.sources, {name: source.path for name, source in recorded.items()})
    if request.names_index_dir or request.in_place or request.repair:
        return
    here = str(request.target.index_dir)
    for source in request.sources:
        last = recorded[source.name].index_dir if source.name in recorded else here
        if last != here:
            where, option = ("beside the logs", "--in-place") if last is None else (f"to {last}", f"--index-dir {last}")
            raise UsageError(
                f"source {source.name}: its last build wrote {where}, and this one would write all index files anew "
                f"to {here}, as the settings say; give {option} to go on there, or --index-dir {here}"
            )
