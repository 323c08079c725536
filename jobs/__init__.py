"""The Spark jobs: one thin file per `spark-submit.sh` entry point."""

import sys

# Only while `python -m jobs.JOB` looks for JOB, whose import then takes seconds; no other importer has this argument.
if sys.argv[0] == "-m":
    from kidxlib.terminal import interrupts

    interrupts.end_at_once()
