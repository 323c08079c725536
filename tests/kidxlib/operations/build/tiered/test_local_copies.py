"""Repairs from logs of a log dir: they are read in the place of the bucket's only where they prove to be the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.layouts import BATCH_V2, field_position
from kidxlib.format.segment_files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.log.remote.local_layout import STORAGE_DIRECTORY
from kidxlib.records.batch_headers import batches
from kidxlib.storage.lazy_log import LogFile
from tests.docs.pages import PROJECT
from tests.support.audits import repaired
from tests.support.tiered_sites import RemoteSegment, Site

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return _SAMPLE.copy(tmp_path)


@pytest.fixture
def lost(site: Site) -> RemoteSegment:
    """A segment whose transaction index is gone."""
    segment = [each for each in site.segments("payments") if not each.row["transaction_index_empty"]][1]
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    return segment


@pytest.fixture
def logs(site: Site, lost: RemoteSegment, tmp_path: Path) -> Path:
    """A log dir that still has the logs of all segments of that partition."""
    directory = tmp_path / "logs" / "payments-0"
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {lost.partition.topic_id}")
    for each in site.segments("payments"):
        shutil.copy2(each.object(LOG_SUFFIX), _log(directory.parent, each))
    return directory.parent


def _log(log_dir: Path, segment: RemoteSegment) -> Path:
    return log_dir / "payments-0" / segment_file(segment.offsets[0], LOG_SUFFIX)


def _repaired(site: Site, logs: Path, code: int = 0) -> dict[str, Any]:
    where = ("--tiered", site.bucket, "--tiered-metadata", site.log_dir, "--index-dir", site.log_dir.parent / "mirror")
    return repaired(*where, "--logs", logs, "--apply", code=code)


def _theirs(segment: RemoteSegment) -> bytes:
    """What the broker has uploaded."""
    same = next(each for each in _SAMPLE.segments("payments") if each.id == segment.id)
    return same.object(TRANSACTION_INDEX_SUFFIX).read_bytes()


def test_the_bucket_is_not_asked_for_the_log(site: Site, lost: RemoteSegment, logs: Path) -> None:
    """It could not give it: its logs cannot be read as such any more. What is made is what was lost."""
    for each in site.segments("payments"):
        each.object(LOG_SUFFIX).write_bytes(bytes(each.row["log_bytes"]))
    found = _repaired(site, logs)
    assert found["local_logs"] == {"segments": 1, "bytes": lost.row["log_bytes"]}
    assert [each["outcome"] for each in found["objects"]] == ["put"]
    assert lost.object(TRANSACTION_INDEX_SUFFIX).read_bytes() == _theirs(lost)


def _flip(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)


def _other_epoch(log: Path) -> None:
    """The checksum does not cover it."""
    data, file = bytearray(log.read_bytes()), LogFile(str(log))
    last = list(batches(file))[-1].position
    file.close()
    at = last + field_position(BATCH_V2, "partition_leader_epoch")
    data[at : at + 4] = (7).to_bytes(4)
    log.write_bytes(data)


def _cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-100])


def _other_topic(log: Path) -> None:
    (log.parent / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 22}")


def _of_another(log: Path) -> None:
    """The log of another segment, brought to the same size."""
    other = next(each for each in sorted(log.parent.glob(f"*{LOG_SUFFIX}")) if each != log)
    log.write_bytes(other.read_bytes()[: log.stat().st_size].ljust(log.stat().st_size, b"\0"))


@pytest.mark.parametrize("spoil", [_flip, _other_epoch, _cut, _other_topic, _of_another, Path.unlink])
def test_a_log_that_is_not_the_same_is_not_used(
    site: Site, lost: RemoteSegment, logs: Path, spoil: Callable[[Path], None]
) -> None:
    """The bucket's is read then, and the same is made."""
    spoil(_log(logs, lost))
    found = _repaired(site, logs)
    assert found["local_logs"] == {"segments": 0, "bytes": 0}
    assert lost.object(TRANSACTION_INDEX_SUFFIX).read_bytes() == _theirs(lost)


@pytest.mark.parametrize(
    "values", [{"endOffset": 10_000}, {"maxTimestampMs": 5}, {"segmentLeaderEpochs": [{"leaderEpoch": 3, "offset": 0}]}]
)
def test_what_the_metadata_says_otherwise_proves_nothing(
    site: Site, lost: RemoteSegment, logs: Path, values: dict[str, Any]
) -> None:
    """Of neither log anything is made then: which of the two is right nobody knows."""
    lost.change(**values)
    found = _repaired(site, logs, code=3)
    assert found["local_logs"]["segments"] == 0
    assert "not-made" in {each["outcome"] for each in found["objects"]}
    assert not lost.object(TRANSACTION_INDEX_SUFFIX).exists()
