"""`kidx report`: what ./spark-submit.sh report does, by this machine's processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.local import open_local
from kidxlib.operations.report.make_report import run_report
from kidxlib.operations.report.report_request import ReportOptions, report_request
from kidxlib.run.result import RunResult


def report_of_catalog(*, processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Make a report of a catalog.

    Args:
        processes: how many decide; None for one a core.
        options: those of `ReportOptions`, but for the database.
    """
    request = report_request(ReportOptions(database=None, **options), as_json=as_json)
    return run_report(request, partial(open_local, request.context, processes, must_exist=True), as_json=as_json)
