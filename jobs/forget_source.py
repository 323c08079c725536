"""Take a source out of a catalog: its rows in all tables. Files of logs and indexes are not touched."""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.forget_source import ForgetSourceCommand, run_forget_source
from kidxlib.terminal.run_command import run

forget_source = spark_job(
    "forget_source",
    ForgetSourceCommand,
    run_forget_source,
    lambda request: open_spark("forget_source", request.context, upgrade=False, changes=request.apply),
    __doc__,
)

if __name__ == "__main__":
    run(forget_source, "./spark-submit.sh forget_source")
