"""What `kidx build` says without a catalog of what it did: on screen, in JSON and by its exit code."""

from __future__ import annotations

from typing import Any

from kidxlib.indexing.skipped import unlistable_as_json
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.without_catalog import BuiltOnce
from kidxlib.run.index_options import known_as_json, lines_of_known
from kidxlib.terminal.build import print_counts, print_rate, print_requests, print_skipped
from kidxlib.terminal.console import print_json, print_line, print_lines
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.gaps import gap_lines
from kidxlib.terminal.outcome import RunResult


def show_json(request: BuildRequest, built: BuiltOnce) -> None:
    """Print the run's JSON object."""
    shown: dict[str, Any] = {
        "source": str(request.sources[0].path),
        "index_dir": str(request.target.index_dir) if request.target.index_dir else None,
        "seconds": round(built.seconds, 3),
        "partitions": len(built.plan.partitions),
        "skipped": {reason.value: count for reason, count in sorted(built.plan.skipped.counts.items())},
        **unlistable_as_json(built.plan.unlistable.values()),
        "cluster_metadata": known_as_json(request.known_topics, built.plan),
    }
    if request.repair:
        files = built.broken.files.items()
        shown["broken"] = sorted(f"{topic}-{number}/{name}" for (_, topic, number), names in files for name in names)
        shown["broken_logs"] = built.broken.logs
    shown |= {**built.scanned.counts.as_json(), **built.gaps.as_json(), **built.lost.as_json()}
    print_json({**shown, "requests": built.requests.as_json()})


def show_summary(request: BuildRequest, built: BuiltOnce) -> None:
    """Print what was read and written, and how fast."""
    print_counts(str(request.sources[0].path), built.scanned.counts)
    print_lines(built.lost.lines(many_sources=False))
    print_lines(gap_lines(built.gaps, many_sources=False))
    print_skipped((reason.value, count) for reason, count in built.plan.skipped.counts.items())
    print_rate(built.scanned.counts.log_bytes, built.scanned.read_seconds, built.seconds)
    print_requests(built.requests)
    for line in lines_of_known(request.known_topics, built.plan):
        print_line(f"topics:      {line}")
    print_line(f"index files: {request.target.index_dir or 'beside the segments'}")


def run_result(built: BuiltOnce) -> RunResult:
    """How the run ended, as builds with a catalog tell it."""
    return RunResult(
        code=exit_code(built),
        counts={
            "partitions": len(built.plan.partitions),
            "segments": built.scanned.counts.segments,
            "unlistable": len(built.plan.unlistable),
            "not_well": built.scanned.counts.problem_count,
            "gaps": len(built.gaps.lost),
            **built.lost.counts,
        },
        bytes=built.scanned.counts.log_bytes,
        requests=built.requests,
    )


def exit_code(built: BuiltOnce) -> ExitCode:
    """The code that says whether there are problems. What could not be looked at is one."""
    is_lost = bool(built.gaps.lost) or built.lost.is_loss
    has_problems = built.scanned.counts.problem_count or is_lost or built.broken.logs or built.plan.unlistable
    return ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK
