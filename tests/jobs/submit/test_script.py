"""The script in a project whose set-up and job are stand-ins: which Python it takes, what it becomes, how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.terminal.exit_codes import ExitCode
from tests.support.spark.jobs import PROJECT, clean_environment, printed, run_submit

#: In place of a job: says what it is, and ends as asked.
_JOB: Final = """#!/usr/bin/env bash
echo "$$ $(ps -o pgid= -p $$)"
grep SigIgn /proc/self/status
printf '%s\\n' "$PYTHONSAFEPATH" "$PYTHONPATH" "$@"
eval "${END_BY-}"
"""
_SET_UP: Final = """#!/usr/bin/env bash
echo "set up: $*" >&2
eval "${SET_UP-}"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all that the script reads, and a set-up that says that it is called."""
    directory = tmp_path_factory.mktemp("some where") / "project"
    for name in ("jobs", "kidxlib"):
        shutil.copytree(PROJECT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("spark-submit.sh", "pyproject.toml"):
        shutil.copy2(PROJECT / name, directory)
    _script(directory / "job", _JOB)
    _script(directory / "setup.sh", _SET_UP)
    (directory / ".venv" / "bin").mkdir(parents=True)
    (directory / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return directory


@pytest.fixture
def fresh(project: Path, tmp_path: Path) -> Path:
    """The same before anything is set up, and a directory `bin` beside it, with nothing but what a shell script
    needs.
    """
    directory = tmp_path / "fresh"
    shutil.copytree(project, directory, symlinks=True, ignore=shutil.ignore_patterns(".venv", "__pycache__"))
    (tmp_path / "bin").mkdir()
    for name in ("bash", "env", "dirname", "readlink"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    return directory


def _ignored(*also: signal.Signals) -> str:
    """What a process that this one starts ignores, as Linux tells it: bits from SIGHUP on.

    A test before this one, or who runs the tests, can have left one ignored. SIGPIPE and SIGXFSZ are Python's own:
    `subprocess` takes them back.
    """
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn:"))
    name, mask = line.split()
    ignored = {number for number in signal.valid_signals() if int(mask, 16) >> number - 1 & 1}
    ignored = ignored - {signal.SIGPIPE, signal.SIGXFSZ} | set(also)
    return f"{name}\t{sum(1 << number - 1 for number in ignored):016x}"


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _environment(project: Path, **variables: str) -> dict[str, str]:
    own = {"PYSPARK_DRIVER_PYTHON": str(project / "job"), "PYTHONPATH": "/mine"}
    return {**clean_environment(), **own, **variables}


def _run(
    project: Path, *words: str | bytes, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [project / "spark-submit.sh", *words],
        capture_output=True,
        check=False,
        cwd=cwd,
        env=_environment(project, **variables),
    )


def _start(project: Path, *words: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [project / "spark-submit.sh", *words], stderr=subprocess.PIPE, start_new_session=True, **more
    )


def test_the_job_takes_the_scripts_place(project: Path) -> None:
    """Its process, its group and its signals, but those that are ignored: whoever starts the script ends the job."""
    with _start(project, "seek", "a b", "", stdout=subprocess.PIPE, env=_environment(project)) as process:
        out, err = process.communicate()
    pid, group, *rest = out.decode().split(maxsplit=2)
    assert [pid, group] == [str(process.pid)] * 2
    assert rest[0].splitlines() == [_ignored(), "1", f"{project}:/mine", "-m", "jobs.seek", "a b", ""]
    assert (process.returncode, err) == (0, b"set up: job\n")


@pytest.mark.parametrize(
    ("end", "code"), [("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM), ("kill -KILL $$", -signal.SIGKILL)]
)
def test_the_jobs_end_is_the_scripts(project: Path, end: str, code: int) -> None:
    assert _run(project, "seek", END_BY=end).returncode == code


def test_a_signal_that_is_ignored_stays_so(project: Path) -> None:
    """As nohup wants it, and a shell of what it starts in the background."""
    command = f"trap '' HUP INT; exec '{project}/spark-submit.sh' seek"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env=_environment(project))
    assert ended.stdout.decode().splitlines()[1] == _ignored(signal.SIGHUP, signal.SIGINT)


@pytest.mark.parametrize(("end", "code"), [("exit 2", 2), ("kill -KILL $$", 128 + signal.SIGKILL)])
@pytest.mark.parametrize("words", [["seek"], ["seek", "--help"], ["--dry-run", "seek"], ["package"]])
def test_a_set_up_that_fails_is_the_end(project: Path, words: Sequence[str], end: str, code: int) -> None:
    ended = _run(project, *words, SET_UP=end)
    assert (ended.returncode, ended.stdout) == (code, b"")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(b"set up: ")


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_nothing_is_said(project: Path, signal_: signal.Signals) -> None:
    """To all processes, as a terminal sends it, amid set-up."""
    environment = _environment(project, SET_UP="sleep 60")
    with _start(project, "seek", env=environment, preexec_fn=_heed_interrupts) as process:
        assert process.stderr is not None and process.stderr.readline() == b"set up: job\n"
        os.killpg(process.pid, signal_)
        assert (process.stderr.read(), process.wait()) == (b"", -signal_)


def _heed_interrupts() -> None:
    """As from a terminal: a shell ignores them in what it runs in the background, as it may run these tests."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_questions_need_no_set_up(project: Path) -> None:
    for words in (["--help"], ["-h"], ["--version"], ["--dry-run", "--help"], []):
        ended = _run(project, *words)
        said, other = (ended.stdout, ended.stderr) if words else (ended.stderr, ended.stdout)
        assert (ended.returncode, other) == (ExitCode.OK if words else ExitCode.USAGE, b""), ended
        assert said.startswith((b"Usage: ./spark-submit.sh ", b"kidx ")), ended


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["sekk"], ExitCode.USAGE, "spark-submit.sh: no such job: sekk; did you mean seek? there are: accept "),
        (["--in-image"], ExitCode.USAGE, "spark-submit.sh: --in-image: nothing; expected"),
        (
            ["--dry-run", "package"],
            ExitCode.USAGE,
            "spark-submit.sh: package has no such option; there are --directory and --release",
        ),
        (["seek", "--", "--jars"], ExitCode.USAGE, "set up: job\nspark-submit.sh: --jars needs a value"),
        (["seek", "--", "-h"], ExitCode.USAGE, "set up: job\nspark-submit.sh: -h after -- is spark-submit's: "),
    ],
)
def test_wrong_options_are_one_line(project: Path, words: list[str], code: int, said: str) -> None:
    ended = _run(project, *words)
    assert (ended.returncode, ended.stdout) == (code, b"")
    assert ended.stderr.decode().startswith(said) and ended.stderr.count(b"\n") == said.count("\n") + 1


