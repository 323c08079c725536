"""Say how long brokers would take to start after a crash, alone and with kidx recover. It recovers none."""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.fleet import FleetCommand, run_fleet
from kidxlib.terminal.run_command import run

fleet = spark_job(
    "fleet",
    FleetCommand,
    run_fleet,
    lambda request: open_spark("fleet", request.context, upgrade=False, changes=False),
    __doc__,
)

if __name__ == "__main__":
    run(fleet, "./spark-submit.sh fleet")
