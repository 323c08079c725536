"""Repairs of a bucket: what is put is what the broker had, and what is not certain is not put."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.audit.tiered.segment import SIDE_OBJECTS
from kidxlib.format import layouts as formats
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.log.remote.local_layout import STORAGE_DIRECTORY
from tests.docs.pages import PROJECT
from tests.support.audits import repaired
from tests.support.tiered_sites import RemoteSegment, Site, damages

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")
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
    return _SAMPLE.copy(tmp_path)


def _repaired(site: Site, *options: object, code: int) -> dict[str, Any]:
    mirror = site.log_dir.parent / "mirror"
    where = ("--tiered", site.bucket, "--tiered-metadata", site.log_dir, "--index-dir", mirror)
    return repaired(*where, *options, code=code)


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


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
    lost, whole = _contents(site.bucket), _contents(_SAMPLE.bucket)
    planned = _repaired(site, code=3)
    assert _contents(site.bucket) == lost
    assert {each["outcome"] for each in planned["objects"]} == {"to-put"}
    assert _contents(site.log_dir.parent / "mirror") == {
        name: content for name, content in whole.items() if name not in lost
    }
    applied = _repaired(site, "--apply", code=0)
    assert len(applied["objects"]) == len(whole) - len(lost)
    assert {each["outcome"] for each in applied["objects"]} == {"put"}
    assert _contents(site.bucket) == whole
    assert _repaired(site, "--apply", "--level", "full", code=0)["objects"] == []


@pytest.mark.parametrize("name", _DAMAGES)
def test_each_damage_is_mended_or_left_alone(site: Site, name: str) -> None:
    damage, is_safe = _DAMAGES[name], _DAMAGES[name].found[1] in _SAFE
    damage.plant(site)
    before = _contents(site.bucket)
    can_be_mended = not is_safe and damage.found[0] in SIDE_OBJECTS and name not in _OF_METADATA
    found = _repaired(site, "--apply", "--level", damage.level, code=0 if can_be_mended or is_safe else 3)
    if can_be_mended:
        assert {(each["file"], each["outcome"]) for each in found["objects"]} == {(damage.found[0], "put")}
        assert _contents(site.bucket) == _contents(_SAMPLE.bucket)
    else:
        assert "put" not in {each["outcome"] for each in found["objects"]}
        assert _contents(site.bucket) == before
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
    before = _contents(site.bucket)
    found = _repaired(site, "--apply", code=3)
    assert _contents(site.bucket) == before
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
    assert len(made) > len(before) and len(made) % formats.OFFSET_INDEX_ENTRY.itemsize == 0
