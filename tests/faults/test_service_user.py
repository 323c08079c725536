"""`kidx` for a user that has no home and may write neither the installation nor what it reads, as services have it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kidxlib
from kidxlib.jit.compiler import DIRECTORY, TemporaryLocator
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults import disks
from tests.faults.trees import small_log, snapshot, write_log
from tests.support.restored import PARTITION, formatted_log_dir, killed_log_dir
from tests.support.spark.jobs import rows
from tests.support.terminal import without_progress

_USER = 65534
_AS_NOBODY = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "--inh-caps=-all")
_LIBRARY = Path(kidxlib.__file__).parent


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the user may enter: Python and this library, which nobody may write, a log dir to be read, and a
    directory of the user's own.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        root = Path(directory)
        root.chmod(0o755)
        for number in range(2):
            write_log(root / "kafka-logs" / f"topic-{number}", 0, small_log())
        (root / "own").mkdir()
        _bring_compiled_code(root)
        for path in (root / "own", *(root / "own").rglob("*")):
            os.chown(path, _USER, _USER)
        for name, installed in _INSTALLATION.items():
            stack.enter_context(disks.mounted(root / name, installed, "none", "bind,ro"))
        yield root


#: By name below `place`.
_INSTALLATION = {"python": sys.base_prefix, "packages": sysconfig.get_path("purelib"), "opt": str(_LIBRARY.parent)}


def _bring_compiled_code(root: Path) -> None:
    """Where an earlier run of the user's has left it: to compile everything takes half a minute."""
    own = root / "own" / f"{DIRECTORY}-{_USER}"
    for compiled in {index.parent for index in _LIBRARY.rglob("__pycache__/*.nbi")}:
        file = root / "opt" / compiled.parent.relative_to(_LIBRARY.parent) / "kernel.py"
        subpath = TemporaryLocator.get_suitable_cache_subpath(str(file))  # type: ignore[no-untyped-call]
        shutil.copytree(compiled, own / subpath, ignore=shutil.ignore_patterns("*.pyc"))
    own.chmod(0o700)


