"""What many seeks came to: counts, and what a person should know."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.engine.staged import Staged
from kidxlib.operations.seek.answer_work import KIND
from kidxlib.operations.seek.catalog_rows import Unknown
from kidxlib.operations.seek.consumer_offsets import NAMED_ON_SCREEN
from kidxlib.operations.seek.request import SeekRequest
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode

#: What a run counts, besides bytes.
_COUNTED = ("answers", "found", "not_answered", "file_error")


def count_answers(staged: Staged) -> dict[str, int]:
    """Counts of answers by their names in JSON; `bytes_read` is of logs."""
    flags = ["found", "answered", "file_error"]
    rows = staged.rows(KIND, [*flags, "bytes_read"])
    found, answered, file_error = (pc.sum(rows[name].cast(pa.int64())).as_py() or 0 for name in flags)
    return {
        "answers": rows.num_rows,
        "found": found,
        "not_answered": rows.num_rows - answered,
        "file_error": file_error,
        "bytes_read": pc.sum(rows["bytes_read"]).as_py() or 0,
    }


def result_of(counts: Mapping[str, int], *, lacks: bool) -> RunResult:
    """How the run ended.

    Args:
        lacks: consumers are told where to go on in a part of the partitions alone.
    """
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if lacks or counts["file_error"] else ExitCode.OK,
        counts={name: counts[name] for name in _COUNTED},
        bytes=counts["bytes_read"],
    )


def show_counts(
    request: SeekRequest, counts: Mapping[str, int], unknown: Unknown, seconds: float, *, as_json: bool
) -> None:
    """Show how many were answered, and where the answers are."""
    written = {
        "output": request.output,
        "consumer_group_csv": None if request.consumer_group_csv is None else str(request.consumer_group_csv),
    }
    if as_json:
        print_json({**counts, "seconds": seconds, **written})
        return
    print_line(f"{counts['answers']:,} answers, {counts['found']:,} found, in {seconds:.1f} s")
    print_line(f"read {counts['bytes_read']:,} bytes of logs")
    _print_notes(counts["not_answered"], counts["file_error"], unknown)
    for name, path in written.items():
        if path is not None:
            print_line(f"{name.replace('_', ' ')}: {path}")


def _print_notes(not_answered: int, noted: int, unknown: Unknown) -> None:
    if not_answered:
        print_line(f"{not_answered:,} not answered for certain: their notes say why")
    if noted > not_answered:
        print_line(f"{noted - not_answered:,} answered, with a note about a damaged file")
    for why in list(unknown.values())[:NAMED_ON_SCREEN]:
        print_line(f"  {why}")
    if len(unknown) > NAMED_ON_SCREEN:
        print_line(f"  … and more partitions that the catalog does not have: {len(unknown) - NAMED_ON_SCREEN:,}")
