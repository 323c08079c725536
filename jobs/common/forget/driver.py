"""Takes a source out of a catalog, or counts what would go, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.common.catalog.open import existing_catalog
from jobs.common.forget.source_rows import forget, rows_of_source, sources_of
from jobs.common.spark.session import session
from kidxlib.errors import UsageError
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode


def run_forget(context: RunContext, source: str, *, apply: bool, as_json: bool) -> RunResult:
    """Remove the rows of a source; without `apply` only count them.

    Raises:
        UsageError: the catalog knows no such source.
    """
    with session("forget_source", context.event_log_dir, changes=apply) as spark:
        catalog = existing_catalog(spark, context.catalog, context.database)
        rows = rows_of_source(catalog, source)
        if not any(rows.values()):
            known = ", ".join(sorted(sources_of(catalog))) or "none"
            raise UsageError(f"{source}: no such source in {catalog.path}; there are: {known}")
        if apply:
            forget(catalog, source, rows)
    if as_json:
        print_json({"catalog": catalog.path, "source": source, "applied": apply, "rows": rows})
    else:
        _print_report(catalog.path, source, rows, apply=apply)
    counts = {"tables": sum(map(bool, rows.values())), "rows": sum(rows.values())}
    return RunResult(code=ExitCode.OK, counts=counts, bytes=0)


def _print_report(catalog: str, source: str, rows: Mapping[str, int], *, apply: bool) -> None:
    print_line(f"source {source} of {catalog}")
    for table, count in rows.items():
        print_line(f"  {table:<22}{count:>14,} rows {'removed' if apply else 'would be removed'}")
    if not apply:
        print_line("nothing was removed: --apply does it")
    print_line("its logs and index files stay where they are")
