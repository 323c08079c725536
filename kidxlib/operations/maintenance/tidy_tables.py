"""The upkeep of tables as a run of its own: options, settings and the policy file put together and checked, the work,
and the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from kidxlib.compaction.policy import Expiry
from kidxlib.compaction.policy_file import read_compaction_policy
from kidxlib.errors import UsageError
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.maintenance.maintain import Upkeep, maintain_tables
from kidxlib.operations.maintenance.report import print_tables, tables_as_json
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.run.settings import Settings, read_settings
from kidxlib.tables.protocol import VACUUM_KEEPS, MaintenanceOf
from kidxlib.terminal.console import print_json
from kidxlib.terminal.exit_codes import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesOptions:
    """The options as they were given; None, empty or False where they were not."""

    upkeep: Sequence[str]
    catalog: str | None
    policy: Path | None
    apply: bool
    settings_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesRequest:
    """What to do.

    Attributes:
        upkeep: what of it; in the order of `Upkeep`.
        expiry: which rows are to go.
        apply: do it, and not only say what would be done.
    """

    context: RunContext
    upkeep: Sequence[Upkeep]
    expiry: Expiry
    apply: bool


def tables_request(options: TablesOptions) -> TablesRequest:
    """Put options, settings and the policy together."""
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, None, None)
    upkeep = [each for each in Upkeep if each in options.upkeep or not options.upkeep]
    if Upkeep.EXPIRE in options.upkeep and options.policy is None:
        raise UsageError("expire: give a --policy with [tables], which says how old rows may become")
    if Upkeep.EXPIRE not in upkeep and options.policy is not None:
        raise UsageError("--policy: only expire uses it; name that too, or leave --policy out")
    if Upkeep.VACUUM in upkeep:
        ensure_vacuum_spares_runs("vacuum", settings)
    return TablesRequest(
        context=context.with_catalog(),
        upkeep=upkeep,
        expiry=Expiry() if options.policy is None else read_compaction_policy(options.policy).expiry,
        apply=options.apply,
    )


def ensure_vacuum_spares_runs(option: str, settings: Settings) -> None:
    """Refuse to vacuum what a run may still read.

    Args:
        option: what asks for it.
    """
    hours, keeps = settings.build.longest_run_hours, VACUUM_KEEPS // timedelta(hours=1)
    if hours > keeps:
        raise UsageError(
            f"{option}: VACUUM removes files that a run of more than {keeps} hours still reads; longest_run_hours is "
            f"{hours} in the settings, expected {keeps} at most"
        )


def run_tables(
    request: TablesRequest, open_backend: OpenBackend, maintenance_of: MaintenanceOf, *, as_json: bool
) -> RunResult:
    """Keep the tables of a catalog small and quick, or say what that would change."""
    with open_backend() as backend:
        of_catalog = backend.catalog.tables
        maintained = maintain_tables(
            of_catalog, maintenance_of(of_catalog), request.expiry, request.upkeep, apply=request.apply
        )
    if as_json:
        run = {"applied": request.apply, "now": request.context.now.isoformat()}
        print_json({**run, "tables": tables_as_json(maintained)})
    else:
        print_tables(maintained, applied=request.apply)
    return RunResult(code=ExitCode.OK, counts={"tables": len(maintained)}, bytes=0)
