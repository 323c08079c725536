"""The builds that a catalog is made of."""

from __future__ import annotations

from typing import Any

from kidxlib.catalog.builds import BUILDS
from kidxlib.operations.report.answers import Answers
from kidxlib.operations.report.questions import BUILT
from kidxlib.recovery.outcome import Status
from kidxlib.tables.protocol import TablesToRead
from kidxlib.text.times import to_ms


def builds_section(answers: Answers, tables: TablesToRead) -> dict[str, Any]:
    """The last builds, the newest first: how long, how fast, and what they found wrong."""
    found = tables.read(BUILDS, ["build_id", "by_status", "sources"])
    problems = {row["build_id"]: row for row in found.to_pylist(maps_as_pydicts="strict")}
    rows = []
    for row in answers[BUILT]:
        of_build = problems[row["build_id"]]
        by_status = {status: count for status, count in of_build["by_status"].items() if status != Status.OK and count}
        started_ms = to_ms(row["started_at"])
        speed = row["log_bytes"] / row["scan_seconds"] if row["scan_seconds"] else None
        rows.append(
            {
                **{name: value for name, value in row.items() if name != "started_at"},
                "started_ms": started_ms,
                "bytes_a_second": speed,
                "problems": by_status,
                "sources": sorted(of_build["sources"]),
            }
        )
    return {"builds": rows}