def test_a_jobs_help_needs_packages_alone(project: Path, tmp_path: Path) -> None:
    """What stands before it is kept: the job's own options may be wrong."""
    python = project / ".venv" / "bin" / "python"
    python.rename(tmp_path / "python")
    try:
        _script(
            python,
            f'#!/bin/sh\ncase $1 in -I) exec "{sys.executable}" "$@" ;; esac\nprintf "%s\\n" "$PYTHONPATH" "$@"\n',
        )
        helped = _run(project, "seek", "--offset", "-h", "--help", "--", "x")
        packed = _run(project, "package", "--directory", "x", "--", "y")
    finally:
        (tmp_path / "python").rename(python)
    assert helped.stderr == packed.stderr == b"set up: venv\n"
    assert helped.stdout.decode().splitlines() == [f"{project}:/mine", "-m", "jobs.seek", "--offset", "--help"]
    package = [str(project), "-m", "jobs.common.packages", "--directory", "x", "--", "y"]
    assert packed.stdout.decode().splitlines() == package


def test_a_job_that_cannot_be_started(project: Path) -> None:
    ended = _run(project, "seek", PYSPARK_DRIVER_PYTHON="/no/such/python")
    assert ended.returncode == 127 and b"/no/such/python" in ended.stderr and b"Traceback" not in ended.stderr


def test_words_that_are_no_text_come_out_as_they_came_in(project: Path) -> None:
    word = b"\xff \xc3\xbc"
    for locale in ("C", "C.UTF-8"):
        printed = _run(project, "--dry-run", "seek", word, LC_ALL=locale)
        assert printed.stdout.endswith(b" -m jobs.seek '" + word + b"'\n"), printed
        assert _run(project, "seek", word, LC_ALL=locale).stdout.endswith(b"\n" + word + b"\n")
        assert _run(project, word, LC_ALL=locale).stderr.startswith(b"spark-submit.sh: no such job: " + word + b";")


