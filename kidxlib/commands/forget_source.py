"""`kidx forget-source`, `./spark-submit.sh forget_source`: take a source out of a catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kidxlib.commands.command import OnCatalog, kidx_command, option, parameter
from kidxlib.errors import UsageError
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend


@dataclass(frozen=True, kw_only=True)
class ForgetSourceCommand(OnCatalog):
    """What to forget."""

    source: str = parameter(click.argument("source", metavar="SOURCE"))
    apply: bool = option("--apply", is_flag=True, help="Remove the rows. [default: dry run, which counts them]")
    now: None = None
    processes: int = 1

    def __post_init__(self) -> None:
        from kidxlib.storage.location import as_text

        if (name := as_text(self.source)) != self.source:
            raise UsageError(
                f"{name}: found bytes that are not UTF-8, which the name of no source has; name one of the catalog"
            )

    @property
    def writes(self) -> bool:
        return self.apply


def run_forget_source(request: ForgetSourceCommand, backend: Backend) -> Outcome:
    """Remove all rows of SOURCE from the catalog, by the name that --source NAME=DIR gave it. No log and no index file
    is touched, but packed index files are rows and go, too. Without --apply nothing is removed.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    from kidxlib.operations.catalog import forget_source, rows_of_source, sources_in_tables

    tables, source = backend.catalog.tables, request.source
    rows = rows_of_source(tables, source)
    if not any(rows.values()):
        known = ", ".join(sorted(sources_in_tables(tables))) or "none"
        raise UsageError(f"{source}: no such source in {tables.path}; there are: {known}")
    if request.apply:
        forget_source(tables, source, rows)
    outcome = Outcome(counts={"tables": sum(map(bool, rows.values())), "rows": sum(rows.values())})
    outcome.values.update(catalog=tables.path, source=source, applied=request.apply, rows=rows)
    outcome.line(f"source {source} of {tables.path}")
    removed = "removed" if request.apply else "would be removed"
    outcome.line(*(f"  {table:<22}{count:>14,} rows {removed}" for table, count in rows.items()))
    if not request.apply:
        outcome.line("nothing was removed: --apply does it")
    outcome.line("its logs and index files stay where they are, but for packed ones")
    return outcome


forget_source = kidx_command("forget-source", ForgetSourceCommand, run_forget_source, reports_as="forget_source")
