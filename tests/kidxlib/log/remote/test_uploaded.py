"""What objects alone say of remote segments, beside what a broker has written of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

import kidxlib
from kidxlib.errors import RemoteLogMetadataError, UsageError
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.log.remote.layout import AIVEN, EPOCHS_SUFFIX, LOCAL, MANIFEST_SUFFIX, ObjectLayout
from kidxlib.log.remote.metadata_topic import metadata_partitions
from kidxlib.log.remote.segments import fold_remote_segments
from kidxlib.log.remote.uploaded import as_read, read_uploaded, read_uploaded_part
from kidxlib.messages.remote_log_metadata import read_remote_log_metadata, write_remote_log_metadata
from tests.support.logs.golden import DATA
from tests.support.tiered_sites import SAMPLE, Site, as_by_aivens_plugin

#: Written by Aiven's plugin 1.1.1 in a broker of Kafka 4.3.1.
_OF_PLUGIN: Final = Site(DATA / "aiven" / "bucket", DATA / "aiven" / "log-dir")
_PARTITIONS: Final = [("readings", 0), ("readings", 1), ("payments", 0)]
#: No object says when a segment was copied, and by whom.
_NOT_SAID: Final = ("state_since_ms", "copied_at_ms", "broker_id")


def _rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in _NOT_SAID} for row in rows]


def test_objects_of_the_real_plugin_say_what_its_broker_wrote() -> None:
    [(partition, directory)] = AIVEN.list_partitions(_OF_PLUGIN.bucket).items()
    uploaded = read_uploaded(AIVEN, partition, directory, 1)
    made = fold_remote_segments(as_read(uploaded.records())).segments.to_pylist()
    [metadata] = metadata_partitions([_OF_PLUGIN.log_dir]).values()
    written = fold_remote_segments(metadata.records()).segments.to_pylist()
    assert _rows(made) == _rows([row for row in written if row["topic"] == partition.topic])
    assert uploaded.unusable == [] and len(made) == 10


@pytest.mark.parametrize(("isolation", "count"), [("read_uncommitted", 300), ("read_committed", 235)])
def test_records_of_the_real_plugins_objects(isolation: str, count: int) -> None:
    """So many a consumer got of the broker that wrote them."""
    assert kidxlib.count(_OF_PLUGIN.bucket, layout="aiven", isolation=isolation) == count


def test_a_prefix_without_a_slash_is_no_part_of_a_topics_name(tmp_path: Path) -> None:
    [directory] = Path(shutil.copytree(_OF_PLUGIN.bucket, tmp_path / "bucket")).iterdir()
    directory.rename(directory.with_name(f"eu-{directory.name}"))
    [(partition, place)] = AIVEN.list_partitions(tmp_path / "bucket").items()
    with pytest.raises(UsageError, match=f"manifest of {directory.name}/0, expected that of eu-{directory.name}/0"):
        read_uploaded(AIVEN, partition, place, 1)
    with pytest.raises(UsageError, match=f"the manifest of {directory.name}/0"):
        kidxlib.count(tmp_path / "bucket", layout="aiven")


def test_the_manifest_of_another_upload_of_the_segment_is_told(tmp_path: Path) -> None:
    """Two leaders have copied it, and its objects got mixed up: offsets and sizes are right, and may as well not be."""
    bucket = Path(shutil.copytree(_OF_PLUGIN.bucket, tmp_path / "bucket"))
    [(partition, directory)] = AIVEN.list_partitions(bucket).items()
    assert isinstance(directory, Path)
    last = max(directory.glob(f"*{MANIFEST_SUFFIX}"))
    start, own, other = last.name[:20], last.name[21:43], "kidx-" * 4 + "nA"
    for path in [*directory.glob(f"*{own}*")]:
        path.rename(path.with_name(path.name.replace(own, other)))
    uploaded = read_uploaded(AIVEN, partition, directory, 1)
    said = f"the manifest of segment {own}, expected that of {other}"
    assert uploaded.unusable == [f"{directory}/{start}-{other}: {said}"] and len(uploaded.segments) == 9
    with pytest.raises(RemoteLogMetadataError, match=said):
        read_uploaded_part(AIVEN, directory, int(start), other, EPOCHS_SUFFIX)
    with pytest.raises(UsageError, match=said):
        kidxlib.count(bucket, layout="aiven")


@pytest.mark.parametrize("layout", [LOCAL, AIVEN], ids=lambda layout: layout.name)
def test_objects_say_what_the_broker_wrote(layout: ObjectLayout, tmp_path: Path) -> None:
    bucket = SAMPLE.bucket
    if layout is AIVEN:
        as_by_aivens_plugin([each for place in _PARTITIONS for each in SAMPLE.segments(*place)], tmp_path)
        bucket = tmp_path
    for partition, directory in layout.list_partitions(bucket).items():
        uploaded = read_uploaded(layout, partition, directory, 1)
        made = fold_remote_segments(as_read(uploaded.records())).segments.to_pylist()
        assert uploaded.unusable == []
        written = [segment.row for segment in SAMPLE.segments(partition.topic, partition.partition)]
        assert _rows(made) == _rows(written) and len(made) > 3


def test_what_is_written_reads_back() -> None:
    [partition, *_] = LOCAL.list_partitions(SAMPLE.bucket)
    directory = LOCAL.list_partitions(SAMPLE.bucket)[partition]
    for record in read_uploaded(LOCAL, partition, directory, 3).records():
        assert read_remote_log_metadata(write_remote_log_metadata(record))[1] == record


def test_a_log_that_is_not_whole_is_told(tmp_path: Path) -> None:
    """As an upload leaves it that was broken off, also where it ends with a whole batch."""
    site = SAMPLE.copy(tmp_path)
    first, second, *others = site.segments("readings")
    content = first.object(LOG_SUFFIX).read_bytes()
    first.object(LOG_SUFFIX).write_bytes(content[:-1])
    second.object(LOG_SUFFIX).write_bytes(b"")
    uploaded = read_uploaded(LOCAL, first.partition, first.directory, 1)
    assert [each.segment.id for each in uploaded.segments] == [each.id for each in others]
    assert all(LOG_SUFFIX in line and "not whole" in line for line in uploaded.unusable), uploaded.unusable
    assert len(uploaded.unusable) == 2
