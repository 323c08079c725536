"""Compact indexes and tables: trim preallocated files, give cold segments sparser indexes, remove leftovers."""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.compact import CompactCommand, run_compact
from kidxlib.terminal.run_command import run

compact_index = spark_job(
    "compact_index",
    CompactCommand,
    run_compact,
    lambda request: open_spark("compact_index", request.context, upgrade=request.apply, changes=request.apply),
    __doc__,
)

if __name__ == "__main__":
    run(compact_index, "./spark-submit.sh compact_index")
