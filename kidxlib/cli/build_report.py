"""What `kidx build` says without a catalog of what it did: on screen, in JSON and by its exit code."""

from __future__ import annotations

from typing import Any

from kidxlib.format.not_segments import NotASegment
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.build.without_catalog import BuiltOnce
from kidxlib.run.result import RunResult
from kidxlib.terminal.build import print_counts, print_rate, print_skipped
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode


def show_json(request: BuildRequest, built: BuiltOnce) -> None:
    """Print the run's JSON object."""
    shown: dict[str, Any] = {
        "source": str(request.sources[0].path),
        "index_dir": str(request.target.index_dir) if request.target.index_dir else None,
        "seconds": round(built.seconds, 3),
        "partitions": len(built.plan.partitions),
        "skipped": {reason.value: count for reason, count in sorted(built.plan.skipped.counts.items())},
    }
    if request.repair:
        files = built.broken.files.items()
        shown["broken"] = sorted(f"{topic}-{number}/{name}" for (_, topic, number), names in files for name in names)
        shown["broken_logs"] = built.broken.logs
    print_json({**shown, **built.scanned.counts.as_json()})


def show_summary(request: BuildRequest, built: BuiltOnce) -> None:
    """Print what was read and written, and how fast."""
    print_counts(str(request.sources[0].path), built.scanned.counts)
    print_skipped((reason.value, count) for reason, count in built.plan.skipped.counts.items())
    print_rate(built.scanned.counts.log_bytes, built.scanned.read_seconds, built.seconds)
    print_line(f"index files: {request.target.index_dir or 'beside the segments'}")


def run_result(built: BuiltOnce) -> RunResult:
    """How the run ended, as builds with a catalog tell it."""
    return RunResult(
        code=exit_code(built),
        counts={
            "partitions": len(built.plan.partitions),
            "segments": built.scanned.counts.segments,
            "not_well": built.scanned.counts.problem_count,
        },
        bytes=built.scanned.counts.log_bytes,
    )


def exit_code(built: BuiltOnce) -> ExitCode:
    """The code that says whether there are problems. What could not be looked at is one."""
    unlistable = built.plan.skipped.counts[NotASegment.UNLISTABLE_DIRECTORY]
    problem_free = built.scanned.counts.problem_count == 0 and not built.broken.logs and not unlistable
    return ExitCode.OK if problem_free else ExitCode.PROBLEMS_FOUND