def _kidx(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = "from kidxlib.cli.main import main; main()"
    python = root / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return subprocess.run(
        [*_AS_NOBODY, python, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        # None of root's variables: a temporary directory alone.
        env={
            "HOME": "/nonexistent",
            "LD_LIBRARY_PATH": f"{root}/python/lib",
            "PATH": os.defpath,
            "PYTHONPATH": f"{root}/opt:{root}/packages",
            "PYTHONSAFEPATH": "1",
            "TMPDIR": f"{root}/own",
        },
    )


def test_all_commands_work_for_a_service_user(place: Path) -> None:
    """The bytes are there, and nothing is written where the user may not write: it could not be."""
    log_dir, index_dir = place / "kafka-logs", place / "own" / "index"
    before = snapshot(log_dir)
    log = log_dir / "topic-0" / f"{0:020d}.log"
    for arguments in (
        ("build", log_dir, "--index-dir", index_dir),
        ("verify", log_dir, "--index-dir", index_dir, "--shutdown", "clean"),
        ("seek", log_dir, "--topic", "topic", "--partition", "0", "--offset", "7", "--index-dir", index_dir),
        ("dump", log),
    ):
        ended = _kidx(place, *arguments)
        assert (ended.returncode, without_progress(ended.stderr)) == (ExitCode.OK, ""), ended
    assert len(list(index_dir.rglob("*.*index"))) == 4
    assert snapshot(log_dir) == before


def test_what_the_user_may_not_read_or_write_is_one_line(place: Path) -> None:
    """Bug 16: a partition whose directory may not be listed; logs, index directories and locks without permission."""
    log_dir = place / "kafka-logs"
    (log_dir / "topic-0").chmod(0o700)
    (place / "closed").mkdir(mode=0o700)
    write_log(place / "listed" / "topic-0", 0, small_log())
    (place / "listed").chmod(0o744)
    seek = ("seek", log_dir, "--topic", "topic", "--offset", "7", "--partition")
    failed = {
        (*seek, "0"): ExitCode.USAGE,
        (*seek, "1", "--index-dir", place / "closed"): ExitCode.USAGE,
        ("seek", place / "closed", *seek[2:], "0"): ExitCode.USAGE,
        ("seek", "--catalog", place / "closed", *seek[2:], "0"): ExitCode.USAGE,
        ("dump", log_dir / "topic-0" / f"{0:020d}.log"): ExitCode.USAGE,
        ("build", place / "closed", "--index-dir", place / "own" / "index"): ExitCode.USAGE,
        ("build", log_dir / "topic-1", "--index-dir", place / "closed" / "index"): ExitCode.FAILED,
        ("build", log_dir, "--in-place"): ExitCode.USAGE,
        ("verify", place / "closed"): ExitCode.USAGE,
        ("compare", place / "listed", log_dir): ExitCode.USAGE,
        ("recover", place / "listed"): ExitCode.USAGE,
    }
    for arguments, code in failed.items():
        ended = _kidx(place, *arguments)
        lines = [line for line in without_progress(ended.stderr).splitlines() if not line.startswith("warning: ")]
        assert ended.returncode == code and len(lines) == 1 and lines[0].startswith("error: "), ended


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        (PARTITION, 0o700),
        (PARTITION, 0o744),
        (f"{PARTITION}/{PARTITION_METADATA}", 0o600),
        (f"{PARTITION}/{0:020d}.log", 0o600),
        (META_PROPERTIES, 0o600),
        ("", 0o744),
    ],
)
def test_a_source_that_the_user_may_not_read_is_not_restored(place: Path, path: str, mode: int) -> None:
    """Whatever may not be read would count as lost, or as a directory of an unknown topic. The user is told who may."""
    old, new = killed_log_dir(place, 1), formatted_log_dir(place / "own", 1)
    os.chown(old / path, _USER + 1, -1)
    (old / path).chmod(mode)
    restore = ("restore", old, "--broker", f"1={new}", "--controller", new, "--topics")
    ended = _kidx(place, *restore, ".*")
    whom = "run this as its owner, or as root" if not path else f"run this as user {_USER + 1}, to whom it belongs"
    assert ended.returncode == ExitCode.USAGE and ended.stderr.startswith(f"error: {old / path}: "), ended
    assert whom in ended.stderr and "--mend" not in ended.stderr, ended
    ended = _kidx(place, *restore, "other")
    of_topics = path.startswith(PARTITION)
    assert ("--topics other: no topic in the sources" in ended.stderr) == of_topics, "others' need not be readable"


def test_directories_that_the_user_may_not_list_keep_their_rows(place: Path) -> None:
    """A catalog, then two directories whose modes are changed, and a new one; then the modes are as before."""
    log_dir, catalog = place / "kafka-logs", place / "own" / "catalog"
    places = ("--source", f"it={log_dir}", "--catalog", catalog, "--json")
    build = ("build", *places, "--index-dir", place / "own" / "index")
    assert _kidx(place, *build).returncode == ExitCode.OK
    query = "SELECT * FROM {} WHERE partition < 2 ORDER BY partition"
    before = {table: rows(catalog, query.format(table)) for table in ("segments", "partitions")}
    write_log(log_dir / "topic-2", 0, small_log())
    for partition, mode in ((0, 0o700), (1, 0o744)):
        (log_dir / f"topic-{partition}").chmod(mode)
    unlistable = [{"directory": f"{log_dir}/topic-{each}", "reason": "Permission denied"} for each in (0, 1)]

    once = ("build", log_dir, "--index-dir", place / "own" / "once", "--json")
    for arguments in (build, ("verify", *places), once):
        ended = _kidx(place, *arguments)
        warnings = [line for line in without_progress(ended.stderr).splitlines() if line.startswith("warning: ")]
        assert warnings == [
            f"warning: {each['directory']}: skipped: it cannot be listed: Permission denied" for each in unlistable
        ], ended
        assert ended.returncode == ExitCode.PROBLEMS_FOUND, ended
        found = json.loads(ended.stdout)
        assert (found["unlistable_count"], found["unlistable"]) == (2, unlistable)
    assert {table: rows(catalog, query.format(table)) for table in before} == before
    assert len(rows(catalog, "SELECT * FROM segments")) == 3 and len(list((place / "own" / "once").iterdir())) == 1

    for partition in (0, 1):
        (log_dir / f"topic-{partition}").chmod(0o755)
    ended = _kidx(place, *build)
    assert (ended.returncode, json.loads(ended.stdout)["unchanged"]) == (ExitCode.OK, 3)
