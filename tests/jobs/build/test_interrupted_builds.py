"""A build on Spark that gets a real signal while it reads: what was read is recorded, and one line says so."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path

from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import Running, TooLateError, again_if_too_late, kill_session
from tests.faults.trees import in_memory, slow_log, small_log, staging_files, write_log
from tests.support.opened_files import OpenedFiles
from tests.support.spark.cluster import without_tracebacks_of_daemons, worker
from tests.support.spark.jobs import Place, build, start

#: Checking a log of this size takes some tenths of a second.
SLOW = 1 << 30
#: No step of a job on Spark takes as long; what does, hangs.
DEADLINE_SECONDS = 300.0


@again_if_too_late
def test_an_interrupted_build_records_what_was_read_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """SIGINT to all processes, as a terminal sends it, while the only worker stands amid the first segment."""
    directory = Path(tempfile.mkdtemp(dir=tmp_path))
    log_dir, place = directory / "kafka-logs", Place(directory, directory / "kafka-logs")
    log = slow_log(log_dir / "topic-0", 0, SLOW, small_log(100))
    for name, base_offset in (("topic-0", 100), ("fine-0", 0), ("fine-1", 0)):
        write_log(log_dir / name, base_offset, small_log(base_offset=base_offset))
    metrics = directory / "kidx.prom"
    with (
        in_memory(log),
        start(*place.arguments, "--json-line", "-", "--metrics-file", metrics, "--", "--master", "local[1,4]") as job,
    ):
        try:
            running = Running(job, worker, DEADLINE_SECONDS)
            with running.stopped_within(log):
                os.killpg(job.pid, signal.SIGINT)
            out, messages = job.communicate(timeout=DEADLINE_SECONDS)
        finally:
            kill_session(job)
    if job.returncode == ExitCode.OK:
        raise TooLateError(messages)
    assert (job.returncode, out) == (ExitCode.INTERRUPTED, ""), messages
    assert "Traceback" not in without_tracebacks_of_daemons(messages) and "Exception" not in messages, messages
    *_, line, error = messages.splitlines()
    read = "1 of 4 segments read and recorded in the catalog; run the same command again to go on"
    assert error == f"error: interrupted: {read}", messages
    found = json.loads(line)
    assert (found["status"], found["exit_code"], found["error"]) == ("interrupted", 130, f"interrupted: {read}")
    assert 'kidx_run_exit_code{job="build_index"} 130.0' in metrics.read_text()
    assert staging_files(place.index_dir) == [] and place.recorded() == {str(log)}

    with OpenedFiles(log_dir.iterdir()) as opened:
        again = build(*place.arguments)
    assert again.code == ExitCode.OK and again.json["by_status"] == {"ok": 3}, again
    assert str(log) not in {str(path) for path in opened.logs()}
    assert len(place.state()[1]) == 4
