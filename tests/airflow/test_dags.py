"""The DAGs in a real Airflow, of an environment of its own, with the real operator.

Most runs start an executable in place of spark-submit that does what a job does on one machine: it is `kidx`, with its
real exit codes and its real output. The run that docs/airflow.md shows is with Spark itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.docs.pages import PROJECT, blocks
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import clean_environment, rows

PAGE: Final = "docs/airflow.md"
DAGS: Final = PROJECT / "airflow_dags"
AIRFLOW: Final = PROJECT / ".venv-airflow"
#: Nothing here takes as long; what does, hangs.
SECONDS_MAX: Final = 900
RUN_AFTER: Final = "2026-11-25T00:00:00+00:00"
PLAN: Final = "20261125T000000Z-0123abcd"

#: In place of spark-submit: notes how it was called, and does what the scenario has for this job and try.
SUBMIT: Final = """#!/bin/sh
for word; do case $word in */jobs/*.py) job=${word##*/} ;; esac; done
here=HERE
echo "$@" >> "$here/$job.calls"
env > "$here/environment"
script=$here/$job.$(wc -l < "$here/$job.calls")
[ -f "$script" ] || script=$here/$job
exec sh "$script"
"""


@dataclass(frozen=True)
class Run:
    """How a run of a DAG ended.

    Attributes:
        tasks: state and number of tries of each task.
        log: what Airflow logged.
    """

    state: str
    tasks: dict[str, list[Any]]
    events: list[list[str]]
    log: str

    @property
    def states(self) -> dict[str, str]:
        return {name: state for name, (state, _) in self.tasks.items()}


def _audited(never: int) -> str:
    """A command that ends as an audit does, which has not come to some partitions."""
    return f"echo '{json.dumps({'job': 'verify_index', 'counts': {'partitions_never_audited': never}})}'"


class Scenarios:
    """Catalogs, each with jobs that do what its scenario says, and the runs of their DAGs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._catalogs: dict[str, str] = {}
        self._runs: list[dict[str, Any]] = []
        self._names: list[str] = []

    def home(self, catalog: str) -> Path:
        return self.root / catalog

    def catalog(self, name: str, more_keys: str = "", **jobs: str) -> None:
        """Add a catalog.

        Args:
            more_keys: of its table.
            jobs: the command that each job is, by the job's name, `__2` after it for the second try.
        """
        submit = self.home(name) / ".venv" / "bin" / "spark-submit"
        submit.parent.mkdir(parents=True)
        submit.write_text(SUBMIT.replace("HERE", str(self.home(name))))
        submit.chmod(0o755)
        for job, command in jobs.items():
            job, _, number = job.partition("__")
            (self.home(name) / f"{job}.py{number and '.'}{number}").write_text(command)
        self._catalogs[name] = (
            f'[{name}]\ncatalog = "catalog"\nindex_dir = "/indexes"\nsources = ["a=/logs/a", "b=s3a://logs/b"]\n'
            f'home = "{self.home(name)}"\nretry_minutes = 0\nconf = {{ "spark.executor.memory" = "4g" }}\n{more_keys}\n'
        )

    def run(self, name: str, dag_id: str, **how: Any) -> None:
        self._names.append(name)
        self._runs.append({"dag_id": dag_id, "catalogs": str(self._file_of(dag_id.split("_")[1])), **how})

    def _file_of(self, catalog: str) -> Path:
        """A file of that catalog and of one other: each run of Airflow writes all DAGs of all catalogs down anew."""
        names = [*self._catalogs]
        path = self.home(catalog) / "catalogs.toml"
        path.write_text(self._catalogs[catalog] + self._catalogs[names[names.index(catalog) - 1]])
        return path

    def ended(self) -> dict[str, Run]:
        """Run all that was asked for, in that order."""
        catalogs, result = self.root / "catalogs.toml", self.root / "result.json"
        catalogs.write_text("\n".join(self._catalogs.values()))
        output = in_airflow(self.root, result, self._runs, KIDX_CATALOGS=str(catalogs))
        logs = re.split(r"^RUN \d+\n", output, flags=re.MULTILINE)[1:]
        found = json.loads(result.read_text())["runs"]
        return {
            name: Run(each["state"], each["tasks"], each["events"], log)
            for name, each, log in zip(self._names, found, logs, strict=True)
        }

    def calls(self, catalog: str, job: str) -> list[str]:
        """How the job was submitted, a line for each time."""
        calls = self.home(catalog) / f"{job}.py.calls"
        return calls.read_text().splitlines() if calls.exists() else []


