"""Where a build writes that was not told: where the last one of its sources did, or nowhere."""

from __future__ import annotations

from kidxlib.errors import UsageError
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.catalog import TablesCatalog


def ensure_same_place(request: BuildRequest, catalog: TablesCatalog) -> None:
    """See that a build whose index directory comes from the settings alone goes on where the last one wrote. Elsewhere
    it would make all index files anew, and leave the others to nobody.

    Raises:
        UsageError: the last build of a source wrote elsewhere.
    """
    if request.names_index_dir or request.in_place or request.repair:
        return
    here, written = str(request.target.index_dir), catalog.last_index_dirs()
    for source in request.sources:
        last = written.get(source.name, here)
        if last != here:
            where, option = ("beside the logs", "--in-place") if last is None else (f"to {last}", f"--index-dir {last}")
            raise UsageError(
                f"source {source.name}: its last build wrote {where}, and this one would write all index files anew "
                f"to {here}, as the settings say; give {option} to go on there, or --index-dir {here}"
            )
