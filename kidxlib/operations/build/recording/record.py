"""The row of the table `builds`."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan
from kidxlib.operations.build.build_run import Scanned
from kidxlib.operations.build.request import BuildRequest


def request_columns(request: BuildRequest, versions: Mapping[str, str]) -> dict[str, Any]:
    """What a row of `builds` says of what was asked for."""
    return {
        "started_at": request.context.now,
        "sources": {source.name: str(source.path) for source in request.sources},
        "options": {name: _as_text(value) for name, value in request.recorded().items()},
        "versions": {"kidx": metadata.version("kidx"), **versions, "python": platform.python_version()},
    }


def found_columns(plan: Plan, changes: Changes) -> dict[str, Any]:
    """What a row of `builds` says of what was listed, and of how that differs from the catalog."""
    return {
        "partitions": len(plan.partitions),
        "unchanged": changes.unchanged,
        "gone": changes.gone.num_rows,
        "finished": len(changes.to_finish),
        "skipped": {reason.value: count for reason, count in sorted(plan.skipped.counts.items())},
    }


def scan_columns(scanned: Scanned) -> dict[str, Any]:
    """What a row of `builds` says of what was read."""
    return {
        "scan_seconds": round(scanned.seconds, 3),
        "waves": scanned.waves,
        "segments": scanned.counts.segments,
        "log_bytes": scanned.counts.log_bytes,
        "batches": scanned.counts.batches,
        "by_status": dict(scanned.counts.by_status),
        "by_published": dict(scanned.counts.by_published),
        "aborted_transactions": scanned.counts.aborted_transactions,
        "by_transaction_index": dict(scanned.counts.by_transaction_index),
    }


def _as_text(value: str | int | bool | None) -> str | None:
    """An option as the table has it, whose values are text: as JSON has it, but for quotes."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
