"""Index raw Kafka segments: write .index and .timeindex as Kafka's recovery does, and record every segment.

Index raw Kafka segments: write .index, .timeindex and .txnindex byte for byte as Kafka's recovery would, without
touching a log, and record every segment in Delta tables. Segments that have not changed since the last build are
not read. What is broken in a bucket of tiered storage is made anew by the job repair_tiered.

Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments of these sources and
topics are damaged, as this run or an earlier one found, and not accepted (see accept), or logs or partitions are
missing; 1 failed. 0 means that recovery accepts each log; verify_index judges the other files, too.
"""

from __future__ import annotations

from jobs.common.backend import open_spark
from jobs.repair_tiered import repair_tiered
from kidxlib.commands.build import BuildCommand, run_build
from kidxlib.commands.command import Former, spark_job
from kidxlib.terminal.run_command import run

build_index = spark_job(
    "build_index",
    BuildCommand,
    run_build,
    lambda request: open_spark(
        "build_index", request.context, must_exist=not request.makes_catalog, upgrade=not request.dry_run
    ),
    __doc__,
    formerly={"--tiered": Former("./spark-submit.sh repair_tiered PLACE", lambda: repair_tiered)},
)

if __name__ == "__main__":
    run(build_index, "./spark-submit.sh build_index")
