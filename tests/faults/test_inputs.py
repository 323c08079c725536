"""What `kidx build` is given that it cannot use: one line that says so, or a warning and all the rest is done."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.conftest import Guard
from tests.faults.processes import KIDX, kidx, refused_kidx
from tests.faults.trees import indexes, small_log, snapshot, write_log

_LOG = f"{0:020d}.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a log dir of two partitions and what else is no log dir."""
    for partition in (0, 1):
        write_log(tmp_path / "kafka-logs" / f"topic-{partition}", 0, small_log())
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "topic-0").mkdir(parents=True)
    (tmp_path / "numberless" / "orders").mkdir(parents=True)
    write_log(tmp_path / "orders", 0, small_log())
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("kafka-logs/topic-0")
    return tmp_path


Arguments = Callable[[Path], list[str | Path]]

_REFUSED: dict[str, Arguments] = {
    "no directory": lambda root: ["--index-dir", root / "index"],
    "missing directory": lambda root: [root / "missing", "--index-dir", root / "index"],
    "a file": lambda root: [root / "file", "--index-dir", root / "index"],
    "a log": lambda root: [root / "kafka-logs" / "topic-0" / _LOG, "--index-dir", root / "index"],
    "empty directory": lambda root: [root / "empty", "--index-dir", root / "index"],
    "no segments": lambda root: [root / "hollow", "--index-dir", root / "index"],
    "only directories without number": lambda root: [root / "numberless", "--index-dir", root / "index"],
    "segments in a directory without number": lambda root: [root / "orders", "--index-dir", root / "index"],
    "no such topic": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--topics", "topi"],
    "bad regex": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--topics", "(top"],
    "neither target": lambda root: [root / "kafka-logs"],
    "both targets": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--in-place"],
    "index dir is the source": lambda root: [root / "kafka-logs", "--index-dir", root / "kafka-logs"],
    "index dir in the source": lambda root: [root / "kafka-logs", "--index-dir", root / "kafka-logs" / "a" / "b"],
    "index dir in the source by a link": lambda root: [root / "kafka-logs", "--index-dir", root / "link" / "index"],
    "source in the index dir": lambda root: [root / "kafka-logs", "--index-dir", root],
    "source of a link in the index dir": lambda root: [root / "link", "--index-dir", root / "kafka-logs"],
    "URL": lambda root: [root / "kafka-logs", "--index-dir", "https://bucket/index"],
    "index dir is a file": lambda root: [root / "kafka-logs", "--index-dir", root / "file"],
    "index dir below a file": lambda root: [root / "kafka-logs", "--index-dir", root / "file" / "index"],
    "unknown option": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--fast"],
    "negative interval": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--interval-bytes", "-1"],
    "no number": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--interval-bytes", "4k"],
    "too small an index": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--max-index-bytes", "11"],
    "too many processes": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--processes", "1025"],
    "no process": lambda root: [root / "kafka-logs", "--index-dir", root / "index", "--processes", "0"],
}


@pytest.mark.parametrize("name", _REFUSED)
def test_wrong_options_and_inputs_are_refused_in_one_line(name: str, root: Path, guard: Guard) -> None:
    """The command, which may start no worker, with arguments that cannot work. Nothing is written anywhere."""
    guard(root)
    before = snapshot(root)
    ended = refused_kidx("build", *_REFUSED[name](root))
    ended.assert_one_line(ExitCode.USAGE)
    assert snapshot(root) == before


def test_an_empty_name_is_not_the_current_directory(root: Path, guard: Guard) -> None:
    """An empty DIR in a log dir, and an empty --index-dir in an empty directory."""
    guard(root)
    before = snapshot(root)
    cases: list[tuple[str, list[str | Path]]] = [
        ("kafka-logs", ["", "--index-dir", root / "index"]),
        ("empty", [root / "kafka-logs", "--index-dir", ""]),
    ]
    for here, arguments in cases:
        ended = kidx("build", *arguments, cwd=root / here)
        assert snapshot(root) == before
        ended.assert_one_line(ExitCode.USAGE)


@pytest.mark.parametrize("name", ["compact", "retention", "report"])
def test_a_log_dir_in_place_of_a_catalog_is_told_what_is_read(name: str, root: Path) -> None:
    ended = refused_kidx(name, root / "kafka-logs")
    ended.assert_one_line(ExitCode.USAGE)
    assert ended.err.endswith(f"; kidx {name} works from a catalog: name it with --catalog DIR\n"), ended.err


@pytest.mark.parametrize(
    "name", ["missing directory", "index dir in the source", "segments in a directory without number"]
)
def test_a_refusal_names_no_option_that_the_command_lacks(name: str, root: Path) -> None:
    """As `--source`, which the jobs have."""
    assert "--source" not in refused_kidx("build", *_REFUSED[name](root)).err


def test_what_has_no_right_name_is_a_warning_and_the_rest_is_done(tmp_path: Path, guard: Guard) -> None:
    """Names that are almost right, among them one that is no UTF-8 and one with a line break; and directories and files
    that belong in a log dir, which are no warning.
    """
    log_dir = tmp_path / "kafka-logs"
    write_log(log_dir / "topic-0", 0, small_log())
    odd = [
        log_dir / "orders",
        log_dir / "topic-01",
        log_dir / "topic-x",
        log_dir / "two words-0",
        log_dir / "topic-0" / "123.log",
        log_dir / "topic-0" / f"{2**63:020d}.log",
        log_dir / "topic-0" / "0000000000000000000a.log",
        log_dir / "topic-0" / os.fsdecode(b"caf\xe9.log"),
        log_dir / "topic-0" / "line\nbreak.log",
    ]
    for path in odd:
        if path.suffix == ".log":
            path.write_bytes(small_log())
        else:
            write_log(path, 0, small_log())
    for name in ("topic-1.0123456789abcdef-delete", "topic-2.0123456789abcdef-future", "topic-3.0123-stray"):
        (log_dir / name).mkdir()
    for name in ("meta.properties", "recovery-point-offset-checkpoint", f"topic-0/{100:020d}.log.deleted"):
        (log_dir / name).touch()
    guard(log_dir)

    ended = kidx("build", log_dir, "--index-dir", tmp_path / "index")
    assert ended.code == ExitCode.OK
    lines = ended.err.splitlines()
    assert len(lines) == len(odd) and all(line.startswith("warning: ") for line in lines), ended.err
    for path in odd[:-2]:
        assert sum(f"{path}:" in line for line in lines) == 1, path
    assert indexes(tmp_path / "index").keys() == {f"topic-0/{0:020d}.index", f"topic-0/{0:020d}.timeindex"}


def test_a_name_that_standard_output_cannot_show_is_escaped(tmp_path: Path) -> None:
    log_dir = tmp_path / "caf\u00e9"
    write_log(log_dir / "topic-0", 0, small_log())
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = (sys.executable, "-c", KIDX, "build", log_dir, "--index-dir", tmp_path / "index")
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.OK and "Traceback" not in ended.stderr, ended
    assert "caf\\xe9" in ended.stdout


@pytest.mark.parametrize("name", [b"caf\xe9", b"a=b", b"-logs", b"two words", b"[red]"], ids=repr)
def test_a_log_dir_may_have_any_name(name: bytes, tmp_path: Path, guard: Guard) -> None:
    """Relative names that are no UTF-8, or look like an option, a named source or markup, of a log dir with a damaged
    segment, so that its path is printed.
    """
    log_dir = tmp_path / os.fsdecode(name)
    write_log(log_dir / "topic-0", 0, small_log() + b"no batch")
    write_log(log_dir / "topic-1", 0, small_log())
    guard(log_dir)
    ended = kidx("build", "--index-dir", tmp_path / "index", "--", log_dir.name, cwd=tmp_path)
    assert (ended.code, ended.err) == (ExitCode.PROBLEMS_FOUND, ""), ended
    assert len(indexes(tmp_path / "index")) == 4


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "a", "b"),
        ("export", ".", "--output", "rows.parquet"),
        ("seek", "--topic", "topic", "--partition", "0", "--offset", "0"),
        ("verify", "--source", "."),
    ],
    ids=lambda command: str(command[0]),
)
def test_a_catalog_whose_name_is_no_text_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    ended = refused_kidx(*command, "--catalog", tmp_path / os.fsdecode(b"caf\xe9"))
    assert ended.code == ExitCode.USAGE and "Traceback" not in ended.err, ended
    assert ended.err.splitlines()[-1].startswith(f"error: --catalog {tmp_path}/caf\\"), ended
