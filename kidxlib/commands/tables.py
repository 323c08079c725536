"""`kidx tables`: keep a catalog's tables small and quick to query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kidxlib.commands.command import OnCatalog, kidx_command, option, parameter
from kidxlib.errors import UsageError
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.compaction.policy import Expiry
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.maintenance import MaintainedTable
    from kidxlib.run.settings import Settings

#: The values of `Upkeep`, written out here: importing it would slow `--help`.
_UPKEEP: Final = ("expire", "optimize", "vacuum")
#: What is measured of a table, before and after a change: the attribute and the column.
_MEASURED: Final = (("files", "files"), ("bytes", "bytes"), ("point_query_rows", "rows for a point query"))
#: What is counted of a table: the attribute and the column.
_COUNTED: Final = (("expired_rows", "rows expired"), ("vacuumed_files", "files to vacuum"))


@dataclass(frozen=True, kw_only=True)
class TablesCommand(OnCatalog):
    """What to do with the catalog's tables.

    Attributes:
        upkeep: what to do, values of `Upkeep`; empty for all.
    """

    upkeep: tuple[str, ...] = parameter(
        click.argument("upkeep", nargs=-1, type=click.Choice(_UPKEEP), metavar="[expire] [optimize] [vacuum]")
    )
    policy: Path | None = option(
        "--policy",
        type=click.Path(path_type=Path),
        help="A file (TOML) whose [tables] says how old rows may become; for expire.",
    )
    apply: bool = parameter(shared_options.apply_changes)
    now: None = None
    processes: int = 1

    def __post_init__(self) -> None:
        if "expire" in self.upkeep and self.policy is None:
            raise UsageError("expire: give a --policy with [tables], which says how old rows may become")
        if self.upkeep and "expire" not in self.upkeep and self.policy is not None:
            raise UsageError("--policy: only expire uses it; name that too, or leave --policy out")
        if "vacuum" in (self.upkeep or _UPKEEP):
            ensure_vacuum_spares_runs("vacuum", self.settings)
        _ = self.expiry  # a wrong policy is refused before anything is done

    @property
    def writes(self) -> bool:
        return self.apply

    @cached_property
    def expiry(self) -> Expiry:
        from kidxlib.compaction.policy import Expiry
        from kidxlib.compaction.policy_file import read_compaction_policy

        return Expiry() if self.policy is None else read_compaction_policy(self.policy).expiry


def ensure_vacuum_spares_runs(option: str, settings: Settings) -> None:
    """Refuse an option of `kidx tables` or `kidx compact` that would vacuum files which a run may still read."""
    from kidxlib.tables.protocol import VACUUM_KEEPS

    run_hours, kept_hours = settings.build.longest_run_hours, VACUUM_KEEPS // timedelta(hours=1)
    if run_hours > kept_hours:
        raise UsageError(
            f"{option}: VACUUM removes files that a run of more than {kept_hours} hours still reads; longest_run_hours "
            f"is {run_hours} in the settings, expected {kept_hours} at most"
        )


def run_tables(request: TablesCommand, backend: Backend) -> Outcome:
    """Say how a catalog's tables are stored, and what would be done with them; with --apply do it.

    expire: rows that are older than the --policy allows go. optimize: where files are too many, too large or in no
    order, they are written anew, so that queries leave out most of them. vacuum: files that no version of the last
    seven days needs go. Without a word all three. The same as ./spark-submit.sh compact_index --tables, without Spark.

    Exit codes: 0 done; 2 wrong options or inputs, nothing done; 1 failed.
    """
    from kidxlib.operations.maintenance import Upkeep, maintain_tables

    upkeep = [step for step in Upkeep if step in (request.upkeep or _UPKEEP)]
    maintained = maintain_tables(
        backend.catalog.tables, backend.maintenance, request.expiry, upkeep, apply=request.apply
    )
    outcome = Outcome(counts={"tables": len(maintained)})
    outcome.values.update(applied=request.apply, now=request.context.now.isoformat())
    tell_tables(outcome, maintained, applied=request.apply)
    return outcome


def tell_tables(outcome: Outcome, tables: Sequence[MaintainedTable], *, applied: bool) -> None:
    """Show what `kidx tables` does, a row for each table; in JSON they are the value of `tables`."""
    outcome.values["tables"] = [asdict(table) for table in tables]
    measured_columns: list[str] = []
    for _, column in _MEASURED:
        measured_columns += [f"{column} before", f"{column} after"] if applied else [column]
    outcome.table(
        "tables" if applied else "tables; nothing was written: --apply does it",
        ("table", *measured_columns, *(column for _, column in _COUNTED)),
        [
            (table.table, *_measured_values(table, applied), *(getattr(table, attribute) for attribute, _ in _COUNTED))
            for table in tables
        ],
        text_columns=1,
    )


def _measured_values(table: MaintainedTable, applied: bool) -> Iterator[int | str]:
    for attribute, _ in _MEASURED:
        for state in (table.before, table.after) if applied else (table.before,):
            value = None if state is None else getattr(state, attribute)
            yield "-" if value is None else int(value)


tables = kidx_command("tables", TablesCommand, run_tables, reports_as="compact_index")
