"""Write one HTML page of what a catalog knows: health, timelines, retention, shape, growth, replicas, builds."""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.report import ReportCommand, run_report
from kidxlib.terminal.run_command import run

report = spark_job(
    "report",
    ReportCommand,
    run_report,
    lambda request: open_spark("report", request.context, upgrade=False, changes=False),
    __doc__,
)

if __name__ == "__main__":
    run(report, "./spark-submit.sh report")
