"""The options of a forecast for the sources of a catalog, whoever asks the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Self, TypeVar

import click

from kidxlib.errors import UsageError
from kidxlib.terminal.options.numbers import ByteSize, IntegerRange

_Command = TypeVar("_Command", bound=Callable[..., Any])

DRY_RUN: Final = click.option(
    "--dry-run", is_flag=True, help="With --catalog: say how long each source would take to start. Nothing is read."
)
#: What a user calls the rates, by parameter.
RATES: Final = {
    "broker_rate": "--broker-rate",
    "kidx_rate": "--kidx-rate",
    "recovery_threads": "--recovery-threads",
}
_OPTIONS: Final = (
    click.option(
        "--broker-rate",
        metavar="SIZE",
        type=ByteSize(),
        default="250MB",
        show_default=True,
        help="With --catalog: what a thread of the broker recovers a second; its log tells ('Loaded … logs in … ms').",
    ),
    click.option(
        "--kidx-rate",
        metavar="SIZE",
        type=ByteSize(),
        default="1GB",
        show_default=True,
        help="With --catalog: what kidx reads a second on such a machine, from its disks.",
    ),
    click.option(
        "--recovery-threads",
        metavar="N",
        type=IntegerRange(1),
        default=2,
        show_default=True,
        help="With --catalog: the brokers' num.recovery.threads.per.data.dir.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast logs are recovered.

    Attributes:
        broker: bytes a second of one thread of a broker.
        kidx: bytes a second of kidx, with all cores.
        threads: of a broker, for each log dir.
    """

    broker: int
    kidx: int
    threads: int

    @classmethod
    def of(cls, *, broker_rate: int, kidx_rate: int, recovery_threads: int) -> Self:
        """The rates that were asked for."""
        for name, rate in (("broker_rate", broker_rate), ("kidx_rate", kidx_rate)):
            if rate == 0:
                raise UsageError(f"{RATES[name]} 0: expected a byte a second or more")
        return cls(broker=broker_rate, kidx=kidx_rate, threads=recovery_threads)


def rate_options(command: _Command) -> _Command:
    """What `Rates.of` takes."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def ensure_dry_run(dry_run: bool) -> None:
    """A catalog knows of log dirs, and has none of them at hand."""
    if not dry_run:
        raise UsageError(
            "--catalog: only with --dry-run, which says how long each source would take; to recover a broker, run "
            "kidx recover LOG_DIR… beside its disks"
        )
