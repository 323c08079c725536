"""`kidx tables`: keep a catalog's tables small and quick to ask."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from kidxlib.operations.maintenance.options import tables_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages

#: Those of `Upkeep`, which stands beside what a command's help does not wait for.
_UPKEEP: Final = ("expire", "optimize", "vacuum")


@click.command(context_settings={"max_content_width": 110})
@click.argument("upkeep", nargs=-1, type=click.Choice(_UPKEEP), metavar="[expire] [optimize] [vacuum]")
@tables_options
@reports_run_of("compact_index")
def tables(as_json: bool, **options: Any) -> RunResult:
    """Say how a catalog's tables are stored, and what would be done with them; with --apply do it.

    expire: rows that are older than the --policy allows go. optimize: where files are too many, too large or in no
    order, they are written anew, so that queries leave out most of them. vacuum: files that no version of the last
    seven days needs go. Without a word all three. The same as ./spark-submit.sh compact_index --tables, without Spark.

    Exit codes: 0 done; 2 wrong options or inputs, nothing done; 1 failed.
    """
    with needing_packages("kidx tables"):
        from kidxlib.operations.local import local_maintenance, open_local
        from kidxlib.operations.maintenance.tidy_tables import TablesOptions, run_tables, tables_request
    request = tables_request(TablesOptions(**options))
    open_backend = partial(open_local, request.context, 1, must_exist=True)
    return run_tables(request, open_backend, local_maintenance, as_json=as_json)
