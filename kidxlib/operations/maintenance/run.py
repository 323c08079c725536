"""The upkeep of tables as a run of its own, from the options to the report."""

from __future__ import annotations

from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.maintenance.maintain import maintain_tables
from kidxlib.operations.maintenance.report import print_tables, tables_as_json
from kidxlib.operations.maintenance.request import TablesRequest
from kidxlib.run.result import RunResult
from kidxlib.tables.maintenance import MaintenanceOf
from kidxlib.terminal.console import print_json
from kidxlib.terminal.exit_codes import ExitCode


def run_tables(
    request: TablesRequest, open_backend: OpenBackend, maintenance_of: MaintenanceOf, *, as_json: bool
) -> RunResult:
    """Keep the tables of a catalog small and quick, or say what that would change.

    Raises:
        UsageError: there is no catalog.
        CatalogError: a table cannot be read or written.
    """
    with open_backend() as backend:
        of_catalog = backend.catalog.tables
        maintained = maintain_tables(
            of_catalog, maintenance_of(of_catalog), request.expiry, request.upkeep, apply=request.apply
        )
    if as_json:
        run = {"applied": request.apply, "now": request.context.now.isoformat()}
        print_json({**run, "tables": tables_as_json(maintained)})
    else:
        print_tables(maintained, applied=request.apply)
    return RunResult(code=ExitCode.OK, counts={"tables": len(maintained)}, bytes=0)
