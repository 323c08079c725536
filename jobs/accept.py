"""Accept known damage: record who looked at it, when and why; it stays listed, and fails builds and audits no more.

Accept damage that the catalog knows of: segments that build_index found truncated, quarantined or unreadable,
and files that the last audit of verify_index found torn or broken. Nothing is mended. It stays listed, with who
accepted it, when and why, and counts apart; when the file changes, or what is found in it, it is damage again.
Nothing is recorded but with --apply.

Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
"""

from __future__ import annotations

from jobs.common.backend import open_spark
from kidxlib.commands.accept import Accept, run_accept
from kidxlib.commands.command import spark_job
from kidxlib.terminal.command import run

accept = spark_job(
    "accept",
    Accept,
    run_accept,
    lambda request: open_spark("accept", request.context, upgrade=request.apply),
    __doc__,
)

if __name__ == "__main__":
    run(accept, "./spark-submit.sh accept")
