"""`kidx verify`: are the logs and index files of a log dir right, and what happens if they are not."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from kidxlib.commands.without_catalog.options import refuse_without_catalog
from kidxlib.errors import UsageError
from kidxlib.operations.audit.copies.options import asks_for_copy, reported_as
from kidxlib.operations.audit.options import audit_options
from kidxlib.operations.local_once import open_local_once
from kidxlib.operations.tiered.options import asks_for_tiered
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.console import warn
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options

#: What only an audit with a catalog has, by its parameter.
_OF_CATALOGS: Final = {
    "sources": "--source",
    "sample": "--sample",
    "max_bytes": "--max-bytes",
    "settings_file": "--settings",
    "now": "--now",
}


@click.command(context_settings={"max_content_width": 110})
@click.argument("directories", metavar="[DIR]...", nargs=-1)
@audit_options
@shared_options.processes
@reports_run_of(reported_as)
@click.pass_context
def verify(
    context: click.Context, /, directories: tuple[str, ...], processes: int | None, as_json: bool, **options: Any
) -> RunResult:
    """Check each log in DIR, a Kafka log dir or one partition's directory, and each index file against what recovery
    would write; say what a wrong one leads to, and what a broker would do at its next start. Nothing is written beside
    the source.

    With --catalog, also record what is found there: the same as ./spark-submit.sh verify_index, and the same catalog,
    which says where index files are and how they were built. --source takes several log dirs. Without --catalog,
    nothing is kept, and no settings file is read.

    With --copy URL and --catalog, no log is read: each segment's object in the store is asked for its checksum, and
    that is compared with the catalog's. Nothing is written.

    With --tiered PLACE and --tiered-metadata PLACE, remote segments are audited: their metadata, their objects and,
    by --level, the bytes of these. With --catalog each is recorded there. Nothing else is written, and nothing deleted.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 some files are as bad as --fail-on says, a
    broker would lose more than a torn end at its next start, or a segment is not ready for tiering
    (--require-tiering); with --copy, an object differs, has another size, is missing or refused; with --tiered, a
    finding is as bad as --fail-on says; 1 failed.
    """
    options["directories"] = directories
    if asks_for_tiered(context, options):
        from kidxlib.operations.tiered.audit_tiered import run_tiered
        from kidxlib.operations.tiered.tiered_request import TieredOptions, tiered_request

        if options["catalog"] is not None:
            with needing_packages("--catalog"):
                from kidxlib.commands.in_catalog.tiered import audit_tiered_in_catalog

            return audit_tiered_in_catalog(processes=processes, as_json=as_json, **options)
        tiered = tiered_request(TieredOptions(**options))
        return run_tiered(tiered, partial(open_local_once, processes), as_json=as_json)
    if asks_for_copy(context, options):
        return _copy(processes=processes, as_json=as_json, **options)
    del options["directories"]
    if options["catalog"] is None:
        refuse_without_catalog(context, "an audit", _OF_CATALOGS)
        if not directories:
            raise UsageError("no DIR: name the log dir, or one partition's directory, to audit")
        for parameter in ("catalog", *_OF_CATALOGS):
            del options[parameter]
        from kidxlib.commands.without_catalog.audit_request import (
            audit_request,  # with compiled loops: others do not wait
        )
        from kidxlib.operations.audit.audit import run_audit

        request = audit_request(directories, **options)
        return run_audit(request, partial(open_local_once, processes), as_json=as_json)
    if directories and options["sources"]:
        raise UsageError(f"DIR {directories[0]} and --source: give one of them")
    with needing_packages("--catalog"):  # who keeps no catalog does not wait for these, either
        from kidxlib.commands.in_catalog.audit import audit_with_catalog

    if directories:
        options["sources"] = directories
    return audit_with_catalog(processes=processes, as_json=as_json, **options)


def _copy(*, processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """The old spelling of `kidx compare` with a catalog."""
    with needing_packages("--copy", "copies"):
        from kidxlib.commands.in_catalog.copy import compare_copy

    compared = compare_copy(processes=processes, as_json=as_json, **options)
    warn("verify --copy is now kidx compare SOURCE URL --catalog DIR; it goes with the next release")
    return compared
