"""Write one HTML page of what a catalog knows: health, timelines, retention, shape, growth, replicas, builds.

Write one HTML page of what a catalog knows: how much there is, what is not well, the segments of each partition,
what retention would do with other limits, the shape of batches, growth, replicas and builds. The page needs no
network. Nothing is recorded in the catalog. With --sample some batches of logs are read, too, and where replicas
differ some headers.

Exit codes: 0 made; 3 made, and it says of offsets that they are missing, which nobody has accepted: a gap between
logs, a log that is missing or ends early, what a replica lacks; 2 wrong options or inputs, nothing done; 1 failed.
"""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.report import ReportOn, run_report
from kidxlib.terminal.command import run

report = spark_job(
    "report",
    ReportOn,
    run_report,
    lambda request: open_spark("report", request.context, upgrade=False, changes=False),
    __doc__,
)

if __name__ == "__main__":
    run(report, "./spark-submit.sh report")
