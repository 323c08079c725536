"""`kidx restore-check`: whether the running cluster has all that was restored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from kidxlib.commands.command import FIRST, CommandOptions, kidx_command, open_nothing, option, parameter
from kidxlib.terminal.options import needing_packages
from kidxlib.terminal.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class RestoreCheckCommand(CommandOptions):
    """The restore, and the cluster that came of it."""

    plan: Path = parameter(click.argument("plan", metavar="PLAN.json", type=click.Path(path_type=Path)), at=FIRST)
    bootstrap: str = option(
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT[,HOST:PORT]",
        required=True,
        help="Brokers of the restored cluster.",
    )
    command_config: Path | None = option(
        "--command-config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The settings of a client for SASL or TLS, as Kafka's tools or librdkafka take them.",
    )

    @property
    def writes(self) -> bool:
        return False


def run_restore_check(request: RestoreCheckCommand, _: None) -> Outcome:
    """Compare a running cluster with what kidx restore has restored.

    PLAN.json is the output of kidx restore … --apply PLAN --json. The check compares topics and their ids, replicas,
    the ends of logs, and the offsets of groups. Consumers read all records up to the restored ends, at both isolation
    levels, and the check compares digests of them. Nothing is written. If all is equal, it prints the kafka-configs
    commands that lift the hold on retention.

    Exit codes: 0 all is equal; 3 something differs, or could not be compared; 2 wrong options or inputs; 1 failed.
    """
    with needing_packages("kidx restore-check", "check"):
        from kidxlib.operations.restore.check import CheckRequest, check_restore
    return check_restore(
        CheckRequest(plan=request.plan, bootstrap=request.bootstrap, command_config=request.command_config)
    )


restore_check = kidx_command(
    "restore-check", RestoreCheckCommand, run_restore_check, opened=open_nothing, reports_as="restore_check"
)
