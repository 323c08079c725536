"""Says how long the log dirs of a fleet take to start after a crash: alone, and with kidx at each level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from kidxlib.errors import CatalogError
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.recover.fleet.options import Rates
from kidxlib.operations.recover.fleet.starts import Start, starts_of
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.run.settings import read_settings
from kidxlib.tables.protocol import TablesToAsk
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.tables import print_table

_DECIMALS: Final = 1


def fleet_context(catalog: str | None, database: str | None, settings_file: Path) -> RunContext:
    """The catalog of a fleet.

    Raises:
        UsageError: the settings file or an option is wrong, or there is no catalog.
    """
    return RunContext.of(read_settings(settings_file), catalog, database, None).with_catalog()


def run_fleet(rates: Rates, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Ask a catalog of brokers' log dirs, and print a row for each. Nothing is recorded, and no log is read.

    Args:
        open_backend: opens a catalog that is there, and of this release.

    Raises:
        CatalogError: it cannot be read.
    """
    with open_backend() as backend:
        tables = backend.catalog.tables
        if not isinstance(tables, TablesToAsk):
            raise CatalogError(
                f"{tables.path}: this kind of catalog answers no SQL; expected a directory, an s3:// URL or one of "
                "Spark's"
            )
        starts, clean = starts_of(tables, rates)
        path = tables.path
    if as_json:
        print_json(
            {
                "catalog": path,
                "rates": asdict(rates),
                "sources": [asdict(start) for start in starts],
                "stopped_cleanly": list(clean),
            }
        )
    else:
        _show(path, rates, starts, clean)
    counts = {"sources": len(starts), "partitions": sum(start.partitions for start in starts)}
    return RunResult(code=ExitCode.OK, counts=counts, bytes=sum(start.log_bytes for start in starts))


def _show(catalog: str, rates: Rates, starts: Sequence[Start], clean: Sequence[str]) -> None:
    if starts:
        print_table(
            f"the next start after a crash, by {catalog}: seconds that reading logs takes",
            ("source", "alone", "checkpoint", "marker", "partitions", "log bytes", "last segments"),
            [_row(start) for start in starts],
            text_columns=4,
        )
        print_line(
            f"a broker reads {rates.broker:,} bytes a second with each of {rates.threads} threads for a log dir, kidx "
            f"{rates.kidx:,}: --broker-rate, --recovery-threads, --kidx-rate"
        )
    if clean:
        print_line(f"stopped cleanly, so nothing is recovered: {', '.join(clean)}")
    if not starts and not clean:
        print_line(f"{catalog} knows of no partition that a broker would start with")


def _row(start: Start) -> list[str | int]:
    seconds = (start.seconds_alone, start.seconds_checkpoint, start.seconds_marker)
    shown = [f"{each:,.{_DECIMALS}f}" for each in seconds]
    return [start.source, *shown, start.partitions, start.log_bytes, start.last_bytes]
