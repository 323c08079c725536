"""Where logs and index files stand."""

from __future__ import annotations

from pathlib import Path

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import segments_directory
from kidxlib.storage.directory import Directory


def test_logs_that_stand_elsewhere_than_their_source_have_no_place() -> None:
    """A source's name means another directory by now: nothing of what is recorded is looked for there."""
    partition, name = TopicPartition("t", 0), segment_file(7, LOG_SUFFIX)
    recorded = {7: f"/logs/a/t-0/{name}"}
    assert segments_directory(Path("/logs/a"), partition, recorded) == Directory("/logs/a", "t-0")
    assert segments_directory(Path("/logs/a/t-0"), partition, recorded) == Directory("/logs/a", "t-0")
    for elsewhere in ("/logs/b", "/logs", "/logs/a/u-0/x"):
        assert segments_directory(Path(elsewhere), partition, recorded) is None
