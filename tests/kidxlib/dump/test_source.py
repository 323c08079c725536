"""Files that can be dumped, and where the log of an index is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import segment_file
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.dump import SEGMENT, objects, run
from tests.support.files import flip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("7.swap", "not a file that can be dumped"),
        ("partition.metadata", "not a file that can be dumped"),
        ("a.log", "has to begin with an offset"),
        ("8.log", "no such file"),
        ("8.index", "no such file"),
        (f"{'8' * 5_000}.log", "File name too long"),
        ("nowhere.log", "no such file"),
        (f"{'8' * 250}.log", "has to begin with an offset"),
        ("7.log/8.log", "Not a directory"),
        (f"{'x' * 300}.snapshot", "File name too long"),
        ("directory.snapshot", "not a regular file"),
    ],
)
def test_files_that_cannot_be_dumped(log: Path, name: str, message: str) -> None:
    """One line, and nothing is printed, of other files neither."""
    log.with_name("directory.snapshot").mkdir()
    for there in ("7.swap", "partition.metadata", "a.log", f"{'8' * 250}.log"):
        log.with_name(there).touch()
    log = log.rename(log.with_name("7.log"))
    result = run(str(log), str(log.parent / name))
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert not result.stdout


@pytest.fixture
def log_elsewhere(segment: Path) -> Path:
    """The segment's index files in an index directory, its log in a log dir; the log."""
    log_dir, tree = segment.parent / "logs" / SEGMENT[0], segment.parent / "indexes" / SEGMENT[0]
    log_dir.mkdir(parents=True)
    tree.mkdir(parents=True)
    for path in [*segment.parent.glob(segment_file(SEGMENT[1], ".*index"))]:
        path.rename(tree / path.name)
    return segment.rename(log_dir / segment.name)


def _index(log_elsewhere: Path, suffix: str) -> Path:
    return log_elsewhere.parents[2] / "indexes" / log_elsewhere.parent.name / log_elsewhere.with_suffix(suffix).name


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("up", [0, 1], ids=["partition's directory", "log dir"])
def test_an_index_is_compared_with_the_log_in_another_directory(log_elsewhere: Path, suffix: str, up: int) -> None:
    """By the name of the index's own directory; and what does not fit is found."""
    index = _index(log_elsewhere, suffix)
    log_dir = str(log_elsewhere.parents[up])
    result = run("--log-dir", log_dir, str(index))
    assert (result.return_value, result.stderr) == (ExitCode.OK, "")
    for name in (index.name, log_elsewhere.name):
        (log_elsewhere.parent / name).write_bytes((index if name == index.name else log_elsewhere).read_bytes())
    beside = [_index(log_elsewhere, ".index"), index]
    for path in beside:
        (log_elsewhere.parent / path.name).write_bytes(path.read_bytes())
    assert result.stdout.splitlines()[1:] == run(str(log_elsewhere.parent / index.name)).stdout.splitlines()[1:]
    flip(index, 3 if suffix == ".index" else 7)
    result = run("--log-dir", log_dir, "--verify-index-only", str(index))
    assert result.return_value == ExitCode.PROBLEMS_FOUND
    assert result.stderr.splitlines()[-1].startswith(f"{index}: 1 entry whose batch ")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_without_its_log_is_shown_as_it_stands(log_elsewhere: Path, suffix: str) -> None:
    """The same lines, and one that says that nothing was compared; nothing was found wrong."""
    index = _index(log_elsewhere, suffix)
    compared = run("--log-dir", str(log_elsewhere.parent), str(index))
    result = run(str(index))
    assert (result.return_value, result.stdout) == (ExitCode.OK, compared.stdout)
    missing = index.with_suffix(".log")
    assert result.stderr == f"{index}: not compared, as {missing} is not there; --log-dir DIR says where logs are\n"
    first, *entries = objects(str(index))
    assert first == {"file": str(index), "type": "not_compared", "missing": str(missing)}
    assert entries == objects("--log-dir", str(log_elsewhere.parent), str(index))
    assert run("--index-sanity-check", str(index)).stderr == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--verify-index-only",),
            f"{segment_file(84, '.log')}, which is not there; name another place for logs with --log-dir DIR",
        ),
        (("--log-dir", "indexes"), f"indexes/{SEGMENT[0]}/{segment_file(84, '.log')} there, which "),
        (("--log-dir", "nowhere"), "'nowhere' does not exist"),
    ],
)
def test_a_comparison_that_was_asked_for_has_its_log(
    log_elsewhere: Path, options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log_elsewhere.parents[2])
    result = run(*options, str(_index(log_elsewhere, ".index")))
    assert result.exception is not None
    assert message in str(result.exception) or message in getattr(result.exception, "message", "")
