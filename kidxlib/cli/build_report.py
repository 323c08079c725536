"""What `kidx build` says of what it did: on screen, in JSON and by its exit code."""

from __future__ import annotations

from typing import Any

from kidxlib.cli.build_request import LocalBuildRequest
from kidxlib.cli.build_run import Built
from kidxlib.format.not_segments import NotASegment
from kidxlib.run.result import RunResult
from kidxlib.terminal.build import print_counts, print_rate, print_skipped
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode


def show_json(request: LocalBuildRequest, built: Built) -> None:
    """Print the run's JSON object."""
    shown: dict[str, Any] = {
        "source": str(request.source.path),
        "index_dir": str(request.index_dir) if request.index_dir else None,
        "seconds": round(built.seconds, 3),
        "partitions": len(built.plan.partitions),
        "skipped": {reason.value: count for reason, count in sorted(built.plan.skipped.counts.items())},
    }
    if request.repair:
        shown["broken"] = sorted(
            f"{topic}-{partition}/{name}" for (_, topic, partition), files in built.broken.items() for name in files
        )
        shown["broken_logs"] = built.broken_logs
    print_json({**shown, **built.counts.as_json()})


def show_summary(request: LocalBuildRequest, built: Built) -> None:
    """Print what was read and written, and how fast."""
    print_counts(str(request.source.path), built.counts)
    print_skipped((reason.value, count) for reason, count in built.plan.skipped.counts.items())
    print_rate(built.counts.log_bytes, built.scan_seconds, built.seconds)
    print_line(f"index files: {request.index_dir or 'beside the segments'}")


def run_result(built: Built) -> RunResult:
    """How the run ended, as builds with a catalog tell it."""
    return RunResult(
        code=exit_code(built),
        counts={
            "partitions": len(built.plan.partitions),
            "segments": built.counts.segments,
            "not_well": built.counts.problem_count,
        },
        bytes=built.counts.log_bytes,
    )


def exit_code(built: Built) -> ExitCode:
    """The code that says whether there are problems. What could not be looked at is one."""
    unlistable = built.plan.skipped.counts[NotASegment.UNLISTABLE_DIRECTORY]
    problem_free = built.counts.problem_count == 0 and not built.broken_logs and not unlistable
    return ExitCode.OK if problem_free else ExitCode.PROBLEMS_FOUND
