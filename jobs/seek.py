"""Say where offsets and times are: for one question, or for a file of millions.

Say which batch holds an offset, and which record is the first of a time, as a broker would.

Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
which notes say; 1 failed.
"""

from __future__ import annotations

from functools import partial

from jobs.common.backend import open_spark
from jobs.common.spark_places import SparkPlaces
from kidxlib.commands.command import spark_job
from kidxlib.commands.seek import SeekCommand, run_seek
from kidxlib.terminal.run_command import run

seek = spark_job(
    "seek",
    SeekCommand,
    partial(run_seek, elsewhere=SparkPlaces()),
    lambda request: open_spark("seek", request.context, upgrade=False, changes=False),
    __doc__,
)

if __name__ == "__main__":
    run(seek, "./spark-submit.sh seek")
