"""What is missing, and of which no log is left to judge: who knows of it, and what is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.indexing.known_segments import warnings_of_missing, without_directory
from kidxlib.indexing.plan import find_segments
from kidxlib.indexing.source import IndexPlace, Source, parse_topics
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from tests.docs.log_dirs import put
from tests.support.logs.batches import Batch
from tests.support.logs.golden import SAMPLES


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, Path]:
    """Three partitions, and their index directory."""
    log_dir, index_dir = tmp_path / "logs", tmp_path / "indexes"
    for name in ("compacted-0", "plain-zstd-0", "txn-mixed-0"):
        shutil.copytree(SAMPLES / name, log_dir / name)
    assert CliRunner().invoke(kidx, ["build", str(log_dir), "--index-dir", str(index_dir)]).exit_code == 0
    return log_dir, index_dir


def test_an_index_directory_names_the_partition_whose_directory_is_not_there(archive: tuple[Path, Path]) -> None:
    """A topic may have been deleted, so it is no failure; of topics that nobody asked for, nothing is said."""
    log_dir, index_dir = archive
    verify = ["verify", str(log_dir), "--index-dir", str(index_dir), "--json"]
    sound = CliRunner().invoke(kidx, verify, standalone_mode=False)
    assert "warning: " not in sound.stderr and json.loads(sound.stdout)["partitions_gone"] == 0
    shutil.rmtree(log_dir / "plain-zstd-0")
    (index_dir / "never-built-0").mkdir()
    ended = CliRunner().invoke(kidx, verify, standalone_mode=False)
    assert ended.return_value == 0, ended.output
    assert (
        f"warning: {log_dir}/plain-zstd-0: it has index files of 2 segments in {index_dir}/plain-zstd-0, and no "
        "directory: the topic was deleted or moved, or the directory is lost\n"
    ) in ended.stderr
    assert json.loads(ended.stdout)["partitions_gone"] == 1 and "never-built" not in ended.stderr
    for arguments in ([*verify, "--topics", "txn-.*"], ["verify", str(log_dir / "txn-mixed-0"), *verify[2:]]):
        other = CliRunner().invoke(kidx, arguments, standalone_mode=False)
        assert other.return_value == 0 and "warning: " not in other.stderr


def test_each_source_has_its_own_part_of_an_index_directory(tmp_path: Path) -> None:
    """What stands below one source's name says nothing of another; a source without segments is reported as such."""
    for source in ("a", "b", "c"):
        put(tmp_path / source / "orders-0", 0, [Batch()])
        for topic in ("orders", "payments"):
            index = tmp_path / "indexes" / source / f"{topic}-0" / f"{0:020d}.index"
            index.parent.mkdir(parents=True)
            index.touch()
    put(tmp_path / "a" / "payments-0", 0, [Batch()])
    shutil.rmtree(tmp_path / "c" / "orders-0")
    sources = [Source(name, tmp_path / name) for name in ("a", "b", "c")]
    index_place = IndexPlace(index_dir=tmp_path / "indexes", by_source=True)
    topics = parse_topics(".*")
    plan = find_segments(sources, topics, index_place, lambda _: OptionsOfTopic(RecoverOptions()))
    assert list(without_directory(plan, sources, topics, index_place, {})) == [("b", "payments", 0)]


def test_a_build_tells_a_loss_from_a_topic_that_may_have_been_deleted(tmp_path: Path) -> None:
    emptied, missing_at_end = {("a", "orders", 1): 5, ("a", "orders", 0): 1}, {("a", "payments", 0): [5891, 9000]}
    because = "the topic was deleted or moved, or its directory is lost"
    assert warnings_of_missing(emptied, missing_at_end, [Source("a", tmp_path)]) == [
        f"lost: {tmp_path}/payments-0: its last 2 segments are missing, from offset 5891 on, and those before are "
        "there: a broker has truncated the log, or files are lost (retention deletes at the beginning)",
        f"missing: {tmp_path}/orders-0: its one segment is missing: {because}",
        f"missing: {tmp_path}/orders-1: all its 5 segments are missing: {because}",
    ]
