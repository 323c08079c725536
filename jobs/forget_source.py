"""Take a source out of a catalog: its rows in all tables. Files of logs and indexes are not touched."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.common import shared_options
from jobs.common.forgotten_source import forget, rows_of_source, sources_of
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import existing_catalog
from jobs.common.request import Where
from jobs.common.session import session
from jobs.common.settings import read_settings
from kidxlib.command import ExitCode, run
from kidxlib.console import print_json, print_line
from kidxlib.errors import UsageError


@click.command(context_settings={"max_content_width": 110})
@click.argument("source", metavar="SOURCE")
@shared_options.catalog
@shared_options.database
@click.option("--apply", "is_applied", is_flag=True, help="Remove the rows; without, only say how many there are.")
@shared_options.settings_file
@shared_options.as_json
@observed
def forget_source(
    source: str, catalog: str | None, database: str | None, is_applied: bool, settings_file: Path, as_json: bool
) -> Ended:
    """Remove all rows of SOURCE from the catalog, by the name that --source NAME=DIR gave it. No log and no index file
    is touched, and nothing is removed but with --apply.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 1 failed.
    """
    where = Where.of(read_settings(settings_file), catalog, database, now=None).with_catalog()
    with session("forget_source", where.event_log_dir, changes=is_applied) as spark:
        opened = existing_catalog(spark, where.catalog, where.database)
        rows = rows_of_source(opened, source)
        if not any(rows.values()):
            known = ", ".join(sorted(sources_of(opened))) or "none"
            raise UsageError(f"{source}: no such source in {opened.path}; there are: {known}")
        if is_applied:
            forget(opened, source, rows)
    if as_json:
        print_json({"catalog": opened.path, "source": source, "applied": is_applied, "rows": rows})
    else:
        print_line(f"source {source} of {opened.path}")
        for table, count in rows.items():
            print_line(f"  {table:<22}{count:>14,} rows {'removed' if is_applied else 'would be removed'}")
        if not is_applied:
            print_line("nothing was removed: --apply does it")
        print_line("its logs and index files stay where they are")
    counts = {"tables": sum(map(bool, rows.values())), "rows": sum(rows.values())}
    return Ended(code=ExitCode.OK, counts=counts, bytes=0)


if __name__ == "__main__":
    run(forget_source, "./spark-submit.sh forget_source")
