"""`kidx fleet`, `./spark-submit.sh fleet`: how long brokers would take to start after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kidxlib.commands.command import OnCatalog, kidx_command, option
from kidxlib.errors import UsageError
from kidxlib.terminal.options import ByteSize, IntegerRange
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend


@dataclass(frozen=True, kw_only=True)
class FleetCommand(OnCatalog):
    """How fast brokers and kidx recover logs.

    Attributes:
        dry_run: does nothing; the old spelling of the command had it.
    """

    dry_run: bool = option("--dry-run", is_flag=True, hidden=True)
    broker_rate: int = option(
        "--broker-rate",
        metavar="SIZE",
        type=ByteSize(),
        default="250MB",
        show_default=True,
        help="What a thread of the broker recovers a second; its log tells ('Loaded … logs in … ms').",
    )
    kidx_rate: int = option(
        "--kidx-rate",
        metavar="SIZE",
        type=ByteSize(),
        default="1GB",
        show_default=True,
        help="What kidx reads a second on such a machine, from its disks.",
    )
    recovery_threads: int = option(
        "--recovery-threads",
        metavar="N",
        type=IntegerRange(1),
        default=2,
        show_default=True,
        help="The brokers' num.recovery.threads.per.data.dir.",
    )
    now: None = None
    processes: int = 1

    def __post_init__(self) -> None:
        for name, rate in (("--broker-rate", self.broker_rate), ("--kidx-rate", self.kidx_rate)):
            if rate == 0:
                raise UsageError(f"{name} 0: expected a byte a second or more")

    @property
    def writes(self) -> bool:
        return False


def run_fleet(request: FleetCommand, backend: Backend) -> Outcome:
    """For each source of a catalog, a log dir, say how long its broker would take to start after a crash: alone, and
    with kidx recover at each level. A broker is recovered beside its disks, by kidx recover. No log is read, and
    nothing is recorded.

    Exit codes: 0 said; 2 wrong options or inputs, nothing done; 3 said, and a source cannot be listed, or is empty;
    1 failed.
    """
    from kidxlib.operations.recover.fleet import RecoveryRates, forecast_fleet

    rates = RecoveryRates(broker=request.broker_rate, kidx=request.kidx_rate, threads=request.recovery_threads)
    return forecast_fleet(rates, backend.catalog.tables)


fleet = kidx_command("fleet", FleetCommand, run_fleet, reports_as="fleet")
