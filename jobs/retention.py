"""Plan retention: which segments Kafka would delete, and why each of the others stays; apply a plan."""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.retention import RetentionCommand, run_retention
from kidxlib.terminal.run_command import run

retention = spark_job(
    "retention",
    RetentionCommand,
    run_retention,
    lambda request: open_spark("retention", request.context),
    __doc__,
)

if __name__ == "__main__":
    run(retention, "./spark-submit.sh retention")
