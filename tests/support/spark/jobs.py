"""Runs jobs and commands as a user's shell does, or within this process, where Spark's JVM is started once."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import pyarrow
from deltalake import DeltaTable, QueryBuilder

from jobs.accept import accept
from jobs.build_index import build_index
from jobs.common.spark.session import session
from jobs.compact_index import compact_index
from jobs.fleet import fleet
from jobs.forget_source import forget_source
from jobs.recover import recover
from jobs.repair_tiered import repair_tiered
from jobs.report import report
from jobs.retention import retention
from jobs.seek import seek
from jobs.verify_index import verify_index
from jobs.verify_tiered import verify_tiered
from kidxlib.catalog.tables import TABLES
from kidxlib.cli.main import kidx
from kidxlib.commands.build import build as kidx_build
from kidxlib.commands.compact import compact as kidx_compact
from kidxlib.commands.report import report as kidx_report
from kidxlib.commands.retention import retention as kidx_retention
from kidxlib.commands.seek import seek as kidx_seek
from kidxlib.commands.tables import tables as kidx_tables
from kidxlib.terminal.options import SETTINGS_FILE
from kidxlib.terminal.run_command import run
from tests.faults import processes
from tests.support.files import tree
from tests.support.spark.sessions import use_own_session, use_shared_session
from tests.support.terminal import NO_VARIABLES, without_progress

PROJECT: Final = Path(__file__).resolve().parents[3]

Ended: TypeAlias = processes.Ended
RunHere: TypeAlias = Callable[..., Ended]


def run_here(command: click.Command, *arguments: str | Path) -> Ended:
    """Run a command within this process; workers of `kidx` are other processes."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(command, str(command.name), [str(argument) for argument in arguments])
        except SystemExit as exit_:
            return Ended(int(str(exit_.code)), out.getvalue(), without_progress(err.getvalue()))
    raise AssertionError("run() returned")


def _job_here(job: click.Command, *arguments: str | Path) -> Ended:
    use_shared_session()
    return run_here(job, *arguments)


def build_alone(*arguments: str | Path) -> Ended:
    """Run build_index within this process; it starts and stops Spark's session itself, or needs none."""
    use_own_session()
    return run_here(build_index, *arguments)


# Jobs, and commands of `kidx`, within this process.
accept_here: RunHere = partial(_job_here, accept)
build_here: RunHere = partial(_job_here, build_index)
compact_here: RunHere = partial(_job_here, compact_index)
fleet_here: RunHere = partial(_job_here, fleet)
forget_here: RunHere = partial(_job_here, forget_source)
recover_here: RunHere = partial(_job_here, recover)
repair_tiered_here: RunHere = partial(_job_here, repair_tiered)
report_here: RunHere = partial(_job_here, report)
retention_here: RunHere = partial(_job_here, retention)
seek_here: RunHere = partial(_job_here, seek)
verify_here: RunHere = partial(_job_here, verify_index)
verify_tiered_here: RunHere = partial(_job_here, verify_tiered)
kidx_here: RunHere = partial(run_here, kidx)
kidx_build_here: RunHere = partial(run_here, kidx_build)
kidx_compact_here: RunHere = partial(run_here, kidx_compact)
kidx_report_here: RunHere = partial(run_here, kidx_report)
kidx_retention_here: RunHere = partial(run_here, kidx_retention)
kidx_seek_here: RunHere = partial(run_here, kidx_seek)
kidx_tables_here: RunHere = partial(run_here, kidx_tables)


def through_a_metastore(run: RunHere) -> RunHere:
    """A job whose `--catalog` is the directory of a database: Spark reads and commits there."""

    def run_there(*arguments: str | Path) -> Ended:
        at = arguments.index("--catalog")
        name = f"kidx_{hashlib.sha256(os.fsencode(arguments[at + 1])).hexdigest()[:16]}"
        use_shared_session()
        with session("test") as spark:
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {name} LOCATION '{arguments[at + 1]}'")
        return run(*arguments[:at], "--database", name, *arguments[at + 2 :])

    return run_there


def start(*arguments: str | Path, job: str = "build_index") -> subprocess.Popen[str]:
    command = [str(PROJECT / "spark-submit.sh"), job, *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=clean_environment(),
    )


def build(*arguments: str | Path) -> Ended:
    process = start(*arguments)
    out, err = process.communicate()
    return Ended(process.returncode, out, without_progress(err))


def run_submit(*arguments: str | Path, cwd: Path | None = None, variables: Mapping[str, str] = NO_VARIABLES) -> Ended:
    """Run ./spark-submit.sh to its end, with more variables in its environment."""
    ended = subprocess.run(
        [PROJECT / "spark-submit.sh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**clean_environment(), **variables},
    )
    return Ended(ended.returncode, ended.stdout, without_progress(ended.stderr))


def printed(*arguments: str | Path, variables: Mapping[str, str] = NO_VARIABLES) -> str:
    """The command that ./spark-submit.sh --dry-run prints."""
    ended = run_submit("--dry-run", *arguments, variables=variables)
    assert ended.code == 0, ended
    return ended.out


def clean_environment() -> dict[str, str]:
    """This process's environment without the variables that a session of this process has added."""
    added = ("SPARK_", "PYSPARK_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(added)}


def rows(catalog: Path, sql: str) -> list[dict[str, Any]]:
    """Ask the catalog's tables with a Delta reader that is not Spark."""
    query = QueryBuilder()
    for table in TABLES:
        query = query.register(table.name, DeltaTable(catalog / table.name))
    return pyarrow.table(query.execute(sql).read_all()).to_pylist()


class Place:
    """The place of a build's results, and their state."""

    def __init__(self, directory: Path, log_dir: Path, settings: Path = SETTINGS_FILE) -> None:
        self.index_dir, self.catalog = directory / "index", directory / "catalog"
        self.arguments: tuple[str | Path, ...] = (
            *("--source", f"broker={log_dir}", "--settings", settings),
            *("--index-dir", self.index_dir, "--catalog", self.catalog, "--json"),
        )

    def state(self) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
        """Every index file, and every row without values that differ in each run."""
        segments = rows(self.catalog, "SELECT * FROM segments ORDER BY topic, partition, base_offset")
        for row in segments:
            row["index_directory"] = str(Path(row["index_directory"]).relative_to(self.index_dir))
            del row["build_id"]
        return tree(self.index_dir, but=(".kidx-",)), segments

    def recorded(self) -> set[str]:
        """The logs that have a row in the catalog now; none before there is a table."""
        with contextlib.suppress(Exception):  # the table is being made
            return {row["log_path"] for row in rows(self.catalog, "SELECT log_path FROM segments")}
        return set()
