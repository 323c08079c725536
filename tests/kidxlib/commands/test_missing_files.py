"""Commands on partitions whose directories lack files: each says in a line what is not there, and reads the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import KidxError
from kidxlib.library.read import count
from kidxlib.records.reader import Record
from tests.faults.trees import write_log
from tests.support.logs import encoded

_WITHOUT_LOG = "no .log in the directory of 1 partition: lacking-0"
_NO_SEGMENT = "lacking-0: no segment"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir of two partitions with all their files."""
    log_dir = tmp_path_factory.mktemp("logs")
    for name in ("lacking-0", "other-0"):
        batch = encoded.batch_v2([Record(offset, 1_700_000_000_000, b"k", b"v") for offset in range(10)])
        write_log(log_dir / name, 0, batch)
        (log_dir / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {name[0] * 21}A\n")
    assert _run("build", log_dir, "--in-place", "--snapshots", "--epochs") == ""
    return log_dir


def _run(*arguments: object) -> str:
    """What a command says is wrong, with its exit code; nothing where all is well."""
    ended = CliRunner().invoke(kidx, [str(each) for each in arguments], standalone_mode=False)
    if ended.exception is not None:
        assert isinstance(ended.exception, KidxError), ended.exception
        return str(ended.exception)
    return "" if ended.return_value == 0 else f"{ended.return_value}: {ended.stderr}{ended.stdout}"


@pytest.mark.parametrize(
    ("lacks", "exported", "export_of_it", "sought"),
    [
        ("*.log", _WITHOUT_LOG, _NO_SEGMENT, _NO_SEGMENT),
        ("*", _WITHOUT_LOG, _NO_SEGMENT, _NO_SEGMENT),
        ("all but .gitignore", _WITHOUT_LOG, _NO_SEGMENT, _NO_SEGMENT),
        ("*.index", "", "", "answered from a scan of the log"),
        ("*.timeindex", "", "", ""),
        ("*.snapshot", "", "", ""),
        ("leader-epoch-checkpoint", "", "", ""),
        ("partition.metadata", "", "", ""),
    ],
)
def test_a_directory_that_lacks_files(
    lacks: str, exported: str, export_of_it: str, sought: str, whole: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(whole, log_dir)
    lacking = log_dir / "lacking-0"
    for path in lacking.glob("*" if lacks == "all but .gitignore" else lacks):
        path.unlink()
    if lacks == "all but .gitignore":
        (lacking / ".gitignore").write_text("*\n")
    for number, isolation in enumerate(("read_uncommitted", "read_committed")):
        said = _run("export", log_dir, "--isolation", isolation, "--output", tmp_path / f"{number}.jsonl")
        assert exported in said and bool(said) == bool(exported)
        assert (tmp_path / f"{number}.jsonl").read_text().count('"other"') == 10
    said = _run("export", lacking, "--output", tmp_path / "of-it.jsonl")
    assert export_of_it in said and bool(said) == bool(export_of_it)
    assert count(log_dir) == (10 if exported else 20)
    said = _run("seek", log_dir, "--topic", "lacking", "--partition", "0", "--offset", "5")
    assert sought in said and bool(said) == bool(sought)
    _run("verify", log_dir)
    _run("build", log_dir, "--index-dir", tmp_path / "indexes")


def test_nothing_at_all_is_there(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    said = _run("export", tmp_path / "logs", "--output", tmp_path / "all.jsonl")
    found = f"{tmp_path / 'logs'}: no segment found; expected files named <20 digits>.log"
    assert said == f"{found}; nothing is in {tmp_path / 'logs'}: is the disk mounted? Mount it, and run this again"
    assert not (tmp_path / "all.jsonl").exists()


def test_times_of_which_no_record_is_are_no_empty_answer(whole: Path, tmp_path: Path) -> None:
    arguments = ("export", whole, "--times", "2031-01-01T00:00Z/", "--output", tmp_path / "all.jsonl")
    ended = CliRunner().invoke(kidx, [str(each) for each in arguments], standalone_mode=False)
    assert (ended.return_value, ended.stdout.startswith("0 records of 2 segments")) == (0, True)
    assert "--times 2031-01-01T00:00Z/: no record that was read has such a timestamp" in ended.stderr
