"""Compact indexes and tables: trim preallocated files, give cold segments sparser indexes, remove leftovers.

Make what is stored of indexes smaller: index files of segments that are not active are trimmed, or rebuilt
with larger intervals, exactly as Kafka's recovery would write them; files that nothing needs are removed; tables
are optimized. Nothing is changed but with --apply.

Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some files stay that were to change;
1 failed.
"""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.compact import Compact, run_compact
from kidxlib.terminal.command import run

compact_index = spark_job(
    "compact_index",
    Compact,
    run_compact,
    lambda request: open_spark("compact_index", request.context, upgrade=request.apply, changes=request.apply),
    __doc__,
)

if __name__ == "__main__":
    run(compact_index, "./spark-submit.sh compact_index")
