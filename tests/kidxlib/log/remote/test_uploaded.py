"""What objects alone say of remote segments, beside what a broker has written of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.log.remote.layout import AIVEN, LOCAL, STORAGE_DIRECTORY, Layout
from kidxlib.log.remote.segments import fold_metadata
from kidxlib.log.remote.uploaded import as_read, read_uploaded
from kidxlib.messages.remote_log_metadata import read_remote_log_metadata, write_remote_log_metadata
from tests.docs.pages import PROJECT
from tests.support.tiered_sites import Site, as_by_aivens_plugin

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")
_PARTITIONS: Final = [("readings", 0), ("readings", 1), ("payments", 0)]
#: No object says when a segment was copied, and by whom.
_NOT_SAID: Final = ("state_since_ms", "copied_at_ms", "broker_id")


def _rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in _NOT_SAID} for row in rows]


@pytest.mark.parametrize("layout", [LOCAL, AIVEN], ids=lambda layout: layout.name)
def test_objects_say_what_the_broker_wrote(layout: Layout, tmp_path: Path) -> None:
    bucket = _SAMPLE.bucket
    if layout is AIVEN:
        as_by_aivens_plugin([each for place in _PARTITIONS for each in _SAMPLE.segments(*place)], tmp_path)
        bucket = tmp_path
    for partition, directory in layout.list_partitions(bucket).items():
        uploaded = read_uploaded(layout, partition, directory, 1)
        made = fold_metadata(as_read(uploaded.records())).segments.to_pylist()
        assert uploaded.unusable == []
        written = [segment.row for segment in _SAMPLE.segments(partition.topic, partition.partition)]
        assert _rows(made) == _rows(written) and len(made) > 3


def test_what_is_written_reads_back() -> None:
    [partition, *_] = LOCAL.list_partitions(_SAMPLE.bucket)
    directory = LOCAL.list_partitions(_SAMPLE.bucket)[partition]
    for record in read_uploaded(LOCAL, partition, directory, 3).records():
        assert read_remote_log_metadata(write_remote_log_metadata(record))[1] == record


def test_a_log_that_is_not_whole_is_told(tmp_path: Path) -> None:
    """As an upload leaves it that was broken off, also where it ends with a whole batch."""
    site = _SAMPLE.copy(tmp_path)
    first, second, *others = site.segments("readings")
    content = first.object(LOG_SUFFIX).read_bytes()
    first.object(LOG_SUFFIX).write_bytes(content[:-1])
    second.object(LOG_SUFFIX).write_bytes(b"")
    uploaded = read_uploaded(LOCAL, first.partition, first.directory, 1)
    assert [each.segment.id for each in uploaded.segments] == [each.id for each in others]
    assert all(LOG_SUFFIX in line and "not whole" in line for line in uploaded.unusable), uploaded.unusable
    assert len(uploaded.unusable) == 2
