"""What a comparison came to, on screen and as JSON."""

from __future__ import annotations

from collections import Counter

from rich.filesize import decimal

from kidxlib.operations.compare.finding import HARMLESS, OF_FILES, SAME, Comparison, Kind
from kidxlib.operations.compare.request import As, CompareRequest
from kidxlib.run.result import RunResult
from kidxlib.terminal.audit import SHOWN
from kidxlib.terminal.console import print_json, print_line, print_more
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted


def result(request: CompareRequest, compared: Comparison) -> RunResult:
    """How the run ended."""
    fails = compared.fails(harmless=request.harmless)
    kinds = Counter(each.kind for each in compared.findings)
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
        counts={
            "segments": compared.logs,
            "partitions": len(compared.partitions),
            "same": sum(each.verdict == SAME for each in compared.partitions),
            **{kind.value.replace("-", "_"): kinds[kind] for kind in Kind},
        },
        bytes=compared.log_bytes,
    )


def show_json(request: CompareRequest, compared: Comparison) -> None:
    """Print the JSON object."""
    print_json(
        {
            "a": request.a,
            "b": request.b,
            "as": request.how.value,
            "logs": compared.logs,
            "log_bytes": compared.log_bytes,
            "files": compared.files,
            "partitions": [each.as_json() for each in compared.partitions],
            "findings": [each.as_json() for each in compared.findings],
        }
    )


def show(request: CompareRequest, compared: Comparison) -> None:
    """Print what was found, what a copy must not lack first, and what it comes to."""
    verdicts = Counter(each.verdict for each in compared.partitions)
    order = [SAME, *(kind.value for kind in Kind)]
    print_table(
        f"B {request.b} as {request.how} of A {request.a}",
        ("partitions", "number"),
        [(verdict, verdicts[verdict]) for verdict in order if verdicts[verdict]],
        text_columns=1,
    )
    for kind, found in compared.by_kind().items():
        for finding in found[:SHOWN]:
            print_line(finding.line())
        print_more(len(found) - SHOWN, f" that are {kind}; --json has them all")
    print_line(_what_was_compared(request, compared))
    print_line(_conclusion(request, compared))


def _what_was_compared(request: CompareRequest, compared: Comparison) -> str:
    if request.catalog is not None:
        return f"compared: what builds have recorded of both in {request.catalog}; no log was read to its end now"
    logs = f"{counted(compared.logs, 'log')} ({decimal(compared.log_bytes)} on both sides)"
    if request.how is As.REPLICA:
        return f"compared: the batches of {logs}; no other file"
    return f"compared: {logs} and {counted(compared.files, 'other file')}, byte for byte"


def _conclusion(request: CompareRequest, compared: Comparison) -> str:
    kinds = {each.kind for each in compared.findings}
    what = "all that A has" if request.how is As.COPY else "the same as A, as far as both can be compared"
    if not compared.fails(harmless=request.harmless):
        until = " up to the offset at which B ends" if Kind.BEHIND in kinds else ""
        less = "; of what is cleaned nobody can tell" if Kind.CLEANED in kinds else ""
        return f"B has {what}{until}{less}; whether that is whole, kidx verify says"
    if Kind.OTHER_SEGMENTS in kinds <= {Kind.OTHER_SEGMENTS, *HARMLESS, *request.harmless}:
        return "B has all batches of A, in other segments; where that is right, --allow-behind ends with 0"
    if kinds <= {Kind.BEHIND, Kind.FILE_BEHIND, Kind.OTHER_SEGMENTS, *HARMLESS, *request.harmless}:
        return "B has all that A has up to where B ends; where that is right, --allow-behind ends with 0"
    if kinds <= {*OF_FILES, Kind.FILE_BEHIND, *HARMLESS, *request.harmless}:
        return "B has all logs of A, but not all other files; where that is right, --logs-only ends with 0"
    lacks = "A and B differ" if request.how is As.REPLICA else "B has not all that A has"
    return f"{lacks}, or nobody can tell: see the lines above"
