"""Takes a source out of a catalog, or counts what would go, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping

from kidxlib.errors import UsageError
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.forget.request import ForgetRequest
from kidxlib.operations.forget.source_rows import forget, rows_of_source, sources_of
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode


def run_forget(request: ForgetRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Remove the rows of a source; without `apply` only count them.

    Raises:
        CatalogError: the catalog cannot be read or written.
        UsageError: there is none; or it knows no such source.
    """
    source, apply = request.source, request.apply
    with open_backend() as backend:
        tables = backend.catalog.tables
        rows = rows_of_source(tables, source)
        if not any(rows.values()):
            known = ", ".join(sorted(sources_of(tables))) or "none"
            raise UsageError(f"{source}: no such source in {tables.path}; there are: {known}")
        if apply:
            forget(tables, source, rows)
        if as_json:
            print_json({"catalog": tables.path, "source": source, "applied": apply, "rows": rows})
        else:
            _print_report(tables.path, source, rows, apply=apply)
    counts = {"tables": sum(map(bool, rows.values())), "rows": sum(rows.values())}
    return RunResult(code=ExitCode.OK, counts=counts, bytes=0)


def _print_report(catalog: str, source: str, rows: Mapping[str, int], *, apply: bool) -> None:
    print_line(f"source {source} of {catalog}")
    for table, count in rows.items():
        print_line(f"  {table:<22}{count:>14,} rows {'removed' if apply else 'would be removed'}")
    if not apply:
        print_line("nothing was removed: --apply does it")
    print_line("its logs and index files stay where they are")