def test_output_that_nobody_takes(project: Path) -> None:
    with _start(project, "--help", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None and (process.stderr.read(), process.wait()) == (b"", -signal.SIGPIPE)
    with open("/dev/full", "wb") as full, _start(project, "--help", stdout=full) as process:
        _, err = process.communicate()
    assert (process.returncode, err) == (ExitCode.FAILED, b"spark-submit.sh: No space left on device\n")


def test_modules_of_the_caller_are_not_taken_for_its_own(project: Path, tmp_path: Path) -> None:
    """Neither those of the directory where it is called, nor those of PYTHONPATH; nor is PYTHONHOME looked at."""
    for name in ("jobs", "kidxlib", "signal", "typing", "ast", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the caller')")
    foreign = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/no/such", "PYTHONSTARTUP": f"{tmp_path}/jobs.py"}
    ended = _run(project, "--help", cwd=tmp_path, **foreign)
    assert (ended.returncode, ended.stderr) == (0, b"") and b"\n  seek " in ended.stdout
    assert _run(project, "seek", cwd=tmp_path, **foreign).returncode == 0


def test_who_asks_for_help_waits_for_few_modules(project: Path) -> None:
    """These took as long as all else together."""
    script = str(project / "jobs" / "common" / "submit" / "__main__.py")
    command = [sys.executable, "-I", "-S", "-X", "importtime", script, "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "jobs.common.submit.main" in imported
    assert imported & {"typing", "ast", "re", "dataclasses", "contextlib", "jobs.common.submit.launch"} == set()


@pytest.mark.parametrize("how", ["by a link", "by its name", "by a relative path", "by bash"])
def test_it_is_found_wherever_it_is_called(project: Path, tmp_path: Path, how: str) -> None:
    """Two links, one of them relative; and CDPATH, which makes `cd` go elsewhere, and say so."""
    (tmp_path / "first").symlink_to(project / "spark-submit.sh")
    (tmp_path / "second").symlink_to("first")
    (tmp_path / "jobs").mkdir()
    command, cwd = {
        "by a link": (["./second"], tmp_path),
        "by its name": (["second"], tmp_path.parent),
        "by a relative path": (["jobs/../spark-submit.sh"], project),
        "by bash": (["bash", "spark-submit.sh"], project),
    }[how]
    variables = {"CDPATH": f"{tmp_path}:{project.parent}", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment = _environment(project, **variables)
    ended = subprocess.run(
        [*command, "--dry-run", "seek"], capture_output=True, check=False, cwd=cwd, env=environment, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "set up: job\n")
    assert f"'PYTHONPATH={project}:/mine'" in ended.stdout


@pytest.mark.parametrize("name", ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "KIDX_PYTHON"])
def test_before_set_up_any_python_does_that_is_new_enough(fresh: Path, name: str) -> None:
    """Beside others that are too old, or a version manager's stubs. Nothing is made, and nothing is set up."""
    path = fresh.parent / "bin"
    for other in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        _script(path / other, "#!/bin/sh\necho this is no Python 3.11 >&2\nexit 1\n")
    variables = {"KIDX_PYTHON": "no-such-python"}
    if name in variables:
        variables[name] = sys.executable
    else:
        (path / name).unlink()
        (path / name).symlink_to(sys.executable)
    before = sorted(fresh.rglob("*"))
    ended = _run(fresh, "--help", cwd=path, PATH=str(path), **variables)
    assert (ended.returncode, ended.stderr) == (0, b"") and b"\n  seek " in ended.stdout
    assert sorted(fresh.rglob("*")) == before


def test_without_any_python_it_is_set_up_that_says_so(fresh: Path) -> None:
    ended = _run(fresh, "--help", PATH=str(fresh.parent / "bin"), SET_UP="echo no Python >&2; exit 2")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, b"", b"set up: venv\nno Python\n")


def test_what_only_set_up_finds_is_taken_then(fresh: Path) -> None:
    """As a KIDX_PYTHON that is a path from the project's directory on."""
    variables = {"PATH": f"{fresh.parent}/bin", "PYTHON": sys.executable}
    ln = f"{shutil.which('mkdir')} -p '{fresh}/.venv/bin'; {shutil.which('ln')} -s $PYTHON '{fresh}/.venv/bin/python'"
    ended = _run(fresh, "--version", cwd=fresh, SET_UP=ln, **variables)
    assert (ended.returncode, ended.stderr) == (0, b"set up: venv\n") and ended.stdout.startswith(b"kidx ")


def words_of(command: str) -> list[str]:
    """A printed command's words, as bash reads them."""
    script = f"words=({command})\nprintf '%s\\0' \"${{words[@]}}\""
    read = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return read.stdout.split("\0")[:-1]


def test_the_printed_command_does_what_the_script_does(tmp_path: Path) -> None:
    arguments = ("build_index", "--dry-run", "--json", "--sample", "--catalog", tmp_path / "no catalog")
    command = printed(*arguments)
    by_hand = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=clean_environment()
    )
    by_script = run_submit(*arguments, cwd=tmp_path)
    assert by_script.code == ExitCode.OK and by_script.json["to_read"] == 12, by_script
    assert (by_hand.returncode, by_hand.stdout) == (by_script.code, by_script.out), by_hand.stderr


def test_nothing_is_started() -> None:
    """No Python of the job and no Java: both would fail here."""
    command = printed(
        "build_index",
        "--",
        "--conf",
        "spark.pyspark.driver.python=/no/such/python",
        variables={"SPARK_HOME": "/no/spark"},
    )
    assert words_of(command)[-3:] == ["/no/such/python", "-m", "jobs.build_index"]
    assert f"PYTHONPATH={PROJECT}" in words_of(command)


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("script", ["spark-submit.sh", "setup.sh", "test.sh"])
def test_help_is_shown_at_once(script: str, flag: str, tmp_path: Path) -> None:
    """Of a fresh clone, where nothing is set up: nothing is installed, and nothing is made."""
    for name in ("spark-submit.sh", "setup.sh", "test.sh"):
        shutil.copy2(PROJECT / name, tmp_path)
    for name in ("jobs", "kidxlib"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(tmp_path.rglob("*"))
    ended = subprocess.run([tmp_path / script, flag], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert script in ended.stdout and "Traceback" not in ended.stdout
    assert sorted(tmp_path.rglob("*")) == before
