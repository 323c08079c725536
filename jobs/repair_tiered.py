"""Make objects of remote segments anew that are missing or broken, and with --apply put them into the bucket."""

from __future__ import annotations

from jobs.common.backend import open_spark_on
from kidxlib.commands.command import spark_job
from kidxlib.commands.repair_tiered import RepairTieredCommand, run_repair_tiered
from kidxlib.terminal.run_command import run

repair_tiered = spark_job(
    "repair_tiered",
    RepairTieredCommand,
    run_repair_tiered,
    lambda request: open_spark_on("repair_tiered", request.context),
    __doc__,
)

if __name__ == "__main__":
    run(repair_tiered, "./spark-submit.sh repair_tiered")