def in_airflow(
    home: Path, result: Path, runs: list[dict[str, Any]], catalogs: Iterable[Path] = (), **environment: str
) -> str:
    """Run `tests.airflow.in_airflow`: what it printed."""
    process = subprocess.run(
        [AIRFLOW / "bin" / "python", "-m", "tests.airflow.in_airflow", result, *catalogs],
        input=json.dumps(runs),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={
            **clean_environment(),
            "PYTHONPATH": str(PROJECT),
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_KIDX_SPARK": '{"conn_type": "spark", "host": "local[2]"}',
            **environment,
        },
    )
    if process.returncode:
        pytest.fail(f"it ended with {process.returncode}:\n{process.stdout}", pytrace=False)
    return process.stdout


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return Scenarios(tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def ended(scenarios: Scenarios) -> dict[str, Run]:
    """All runs, in one Airflow: each start costs seconds."""
    kidx = f"{PROJECT}/.venv/bin/kidx"
    root = scenarios.root
    shutil.copytree(SAMPLES, root / "logs")
    os.truncate(root / "logs" / "plain-zstd-0" / f"{13697:020d}.log", 466_975 + 100)
    subprocess.run([kidx, "build", SAMPLES, "--index-dir", root / "indexes"], check=True, capture_output=True)
    os.truncate(root / "indexes" / "plain-zstd-0" / f"{0:020d}.timeindex", 24)

    damaged = f"{kidx} build {root}/logs --index-dir {root}/other"
    unsound = f"{kidx} verify {SAMPLES} --index-dir {root}/indexes"
    plan = f"echo 'plan {PLAN}'; echo '│ default │ a table │'; echo 'policy default: 7 of 12 segments go'"
    no_problems = {"build_index": "true", "verify_index": _audited(0), "compact_index": "true"}
    topics = 'topics = "plain-.* (old)"'
    scenarios.catalog("damaged", topics, **no_problems, build_index__1=damaged, build_index__2=damaged)
    scenarios.catalog("unsound", **{**no_problems, "verify_index": unsound})
    scenarios.catalog("wrong", build_index=f"{kidx} build {root}/nowhere --index-dir {root}/other")
    scenarios.catalog("dead", build_index="echo no memory; kill -9 $$")
    hangs = f"echo $$ > {scenarios.home('slow')}/pid; exec sleep {SECONDS_MAX}"
    scenarios.catalog("slow", "retries = 0\ntimeout_hours = 0.0005", build_index=hangs)
    scenarios.catalog(
        "flaky",
        f'{topics}\naudit_bytes = "500GB"',
        build_index="true",
        build_index__1="exit 1",
        build_index__2="exit 1",
        verify_index=_audited(0),
        verify_index__1=_audited(2),
        compact_index="true",
        retention=plan,
    )
    for name in ("damaged", "wrong", "dead", "slow", "flaky"):
        scenarios.run(name, f"kidx_{name}_build", run_after=RUN_AFTER, run_conf={"topics": "plain-.* (old)"})
    for name in ("damaged still", "mended"):
        scenarios.run(name, "kidx_damaged_build")
    scenarios.run("unsound", "kidx_unsound_audit")
    scenarios.run("of one source", "kidx_damaged_audit", run_conf={"sources": ["a=/logs/a"]})
    scenarios.run("in part", "kidx_flaky_audit", run_after=RUN_AFTER)
    scenarios.run("not audited yet", "kidx_flaky_retention", scheduled=True)
    scenarios.run("in full", "kidx_flaky_audit", run_conf={"audit_bytes": ""})
    scenarios.run("audited", "kidx_flaky_retention", scheduled=True, run_conf={"apply": True})
    scenarios.run("not audited again", "kidx_flaky_retention", scheduled=True)
    scenarios.run("planned by hand", "kidx_flaky_retention")
    scenarios.run(
        "applied by hand",
        "kidx_flaky_retention",
        run_after=RUN_AFTER,
        run_conf={
            "apply": True,
            "retention_options": ["--policy", "/p.toml", "--server-properties", "/s"],
            "apply_options": ["--delete-delay", "1s"],
        },
        mark_success_pattern="^approve$",
    )
    scenarios.run("maintained", "kidx_flaky_tables", run_after=RUN_AFTER)
    return scenarios.ended()


#: Files of catalogs with a mistake, and what is said of it.
_WRONG: Final = (
    ('[fleet]\nindex_dir = "/indexes"', "[fleet]: missing: catalog; known: apply_conn_id, "),
    ('[fleet]\ncatalog = "/c"\nindex_dir = ""\nsource = "/logs"', "[fleet]: unknown: source; known: "),
    ('[fleet]\ncatalog = 3\nindex_dir = ""', "[fleet]: catalog: 3: input should be a valid string"),
    (
        '[fleet]\ncatalog = "/c"\nindex_dir = ""\nsources = ["/logs", 7]',
        "[fleet]: sources.1: 7: input should be a valid string",
    ),
    (
        '[fleet]\ncatalog = "/c"\nindex_dir = ""\nretries = "2"',
        "[fleet]: retries: '2': input should be a valid integer",
    ),
    ("fleet = 3", "fleet: 3, expected a table: [fleet]"),
    ('[".."]\ncatalog = "/c"\nindex_dir = ""', "[..]: DAGs are called by it: expected letters, "),
)


@dataclass(frozen=True)
class Loaded:
    """What Airflow makes of the project's own file of catalogs, and what it says to each of the wrong ones.

    Attributes:
        import_errors: by the text of a wrong file, which is called FILE in them.
        log: what Airflow logged.
    """

    found: dict[str, Any]
    import_errors: dict[str, list[str]]
    log: str


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """All in one Airflow, the project's own first: each start costs seconds."""
    directory = tmp_path_factory.mktemp("loaded")
    files = {table: directory / str(number) / "catalogs.toml" for number, (table, _) in enumerate(_WRONG)}
    for table, path in files.items():
        path.parent.mkdir()
        path.write_text(f"{table}\n")
    log = in_airflow(directory, directory / "result.json", [], files.values())
    found = json.loads((directory / "result.json").read_text())
    said = found.pop("import_errors_of")
    errors = {
        table: [error.replace(str(path), "FILE") for error in said[str(path)].values()] for table, path in files.items()
    }
    return Loaded(found, errors, log)


def test_dags_load(loaded: Loaded) -> None:
    """The project's own catalog: four DAGs, read without Spark or jobs, and as docs/airflow.md describes them."""
    found = loaded.found
    assert found["import_errors"] == {}, loaded.log
    assert sorted(Path(file).name for file in found["files"]) == [
        "kidx_audit.py",
        "kidx_build.py",
        "kidx_retention.py",
        "kidx_tables.py",
    ]
    assert found["forbidden"] == []
    dags = found["dags"]
    assert {name: dag["schedule"] for name, dag in dags.items()} == {
        "kidx_sample_audit": "30 1 * * *",
        "kidx_sample_build": "0 * * * *",
        "kidx_sample_retention": "30 3 * * *",
        "kidx_sample_tables": "30 4 * * 0",
    }
    assert {name: [task["id"] for task in dag["tasks"]] for name, dag in dags.items()} == {
        "kidx_sample_audit": ["build", "audit", "audited_all", "no_problems"],
        "kidx_sample_build": ["build", "compact", "report", "no_problems"],
        "kidx_sample_retention": ["audited", "plan", "to_apply", "approve", "apply"],
        "kidx_sample_tables": ["maintain"],
    }
    asset = ["kidx_sample", (PROJECT / "var/airflow/catalog").as_uri()]
    tasks = {task["id"]: task for dag in dags.values() for task in dag["tasks"]}
    assert {name: task["outlets"] for name, task in tasks.items() if task["outlets"]} == {"audited_all": [asset]}
    assert {name: task["inlets"] for name, task in tasks.items() if task["inlets"]} == {"audited": [asset]}
    jobs = {"build", "audit", "compact", "report", "plan", "apply", "maintain"}
    assert {name for name, task in tasks.items() if task["pool"] == "kidx_sample"} == jobs
    assert {name for name, task in tasks.items() if not task["timeout"]} == {"approve"}
    for name in jobs:
        assert {"application_args", "conf", "env_vars"} <= set(tasks[name]["template_fields"])
    for dag in dags.values():
        assert (dag["catchup"], dag["max_active_runs"], dag["tags"]) == (False, 1, ["kidx", "sample"])
        assert (
            "docs/airflow.md" in dag["doc"]
            and not dag["doc"].startswith(" ")
            and {task["owner"] for task in dag["tasks"]} == {"kidx"}
        )
        assert all(len(task["downstream"]) == (task is not dag["tasks"][-1]) for task in dag["tasks"])


@pytest.mark.parametrize(("table", "message"), _WRONG)
def test_a_wrong_key_is_an_import_error(table: str, message: str, loaded: Loaded) -> None:
    """Of each file of DAGs, which names the file of catalogs."""
    errors = loaded.import_errors[table]
    assert len(errors) == 4
    assert all(f"FILE: {message}" in error for error in errors)


def test_a_job_is_submitted_as_its_run_asks(scenarios: Scenarios, ended: dict[str, Run]) -> None:
    """Options word by word, the time of the run, and what spark-submit.sh too gives to spark-submit."""
    home = scenarios.home("flaky")
    common = f"--catalog {home}/catalog --settings {home}/conf/kidx.toml --now {RUN_AFTER} --json-line"
    sources = "--source a=/logs/a --source b=s3a://logs/b --topics plain-.* (old)"
    options = {
        "build_index": f"{sources} --index-dir /indexes",
        "verify_index": f"{sources} --index-dir /indexes --max-bytes 500GB",
        "compact_index": "--topics plain-.* (old) --trim",
    }
    for job, expected in options.items():
        assert scenarios.calls("flaky", job)[0] == (
            f"--master local[2] --conf spark.executor.memory=4g --jars {home}/.jars/delta/*.jar --name {job} "
            f"{home}/jobs/{job}.py {common} {expected}"
        )
    assert scenarios.calls("flaky", "compact_index")[1].endswith(f"{common} --tables --apply")
    environment = (home / "environment").read_text().splitlines()
    python = f"{home}/.venv/bin/python"
    assert {
        f"PYTHONPATH={home}",
        "PYTHONSAFEPATH=1",
        f"PYSPARK_PYTHON={python}",
        f"PYSPARK_DRIVER_PYTHON={python}",
        f"SPARK_CONF_DIR={home}/conf",
    } <= set(environment)


def test_segments_with_problems_fail_the_task_once_and_are_named(scenarios: Scenarios, ended: dict[str, Run]) -> None:
    """Exit code 3 of a build: no second try, all else is done, and the run fails at its end. The callback says what the
    page shows. So it goes at each run until the damage is mended.
    """
    run = ended["damaged"]
    for name in ("damaged", "damaged still"):
        assert (ended[name].state, ended[name].states) == (
            "failed",
            {"build": "failed", "compact": "success", "no_problems": "failed"},
        )
        assert ended[name].tasks["build"][1] == 1
    assert (ended["mended"].state, set(ended["mended"].states.values())) == ("success", {"success"})
    assert [len(scenarios.calls("damaged", job)) for job in ("build_index", "compact_index")] == [4, 3]
    (shown,) = (block.text for block in blocks(PAGE) if block.text.startswith("kidx_fleet_build.build of "))
    for of_page, of_test in (
        ("kidx_fleet", "kidx_damaged"),
        ("scheduled__", "manual__"),
        ("/mnt/b1/kafka-logs", f"{scenarios.root}/logs"),
    ):
        assert of_page in shown
        shown = shown.replace(of_page, of_test)
    assert shown.rstrip() in run.log, run.log


def test_an_audit_that_finds_something_broken_does_not_update_the_asset(
    scenarios: Scenarios, ended: dict[str, Run]
) -> None:
    """Exit code 3 of an audit, which prints more after the lines that count than the provider keeps."""
    run = ended["unsound"]
    assert run.state == "failed"
    assert run.states == {
        "build": "success",
        "audit": "failed",
        "audited_all": "upstream_failed",
        "no_problems": "failed",
    }
    assert len(scenarios.calls("unsound", "verify_index")) == 1 and run.events == []
    assert re.search(
        r"kidx_unsound_audit\.audit of \S+ failed: verify_index: some segments have problems\n"
        r"  broken: plain-zstd-0 0 \.timeindex: wrong-largest-timestamp: ",
        run.log,
    ), run.log


def test_an_audit_of_less_than_the_catalog_does_not_update_the_asset(
    scenarios: Scenarios, ended: dict[str, Run]
) -> None:
    """Who waits for the asset would take the rest for audited, too: of a run of other sources, and of one with a budget
    of bytes as long as there are partitions to which no audit has come.
    """
    for name, why in (
        ("of one source", "this run audited by other sources than the catalog's table has"),
        ("in part", "2 partitions were never audited; the next runs go on"),
    ):
        run = ended[name]
        assert run.events == [] and run.state == "success"
        assert {name for name, state in run.states.items() if state != "success"} == {"audited_all"}
        assert f"is not updated: {why}" in run.log
    assert ended["in full"].events == [["kidx_flaky", "kidx_flaky_audit", "audited_all"]]
    assert "--max-bytes" not in scenarios.calls("flaky", "verify_index")[1], (
        "a run may be given another budget, or none"
    )


def test_wrong_options_are_not_tried_again(scenarios: Scenarios, ended: dict[str, Run]) -> None:
    """And nothing after it runs: it has done nothing to go on from."""
    run = ended["wrong"]
    assert len(scenarios.calls("wrong", "build_index")) == 1 and scenarios.calls("wrong", "compact_index") == []
    assert run.states == {"build": "failed", "compact": "skipped", "no_problems": "failed"}
    assert run.state == "failed" and "build: did not come to its end" in run.log
    assert re.search(
        rf"failed: build_index: options or inputs are wrong\n  error: {scenarios.root}/nowhere: ", run.log
    ), run.log


def test_what_failed_otherwise_is_tried_again(scenarios: Scenarios, ended: dict[str, Run]) -> None:
    """A job that is killed ends after three tries; one that gets well again goes on."""
    dead = ended["dead"]
    assert (dead.state, dead.states["build"], dead.states["compact"]) == ("failed", "failed", "skipped")
    assert len(scenarios.calls("dead", "build_index")) == 3
    assert re.search(
        r"kidx_dead_build\.build of \S+ failed: Cannot .*\. Error code is: -9\.\n.*\nno memory", dead.log
    ), dead.log
    flaky = ended["flaky"]
    assert flaky.state == "success" and flaky.tasks["build"] == ["success", 3]
    assert flaky.events == [], "of what was only built nobody knows whether it is right"
    assert "failed: " not in flaky.log


def test_a_job_that_takes_too_long_is_killed(scenarios: Scenarios, ended: dict[str, Run]) -> None:
    assert (ended["slow"].state, ended["slow"].states["build"]) == ("failed", "failed")
    assert not Path("/proc", (scenarios.home("slow") / "pid").read_text().strip()).exists()


def test_a_schedule_plans_only_what_was_audited_since(ended: dict[str, Run]) -> None:
    """And never applies, whatever its params say."""
    skipped = dict.fromkeys(("plan", "to_apply", "approve", "apply"), "skipped")
    for name in ("not audited yet", "not audited again"):
        assert ended[name].state == "success" and ended[name].states == {"audited": "success", **skipped}, name
    assert ended["audited"].states == {
        **dict.fromkeys(("audited", "plan", "to_apply"), "success"),
        **dict.fromkeys(("approve", "apply"), "skipped"),
    }


def test_a_plan_is_applied_by_hand_once_it_is_approved(scenarios: Scenarios, ended: dict[str, Run]) -> None:
    """The plan of the same run, and none that nobody asked for."""
    assert ended["planned by hand"].states["apply"] == "skipped"
    assert set(ended["applied by hand"].states.values()) == {"success"}
    calls = scenarios.calls("flaky", "retention")
    assert len(calls) == 4 and [call for call in calls[:3] if "--apply" in call] == []
    assert not any("--now" in call for call in calls), "a plan for a time that was given is never applied"
    settings = f"--settings {scenarios.home('flaky')}/conf/kidx.toml"
    described = f"{settings} --json-line --apply --plan {PLAN}"
    assert re.search(rf"{described} --max-plan-age [0-9]+m --server-properties /s --delete-delay 1s$", calls[3]), calls[
        3
    ]


def test_tables_are_maintained(ended: dict[str, Run]) -> None:
    assert ended["maintained"].states == {"maintain": "success"}


def test_the_keys_on_the_page_are_those_of_the_code() -> None:
    page = (PROJECT / PAGE).read_text()
    described = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`.*?`) \|", page[page.index("## Keys") :], re.MULTILINE))
    )
    fields = re.findall(r"^    (\w+): \w", (DAGS / "kidx_dags" / "catalogs.py").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(set(fields) - {"name"})


@pytest.mark.exhaustive("takes three minutes; other runs of the DAGs are in Airflow, with kidx in place of Spark")
def test_the_page_leads_to_a_run_on_spark(tmp_path: Path) -> None:
    """What `Try it` says, as it stands, in a directory that looks like the repository: the jobs' results are there,
    they print what the page shows, and the asset has its row.
    """
    for name in (".venv", ".venv-airflow", ".jars", "conf", "jobs", "kidxlib", "samples"):
        (tmp_path / name).symlink_to(PROJECT / name)
    shutil.copytree(DAGS, tmp_path / "airflow_dags")
    script = tmp_path / "setup.sh"  # a link would not do: it takes the directory where it stands for the repository
    script.write_text(f'#!/bin/sh\nexec "{PROJECT}/setup.sh" "$@"\n')
    script.chmod(0o755)
    page = blocks(PAGE)
    (commands,) = (block.text for block in page if block.language == "shell")
    printed = next(block.text for block in page if block.text.startswith("build 2"))
    ended = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    for line in printed.splitlines():
        shown = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{8}", "…", line)
        assert re.search(".*".join(map(re.escape, shown.split("…"))), ended.stdout), line
    with contextlib.closing(sqlite3.connect(tmp_path / "var" / "airflow" / "home" / "airflow.db")) as database:
        tasks = dict(database.execute("SELECT task_id, state FROM task_instance").fetchall())
        events = database.execute(
            "SELECT name, uri, source_dag_id, source_task_id FROM asset_event JOIN asset ON asset.id = asset_id"
        ).fetchall()
        pools = database.execute("SELECT slots FROM slot_pool WHERE pool = 'kidx_sample'").fetchall()
        run_after = dict(database.execute("SELECT dag_id, run_after FROM dag_run").fetchall())
    catalog = tmp_path / "var" / "airflow" / "catalog"
    done = ("build", "compact", "report", "audit", "audited_all", "no_problems")
    assert tasks == dict.fromkeys(done, "success")
    assert "Kafka segments" in (tmp_path / "var" / "airflow" / "report.html").read_text()
    assert events == [("kidx_sample", catalog.as_uri(), "kidx_sample_audit", "audited_all")]
    assert pools == [(1,)]
    segments = rows(catalog, "SELECT status, interval_source FROM segments")
    assert [row["status"] for row in segments] == ["ok"] * 12
    assert [row["interval_source"] for row in segments].count("compaction") == 7
    findings = rows(catalog, "SELECT verdict, audited_at FROM findings")
    # Beside the index files that were built, the broker's own leader epochs of four partitions.
    assert sorted(row["verdict"] for row in findings) == ["identical"] * (26 + 4) + ["whole"] * 12
    started_at = {row["started_at"] for row in rows(catalog, "SELECT started_at FROM builds")}
    assert started_at == {as_utc(each) for each in run_after.values()}
    assert {row["audited_at"] for row in findings} == {as_utc(run_after["kidx_sample_audit"])}


def as_utc(stored: str) -> datetime:
    """A time as Airflow's SQLite tables hold it."""
    return datetime.fromisoformat(stored).replace(tzinfo=UTC)


def test_a_dag_of_the_page_waits_for_the_catalog(tmp_path: Path) -> None:
    """The example, beside the project's own DAGs: it is scheduled on the very asset that the audit updates."""
    (source,) = (block.text for block in blocks(PAGE) if block.language == "py")
    directory = shutil.copytree(DAGS, tmp_path / "dags")
    (directory / "mine.py").write_text(source)
    (directory / "catalogs.toml").write_text('[sample]\ncatalog = "/mnt/catalog"\nindex_dir = ""\n')
    in_airflow(tmp_path, tmp_path / "result.json", [], AIRFLOW__CORE__DAGS_FOLDER=str(directory))
    dags = json.loads((tmp_path / "result.json").read_text())["dags"]
    (outlet,) = (task["outlets"] for task in dags["kidx_sample_audit"]["tasks"] if task["outlets"])
    assert dags["after_the_audit"]["waits_for"] == outlet
