"""Repairs of a bucket, from its own logs and from those of a log dir: what is put is what the broker had, and what is
not certain is not put; and what a repair refuses.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from kidxlib.audit.tiered.remote_segment import SIDE_OBJECTS
from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.format import layouts
from kidxlib.format.layouts import BATCH_V2, field_position
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.records.batch_headers import batches
from kidxlib.storage.opened_log import LogFile
from tests.support.audits import repaired
from tests.support.files import flip, tree
from tests.support.tiered_sites import SAMPLE, RemoteSegment, Site, damages

_HERE: Final = (str(SAMPLE.bucket.parent),)
_METADATA: Final = ("--tiered-metadata", str(SAMPLE.log_dir))
_PARTITIONS: Final = [("readings", 0), ("readings", 1), ("payments", 0)]
_DAMAGES: Final = damages("readings", "payments")
#: No object mends these.
_OF_METADATA: Final = ("transaction index that nobody asks for", "aborted transactions that the metadata denies")

#: Findings that give no wrong answer.
_SAFE: Final = (
    *("orphan", "left-after-delete", "copy-not-finished", "delete-not-finished", "overlap", "unreferenced"),
    *("other-spacing", "disagrees-with-time-index"),
)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return SAMPLE.copy(tmp_path)


def _repaired(site: Site, *options: object, code: int) -> dict[str, Any]:
    mirror = site.log_dir.parent / "mirror"
    where = (site.bucket, "--tiered-metadata", site.log_dir, "--index-dir", mirror)
    return repaired(*where, *options, code=code)


def _segments(site: Site) -> list[RemoteSegment]:
    return [segment for place in _PARTITIONS for segment in site.segments(*place)]


def _with_aborted(site: Site) -> list[RemoteSegment]:
    return [each for each in site.segments("payments") if not each.row["transaction_index_empty"]]


def test_all_that_a_broker_has_uploaded_is_made_from_logs_alone(site: Site) -> None:
    """Every index, snapshot and epochs file of the bucket is lost. A plan changes nothing; applied, all bytes are back,
    and nothing is left to do.
    """
    for segment in _segments(site):
        for suffix in SIDE_OBJECTS:
            segment.object(suffix).unlink(missing_ok=True)
    lost, whole = tree(site.bucket), tree(SAMPLE.bucket)
    planned = _repaired(site, code=3)
    assert tree(site.bucket) == lost
    assert {each["outcome"] for each in planned["objects"]} == {"to-put"}
    assert tree(site.log_dir.parent / "mirror") == {
        name: content for name, content in whole.items() if name not in lost
    }
    applied = _repaired(site, "--apply", code=0)
    assert len(applied["objects"]) == len(whole) - len(lost)
    assert {each["outcome"] for each in applied["objects"]} == {"put"}
    assert tree(site.bucket) == whole
    assert _repaired(site, "--apply", "--level", "full", code=0)["objects"] == []


@pytest.mark.parametrize("name", _DAMAGES)
def test_each_damage_is_mended_or_left_alone(site: Site, name: str) -> None:
    damage, is_safe = _DAMAGES[name], _DAMAGES[name].found[1] in _SAFE
    damage.plant(site)
    before = tree(site.bucket)
    can_be_mended = not is_safe and damage.found[0] in SIDE_OBJECTS and name not in _OF_METADATA
    found = _repaired(site, "--apply", "--level", damage.level, code=0 if can_be_mended or is_safe else 3)
    if can_be_mended:
        assert {(each["file"], each["outcome"]) for each in found["objects"]} == {(damage.found[0], "put")}
        assert tree(site.bucket) == tree(SAMPLE.bucket)
    else:
        assert "put" not in {each["outcome"] for each in found["objects"]}
        assert tree(site.bucket) == before
        assert bool(found["left"]) == (not is_safe)


def _snapshot_of_another_time(site: Site) -> None:
    """The snapshot before a segment is a sound one, of later on."""
    before, segment, later = site.segments("payments")[1:4]
    assert not segment.row["transaction_index_empty"]
    shutil.copyfile(later.object(SNAPSHOT_SUFFIX), before.object(SNAPSHOT_SUFFIX))


def _no_log_before(site: Site) -> None:
    before = site.segments("payments")[1]
    before.object(LOG_SUFFIX).unlink()


def _log_of_another_segment(site: Site) -> None:
    """It has another size, too: the metadata says the one that it has."""
    segment, another = _with_aborted(site)[0], site.segments("payments")[0]
    shutil.copyfile(another.object(LOG_SUFFIX), segment.object(LOG_SUFFIX))
    segment.change(segmentSizeInBytes=another.object(LOG_SUFFIX).stat().st_size)


def _metadata_of_another_end(site: Site) -> None:
    segment = _with_aborted(site)[0]
    segment.change(endOffset=segment.offsets[1] - 1)


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (_snapshot_of_another_time, "does not bear out the snapshot"),
        (_no_log_before, "does not bear out the snapshot"),
        (_log_of_another_segment, ".log is missing, damaged or cannot be read"),
        (_metadata_of_another_end, "the metadata and its .log disagree (wrong-end-offset)"),
    ],
)
def test_what_is_not_certain_is_not_put(site: Site, plant: Callable[[Site], None], why: str) -> None:
    """A transaction index is lost, and something else is wrong that it would be made of."""
    segment = _with_aborted(site)[0]
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    plant(site)
    before = tree(site.bucket)
    found = _repaired(site, "--apply", code=3)
    assert tree(site.bucket) == before
    [row] = [each for each in found["objects"] if each["file"] == TRANSACTION_INDEX_SUFFIX]
    assert row["outcome"] == "not-made" and why in row["why"], row


def test_epochs_are_put_only_where_the_metadata_has_all(site: Site) -> None:
    """The metadata of the segment before is not there: nobody knows which epochs began in that."""
    first, second, third = site.segments("readings")[:3]
    for segment in (first, third):
        segment.object(EPOCHS_SUFFIX).unlink()
    second.never_finished(site.last_ms())
    found = _repaired(site, "--apply", code=3)
    by_offset = {each["start_offset"]: each["outcome"] for each in found["objects"]}
    assert by_offset == {first.offsets[0]: "put", third.offsets[0]: "not-made"}


def test_an_index_that_is_right_otherwise_stays(site: Site) -> None:
    """With the wrong interval each index differs from what would be made, and each is safe."""
    segment = site.segments("readings")[1]
    segment.object(EPOCHS_SUFFIX).unlink()
    before = segment.object(OFFSET_INDEX_SUFFIX).read_bytes()
    found = _repaired(site, "--apply", "--interval-bytes", 100, code=0)
    assert [each["file"] for each in found["objects"]] == [EPOCHS_SUFFIX]
    assert segment.object(OFFSET_INDEX_SUFFIX).read_bytes() == before
    made = next((site.log_dir.parent / "mirror").rglob(segment.object(OFFSET_INDEX_SUFFIX).name)).read_bytes()
    assert len(made) > len(before) and len(made) % layouts.OFFSET_INDEX_ENTRY.itemsize == 0


@pytest.fixture
def lost(site: Site) -> RemoteSegment:
    """A segment whose transaction index is gone."""
    segment = _with_aborted(site)[1]
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


def _theirs(segment: RemoteSegment) -> bytes:
    """What the broker has uploaded."""
    same = next(each for each in SAMPLE.segments("payments") if each.id == segment.id)
    return same.object(TRANSACTION_INDEX_SUFFIX).read_bytes()


def test_the_bucket_is_not_asked_for_the_log(site: Site, lost: RemoteSegment, logs: Path) -> None:
    """It could not give it: its logs cannot be read as such any more. What is made is what was lost."""
    for each in site.segments("payments"):
        each.object(LOG_SUFFIX).write_bytes(bytes(each.row["log_bytes"]))
    found = _repaired(site, "--logs", logs, "--apply", code=0)
    assert found["local_logs"] == {"segments": 1, "bytes": lost.row["log_bytes"]}
    assert [each["outcome"] for each in found["objects"]] == ["put"]
    assert lost.object(TRANSACTION_INDEX_SUFFIX).read_bytes() == _theirs(lost)


def _flip(log: Path) -> None:
    flip(log, -1)


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
    found = _repaired(site, "--logs", logs, "--apply", code=0)
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
    found = _repaired(site, "--logs", logs, "--apply", code=3)
    assert found["local_logs"]["segments"] == 0
    assert "not-made" in {each["outcome"] for each in found["objects"]}
    assert not lost.object(TRANSACTION_INDEX_SUFFIX).exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*_HERE, *_METADATA), "no --index-dir: name a directory"),
        ((*_HERE, "--index-dir", "x"), "no --tiered-metadata"),
        ((*_HERE, *_METADATA, "--settings", "x"), "--settings: only with --catalog"),
        ((*_HERE, *_METADATA, "--index-dir", "x", "--catalog", "no such"), "no catalog"),
        (("no such", *_METADATA, "--index-dir", "x"), "no such: no such directory"),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(kidx, ["repair-tiered", *options], standalone_mode=False, catch_exceptions=False)
    assert said in str(refused.value)


@pytest.mark.parametrize("inside", ["", "kafka-tiered-storage", "kafka-tiered-storage/x", "log-dir/x"])
def test_the_mirror_is_a_place_of_its_own(inside: str) -> None:
    options = [*_HERE, *_METADATA, "--index-dir", str(SAMPLE.bucket.parent / inside)]
    with pytest.raises(UsageError):
        CliRunner().invoke(kidx, ["repair-tiered", *options], standalone_mode=False, catch_exceptions=False)
