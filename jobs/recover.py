"""The old name of fleet, for one release: say how long brokers would take to start after a crash."""

from __future__ import annotations

from jobs.fleet import fleet
from kidxlib.commands.command import Former, former_job
from kidxlib.terminal.run_command import run

recover = former_job("recover", Former("./spark-submit.sh fleet", lambda: fleet))

if __name__ == "__main__":
    run(recover, "./spark-submit.sh recover")
