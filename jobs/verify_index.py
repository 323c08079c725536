"""Audit logs and index files: is each right, what would a broker do with it, and what happens if it is wrong.

Check each log, and each index file against what Kafka's recovery would write; say what a wrong one leads to, and
what a broker would do at its next start. Nothing is written beside the source. The job verify_tiered audits buckets of
tiered storage, and compare judges copies.

Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 some files are as bad as --fail-on says, a
broker would lose more than a torn end at its next start, or a segment is not ready for tiering
(--require-tiering); 1 failed.
"""

from __future__ import annotations

from jobs.common.backend import open_spark_on
from jobs.compare import verify_copy
from jobs.verify_tiered import verify_tiered
from kidxlib.commands.command import Former, spark_job
from kidxlib.commands.verify import VerifyCommand, run_verify
from kidxlib.terminal.run_command import run

verify_index = spark_job(
    "verify_index",
    VerifyCommand,
    run_verify,
    lambda request: open_spark_on("verify_index", request.context),
    __doc__,
    formerly={
        "--tiered": Former("./spark-submit.sh verify_tiered PLACE", lambda: verify_tiered),
        "--copy": Former("./spark-submit.sh compare SOURCE URL --catalog DIR", lambda: verify_copy),
    },
)

if __name__ == "__main__":
    run(verify_index, "./spark-submit.sh verify_index")
