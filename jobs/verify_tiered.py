"""Audit remote segments of tiered storage: metadata, objects and, where that is asked for, their bytes."""

from __future__ import annotations

from jobs.common.backend import open_spark_on
from kidxlib.commands.command import spark_job
from kidxlib.commands.verify_tiered import VerifyTieredCommand, run_verify_tiered
from kidxlib.terminal.run_command import run

verify_tiered = spark_job(
    "verify_tiered",
    VerifyTieredCommand,
    run_verify_tiered,
    lambda request: open_spark_on("verify_tiered", request.context),
    __doc__,
)

if __name__ == "__main__":
    run(verify_tiered, "./spark-submit.sh verify_tiered")
