"""The Spark jobs: one thin file per `spark-submit.sh` entry point."""

import sys

# So it is while `python -m jobs.JOB` looks for JOB, and in no process that imports one: what comes next takes seconds.
if sys.argv[0] == "-m":
    from kidxlib.terminal import interrupts

    interrupts.end_at_once()
