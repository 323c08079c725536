"""`kidx build`: index segments with all cores of this machine, and record them in a catalog if one is named."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from kidxlib.commands.without_catalog.build_report import run_result, show_json, show_summary
from kidxlib.commands.without_catalog.build_request import build_request
from kidxlib.commands.without_catalog.build_run import run_build
from kidxlib.commands.without_catalog.options import refuse_without_catalog
from kidxlib.errors import UsageError
from kidxlib.operations.build.options import build_options
from kidxlib.operations.local_once import open_local_once
from kidxlib.operations.tiered.repair_options import asks_for_tiered, reported_as
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.outcome import RunResult

#: What only a build with a catalog has, by its parameter.
_OF_CATALOGS: Final = {
    "sources": "--source",
    "sample": "--sample",
    "rebuild": "--rebuild",
    "fill_facts": "--fill-facts",
    "plan_on_executors": "--plan-on-executors",
    "dry_run": "--dry-run",
    "settings_file": "--settings",
    "now": "--now",
}


@click.command(context_settings={"max_content_width": 110})
@click.argument("directory", metavar="[DIR]", required=False)
@build_options
@shared_options.processes
@reports_run_of(reported_as)
@click.pass_context
def build(context: click.Context, /, directory: str | None, **options: Any) -> RunResult:
    """Index the segments in DIR, a Kafka log dir or one partition's directory, as Kafka's recovery would.

    With --catalog, also record every segment in that catalog, and read only those that are new or have changed since
    its last build: the same as ./spark-submit.sh build_index, and the same catalog. --source takes several log dirs.
    Without --catalog, all is read, nothing but the index files is kept, and no settings file is read.

    With --tiered PLACE and --tiered-metadata PLACE, make objects of remote segments anew that are missing or broken,
    into --index-dir; with --apply put them into the bucket, too. Logs there are only read, and nothing is deleted.
    With --catalog each remote segment is recorded there.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems, found
    now or recorded earlier, or logs or partitions are missing; with --tiered, something is broken and not mended;
    1 failed. 0 means that recovery accepts each log; kidx verify judges the other files, too.
    """
    options["directory"] = directory
    if asks_for_tiered(context, options):
        from kidxlib.operations.tiered.repair import run_repair
        from kidxlib.operations.tiered.repair_request import RepairOptions, repair_request

        if options["catalog"] is not None:
            with needing_packages("--catalog"):
                from kidxlib.commands.in_catalog.tiered import repair_tiered_in_catalog

            return repair_tiered_in_catalog(**options)
        as_json, processes = options.pop("as_json"), options.pop("processes")
        request = repair_request(RepairOptions(**options))
        return run_repair(request, partial(open_local_once, processes), as_json=as_json)
    del options["directory"]
    if options["catalog"] is not None:
        if directory is not None and options["sources"]:
            raise UsageError(f"DIR {directory} and --source: give one of them")
        with needing_packages("--catalog"):  # who keeps no catalog does not wait for these, either
            from kidxlib.commands.in_catalog.build import build_with_catalog

        if directory is not None:
            options["sources"] = (directory,)
        return build_with_catalog(**options)
    refuse_without_catalog(context, "a build", _OF_CATALOGS)
    if directory is None:
        raise UsageError("no DIR: name the log dir, or one partition's directory, to index")
    as_json, processes = options.pop("as_json"), options.pop("processes")
    for parameter in ("catalog", *_OF_CATALOGS):
        del options[parameter]
    of_logs = build_request(directory, **options)
    built = run_build(of_logs, processes)
    (show_json if as_json else show_summary)(of_logs, built)
    return run_result(built)
