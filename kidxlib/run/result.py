"""How a run of a job ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.exit_codes import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended that was not interrupted by an error.

    Attributes:
        run_id: what the catalog calls it; None where it does not.
        counts: what it dealt with, as `segments`; all that it can count, zeros too.
        bytes: what it read of logs, or decided about; see docs/operations.md.
        requests: of object stores, but for those to a catalog; none of commands that do not count them.
        catalog_segments: how many segments the catalog has, by source and status; None where that was not asked.
        catalog_files: how many files the last audits found wrong, by source and verdict; None where that was not asked.
    """

    code: ExitCode
    run_id: str | None = None
    counts: Mapping[str, int]
    bytes: int
    requests: Requests = field(default_factory=Requests)
    catalog_segments: Mapping[tuple[str, str], int] | None = None
    catalog_files: Mapping[tuple[str, str], int] | None = None
