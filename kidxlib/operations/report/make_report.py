"""Makes a report, as an HTML page, as JSON, or both."""

from __future__ import annotations

from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.report.attention import Severity
from kidxlib.operations.report.document import make_report
from kidxlib.operations.report.page.write import write_page
from kidxlib.operations.report.report_request import ReportRequest
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase


def run_report(request: ReportRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Make a report of a catalog. Nothing is recorded in it.

    Args:
        open_backend: opens a catalog that is there, and of this release.
    """
    with open_backend() as backend:
        report = make_report(backend, request)
    overview, attention = report.sections["overview"], report.head["attention"]
    missing = sum(row["is_missing"] for row in attention)
    if request.output is not None:
        begin_phase("writing the page")
        size = write_page(report, request.output)
    if as_json:
        print_json(report.as_json())
    else:
        print_line(f"report: {request.output} ({size:,} bytes): open it in a browser")
        for row in attention:
            print_line(f"{row['severity']}: {row['title']}: {row['detail']}")
        if not attention:
            print_line("nothing to look at: no damage, no finding, and every source was audited")
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if missing else ExitCode.OK,
        counts={
            "segments": overview["segments"],
            "missing": missing,
            **{severity.value: sum(row["severity"] == severity for row in attention) for severity in Severity},
        },
        bytes=overview["log_bytes"],
    )
