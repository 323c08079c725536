"""Plan retention: which segments Kafka would delete, and why each of the others stays; apply a plan.

Plan which segments Kafka's retention would delete, with a reason for each, and record that in the catalog's
table retention_plans. Nothing is deleted but with --apply.

Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems,
their time indexes lead to other decisions, or nobody said all that decides on a topic that --topics asks for;
1 failed.
"""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.retention import Retention, run_retention
from kidxlib.terminal.command import run

retention = spark_job(
    "retention",
    Retention,
    run_retention,
    lambda request: open_spark("retention", request.context),
    __doc__,
)

if __name__ == "__main__":
    run(retention, "./spark-submit.sh retention")
