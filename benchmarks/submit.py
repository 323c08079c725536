"""A job through ./spark-submit.sh, or `kidx`, seen from outside: its time, and the memory of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from kidxlib.errors import KidxError
from tests.support.spark.jobs import clean_environment

PROJECT: Final = Path(__file__).resolve().parents[1]
_POLL_SECONDS: Final = 0.1
_SHARE: Final = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """How a run went.

    Attributes:
        began_at: seconds since the epoch.
        seconds: from starting the command to its end.
        jvm_bytes, python_bytes: the most memory that the driver's two processes had, as the kernel says (`VmHWM`);
            in local mode its JVM is the executor, too.
        worker_bytes: the most that any other Python process had, mapped files aside, looked at ten times a second.
        all_bytes: the most that all of its processes had together, looked at as often: of each its share of memory,
            with what it maps (`Pss`).
        out, err: what it printed.
    """

    began_at: float
    seconds: float
    jvm_bytes: int
    python_bytes: int
    worker_bytes: int
    all_bytes: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """What it printed with `--json`."""
        printed: dict[str, Any] = json.loads(self.out)
        return printed

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each phase, as it said with `-v`."""
        [took] = [line for line in self.err.splitlines() if "took: " in line]
        of_phases = (each.removesuffix(" s").rpartition(" ") for each in took.partition("took: ")[2].split(", "))
        return {name: float(seconds) for name, _, seconds in of_phases}

    @property
    def memory(self) -> dict[str, int]:
        """The most that each kind of process had, in bytes."""
        return {"jvm": self.jvm_bytes, "python": self.python_bytes, "worker": self.worker_bytes}


def places(directory: Path) -> tuple[str | Path, ...]:
    """The options of a build of `kafka-logs` in a directory, with its results beside it."""
    source, index_dir, catalog = f"bench={directory / 'kafka-logs'}", directory / "index", directory / "catalog"
    return "--source", source, "--index-dir", index_dir, "--catalog", catalog, "--json"


def remove_results(directory: Path) -> None:
    """Let the next build of `places` begin from nothing. What removing leaves to the disk is done here, too."""
    for name in ("index", "catalog", "events"):
        shutil.rmtree(directory / name, ignore_errors=True)
    os.sync()


def run_job(job: str, *arguments: str | Path, events: Path | None = None, of_spark: Sequence[str] = ()) -> JobRun:
    """Run a job to its end.

    Args:
        events: a directory for Spark's event log of this run alone.
        of_spark: further options of spark-submit.

    Raises:
        KidxError: it ended with another exit code than 0.
    """
    of_submit = (*event_log_options(events), *of_spark)
    return run_command([str(PROJECT / "spark-submit.sh"), job, *map(str, arguments), "--", *of_submit])


def run_kidx(*arguments: str | Path, only_seconds: bool = False) -> JobRun:
    """Run `kidx` to its end.

    Raises:
        KidxError: it ended with another exit code than 0.
    """
    return run_command([str(PROJECT / ".venv" / "bin" / "kidx"), *map(str, arguments)], only_seconds=only_seconds)


def run_command(command: Sequence[str], *, only_seconds: bool = False) -> JobRun:
    """Run any command to its end.

    Args:
        only_seconds: do not look at its memory, which halts processes that map many files, and takes a core's tenth.

    Raises:
        KidxError: it ended with another exit code than 0.
    """
    began_at, start = time.time(), time.perf_counter()
    peaks: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:  # as long as they may be
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True, env=clean_environment())
        if only_seconds:
            process.wait()
        while process.poll() is None:
            shares = 0
            for name, size in _memory_of_session(process.pid):
                peaks[name] = max(peaks[name], size)
                shares += size if name == _SHARE else 0
            peaks["all"] = max(peaks["all"], shares)
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - start
        printed, said = (_whole(each) for each in (out, err))
    if process.returncode != 0:
        raise KidxError(f"{' '.join(command)}: ended with exit code {process.returncode}, expected 0: {said.strip()}")
    return JobRun(
        began_at=began_at,
        seconds=seconds,
        jvm_bytes=peaks["jvm"],
        python_bytes=peaks["python"],
        worker_bytes=peaks["worker"],
        all_bytes=peaks["all"],
        out=printed,
        err=said,
    )


def _whole(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def event_log_options(events: Path | None) -> list[str]:
    """What tells spark-submit to write an event log, as one file of plain text, into a new directory."""
    if events is None:
        return []
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir(parents=True)
    options = {"enabled": "true", "dir": events.resolve().as_uri(), "compress": "false", "rolling.enabled": "false"}
    return [word for name, value in options.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]


def _memory_of_session(leader: int) -> Iterator[tuple[str, int]]:
    """Memory in bytes: the peaks so far of the JVM and of the driver's Python process, which leads the session, and
    what each other Python process has now; of each process its share, too.
    """
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError):  # ended meanwhile
            pid = int(path.parent.name)
            if os.getsid(pid) != leader:
                continue
            status = read_status(path)
            yield _SHARE, status_bytes(read_status(path.with_name("smaps_rollup")), "Pss")
            if status["Name"] == "java":
                yield "jvm", status_bytes(status, "VmHWM")
            elif pid == leader:
                yield "python", status_bytes(status, "VmHWM")
            elif status["Name"].startswith("python"):
                yield "worker", status_bytes(status, "RssAnon", "RssShmem")


def read_status(path: Path) -> dict[str, str]:
    """The fields of a process's `status`, or of its `smaps_rollup`, in `/proc`."""
    fields = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in fields}


def status_bytes(status: Mapping[str, str], *fields: str) -> int:
    """The sum of some fields of a `status`, in bytes."""
    return sum(int(status[field].split()[0]) for field in fields) * 1024
