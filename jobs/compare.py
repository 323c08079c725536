"""Compare the copy of a log dir in an object store, or a replica, with what a catalog knows of the original.

Compare B with A, a source of the catalog. B is its copy at s3://BUCKET/PREFIX, which is asked for checksums; or, with
--as replica, another source of the catalog. No log is read, but where batches of replicas differ. Nothing is written.

Exit codes: 0 B has all that A has; 2 wrong options or inputs, nothing done; 3 B lacks something, has something
else, ends earlier (without --allow-behind), or something could not be compared; 1 failed.
"""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.command import spark_job
from kidxlib.commands.compare import CompareCommand, run_compare
from kidxlib.commands.verify_copy import VerifyCopyCommand, run_verify_copy
from kidxlib.terminal.run_command import run

compare = spark_job(
    "compare",
    CompareCommand,
    run_compare,
    lambda request: open_spark("compare", request.context, upgrade=False, changes=False),
    __doc__,
)

#: The old spelling, of verify_index --copy.
verify_copy = spark_job(
    "verify_copy",
    VerifyCopyCommand,
    run_verify_copy,
    lambda request: open_spark("verify_copy", request.context, upgrade=False, changes=False),
    None,
)

if __name__ == "__main__":
    run(compare, "./spark-submit.sh compare")
