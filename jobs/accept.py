"""Accept known damage: record who looked at it, when and why; it stays listed, and fails builds and audits no more."""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.accept import AcceptCommand, run_accept
from kidxlib.commands.command import spark_job
from kidxlib.terminal.run_command import run

accept = spark_job(
    "accept",
    AcceptCommand,
    run_accept,
    lambda request: open_spark("accept", request.context, upgrade=request.apply),
    __doc__,
)

if __name__ == "__main__":
    run(accept, "./spark-submit.sh accept")
