"""Where logs and index files stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import Source, ensure_distinct_directories, parse_sources, segments_directory, source_at
from kidxlib.storage.location import Directory


def test_logs_that_stand_elsewhere_than_their_source_have_no_place() -> None:
    """A source's name means another directory by now: nothing of what is recorded is looked for there."""
    partition, name = TopicPartition("t", 0), segment_file(7, LOG_SUFFIX)
    recorded = {7: f"/logs/a/t-0/{name}"}
    assert segments_directory(Path("/logs/a"), partition, recorded) == Directory("/logs/a", "t-0")
    assert segments_directory(Path("/logs/a/t-0"), partition, recorded) == Directory("/logs/a", "t-0")
    for elsewhere in ("/logs/b", "/logs", "/logs/a/u-0/x"):
        assert segments_directory(Path(elsewhere), partition, recorded) is None


def test_a_directory_is_named_once(tmp_path: Path) -> None:
    """Two names of one directory count twice; so do a log dir and a partition in it, and two of its partitions not."""
    log_dir, link, partition = tmp_path / "log-dir", tmp_path / "link", tmp_path / "log-dir" / "t-0"
    for directory in (partition, log_dir / "t-1", tmp_path / "other" / "t-0"):
        directory.mkdir(parents=True)
    link.symlink_to(log_dir)
    mounted = Path(f"/proc/self/root{log_dir}")  # as of a bind mount: another path, and the same inode
    parse_sources([f"a={partition}", f"b={log_dir}/t-1", f"c={tmp_path}/other"])
    for given, message in (
        ([f"a={log_dir}", f"c={link}"], f"{log_dir}: given twice, as source a and as source c; name each log dir once"),
        ([f"a={log_dir}", f"c={link}/t-0"], f"{partition}: it is in {log_dir}, which is given, too; leave out one of"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_sources(given)
    for sources, message in (
        ([source_at(str(log_dir)), source_at(str(link))], f"{log_dir}: given twice; name each log dir once"),
        ([Source("a", log_dir), Source("c", mounted)], f"{mounted}: the same directory as {log_dir}; name each log"),
    ):
        with pytest.raises(UsageError, match=message):
            ensure_distinct_directories(sources)
