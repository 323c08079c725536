"""A plan's partition decided on again before anything is renamed: what has changed, or would not go now, stays."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.retention.apply import SegmentResult, apply_deletions, reconsidered
from kidxlib.retention.plan import DeletionOutcome, PartitionDeletion, PartitionThen, PlannedSegment, SegmentThen
from kidxlib.retention.policy import TopicPolicy
from kidxlib.storage.location import Directory
from kidxlib.storage.remover import Remover

_BASE_OFFSETS: Final = (0, 10, 25, 40)
_BYTES: Final = 100
#: Each segment's largest timestamp is its base offset, and at this time the first three are older than 10 ms.
_NOW: Final = 36
_POLICY: Final = TopicPolicy(retention_ms=10)


class _Planned:
    """A log dir with one partition, of which three segments are planned to go."""

    def __init__(self, root: Path) -> None:
        self.root, self.directory = root, root / "t-0"
        self.directory.mkdir(parents=True)
        for base_offset in _BASE_OFFSETS:
            self.log(base_offset).write_bytes(bytes(_BYTES))
        (self.directory / "partition.metadata").write_text("version: 0\ntopic_id: abc\n")
        self.checkpoint("replication-offset-checkpoint", 50)
        self.checkpoint("log-start-offset-checkpoint", 3)
        files = [self._file(base_offset) for base_offset in _BASE_OFFSETS]
        self.then = PartitionThen(
            topic_id="abc",
            log_start_offset=3,
            high_watermark=50,
            segments=[
                SegmentThen(
                    file=file,
                    next_offset=next_offset,
                    counted_bytes=_BYTES,
                    max_timestamp_ms=file.base_offset,
                    fully_read=True,
                )
                for file, next_offset in zip(files, (*_BASE_OFFSETS[1:], 50), strict=True)
            ],
        )
        here = Directory(str(root), "t-0")
        self.deletion = PartitionDeletion(("it", "t", 0), here, here, tuple(files[:3]))

    def log(self, base_offset: int) -> Path:
        return self.directory / segment_file(base_offset, LOG_SUFFIX)

    def checkpoint(self, name: str, offset: int) -> None:
        (self.root / name).write_text(f"0\n1\nt 0 {offset}\n")

    def _file(self, base_offset: int) -> PlannedSegment:
        status = self.log(base_offset).stat()
        return PlannedSegment(base_offset, status.st_size, status.st_mtime_ns, status.st_ino)

    def applied(self, now_ms: int = _NOW, policy: TopicPolicy = _POLICY) -> list[SegmentResult]:
        with Remover() as remover:
            again = reconsidered(remover, self.deletion, self.then, policy, now_ms)
        return apply_deletions([again], self._record, lambda: None)

    def _record(self, results: Sequence[SegmentResult]) -> None:
        deleted = {found.segment.base_offset for found in results if found.outcome is DeletionOutcome.DELETED}
        segments = [
            replace(segment, deleted=segment.deleted or segment.file.base_offset in deleted)
            for segment in self.then.segments
        ]
        self.then = replace(self.then, segments=segments)


@pytest.fixture
def planned(tmp_path: Path) -> _Planned:
    return _Planned(tmp_path / "logs")


def _outcomes(results: list[SegmentResult]) -> list[str]:
    return [found.outcome.value for found in results]


def test_what_is_as_it_was_goes_as_planned(planned: _Planned) -> None:
    assert _outcomes(planned.applied()) == ["deleted"] * 3
    assert [planned.log(base_offset).exists() for base_offset in _BASE_OFFSETS] == [False, False, False, True]
    assert _outcomes(planned.applied()) == ["gone"] * 3


def test_what_a_run_before_has_renamed_is_finished(planned: _Planned) -> None:
    """With sizes as they were, also where a limit of size decides."""
    for base_offset in _BASE_OFFSETS[:2]:
        planned.log(base_offset).rename(f"{planned.log(base_offset)}.deleted")
    by_size = TopicPolicy(retention_ms=-1, retention_bytes=_BYTES)
    assert _outcomes(planned.applied(policy=by_size)) == ["deleted"] * 3
    assert sorted(path.name for path in planned.directory.glob("*.log*")) == [segment_file(40, LOG_SUFFIX)]


def _topic_made_anew(planned: _Planned) -> None:
    (planned.directory / "partition.metadata").write_text("version: 0\ntopic_id: xyz\n")


def _no_watermark(planned: _Planned) -> None:
    (planned.root / "replication-offset-checkpoint").unlink()


def _malformed(planned: _Planned) -> None:
    (planned.root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 x\n")


def _older_segment(planned: _Planned) -> None:
    planned.log(5).write_bytes(b"of another time")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_topic_made_anew, "topic id xyz, planned with abc"),
        (_no_watermark, "high watermark not there, planned with 50"),
        (lambda planned: planned.checkpoint("replication-offset-checkpoint", 20), "high watermark 20, planned with 50"),
        (lambda planned: planned.checkpoint("log-start-offset-checkpoint", 9), "log start offset 9, planned with 3"),
        (_malformed, "log-start-offset-checkpoint: line 3: 't 0 x', expected"),
        (_older_segment, f"{segment_file(5, LOG_SUFFIX)}: the plan does not know it"),
    ],
    ids=["topic id", "no watermark", "watermark", "log start", "malformed", "unknown segment"],
)
def test_a_partition_that_has_changed_stays(
    change: Callable[[_Planned], None], message: str, planned: _Planned
) -> None:
    change(planned)
    results = planned.applied()
    assert _outcomes(results) == ["changed", "behind", "behind"]
    assert message in str(results[0].detail) and str(results[0].detail).endswith("run build_index and plan again")
    assert all(planned.log(base_offset).exists() for base_offset in _BASE_OFFSETS)


def test_what_would_not_go_now_stays(planned: _Planned) -> None:
    """By the clock, by the policy, or as the catalog says by now that it is damaged; with all after it."""
    earlier = planned.applied(now_ms=15)
    assert _outcomes(earlier)[1:] == ["not-due", "behind"] and planned.log(10).exists()
    assert str(earlier[1].detail) == f"{planned.log(10)}: time-not-reached, decided on again"
    longer = planned.applied(policy=TopicPolicy(retention_ms=1000))
    assert _outcomes(longer) == ["gone", "not-due", "behind"]
    first, second, *others = planned.then.segments
    planned.then = replace(planned.then, segments=[first, replace(second, fully_read=False), *others])
    [_, damaged, later] = planned.applied()
    assert (damaged.outcome, later.outcome) == (DeletionOutcome.NOT_DUE, DeletionOutcome.AFTER_KEPT)
    assert str(damaged.detail).endswith("not-well, decided on again") and planned.log(10).exists()


def _taken_away(log: Path) -> None:
    log.unlink()


def _emptied(log: Path) -> None:
    os.truncate(log, 0)


def _led_elsewhere(log: Path) -> None:
    log.rename(log.with_suffix(".elsewhere"))
    log.symlink_to(log.with_suffix(".elsewhere"))


@pytest.mark.parametrize("base_offset", [0, 10, 25, 40])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_taken_away, "not there as a file; planned as 100 bytes: run build_index and plan again"),
        (_emptied, "0 bytes, modified at "),
        (_led_elsewhere, "not there as a file; planned as 100 bytes"),
    ],
)
def test_a_log_that_is_missing_or_empty_is_named_and_its_partition_left_alone(
    change: Callable[[Path], None], message: str, base_offset: int, planned: _Planned
) -> None:
    """A log that was to go, or one that was to stay: a limit of size counts what stays."""
    log = planned.log(base_offset)
    change(log)
    before = {path.name for path in planned.directory.iterdir()}
    results = planned.applied(policy=TopicPolicy(retention_ms=-1, retention_bytes=_BYTES))
    reported = [found for found in results if found.detail is not None]
    assert [(found.segment.base_offset, found.outcome) for found in reported] == [
        (base_offset, DeletionOutcome.CHANGED)
    ]
    assert str(reported[0].detail).startswith(f"{log}: {message}")
    assert {found.outcome for found in results if found not in reported} == {DeletionOutcome.LEFT}
    assert {path.name for path in planned.directory.iterdir()} == before


def test_every_log_of_a_partition_that_has_changed_is_named(planned: _Planned) -> None:
    for base_offset in (10, 40):
        planned.log(base_offset).unlink()
    results = planned.applied()
    assert _outcomes(results) == ["left", "changed", "left", "changed"]
    assert [str(found.detail).partition(": ")[0] for found in results if found.detail is not None] == [
        str(planned.log(base_offset)) for base_offset in (10, 40)
    ]


def test_a_log_that_could_not_be_read_holds_up_none_before_it(planned: _Planned) -> None:
    """Nothing was recorded of it that it could differ from; it stays, as it was not fully read."""
    *others, last = planned.then.segments
    unread = replace(last, file=replace(last.file, log_bytes=0, log_mtime_ns=None, log_inode=None), fully_read=False)
    planned.then = replace(planned.then, segments=[*others, unread])
    assert _outcomes(planned.applied()) == ["deleted"] * 3


def test_a_directory_that_is_away_is_told_once(planned: _Planned) -> None:
    planned.directory.rename(planned.root / "away")
    results = planned.applied()
    assert _outcomes(results) == ["changed", "behind", "behind"]
    assert [found.detail is None for found in results] == [False, True, True]
    assert str(results[0].detail).startswith(f"{planned.directory}: no such directory; is it mounted?")


def test_a_log_of_the_same_size_and_time_is_another(planned: _Planned) -> None:
    """An older snapshot restored with its times: the inode tells."""
    log, status = planned.log(10), planned.log(10).stat()
    shutil.copy(log, planned.root / "other")
    os.replace(planned.root / "other", log)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    results = planned.applied()
    assert _outcomes(results) == ["left", "changed", "left"]
    assert f"inode {log.stat().st_ino}; planned as" in str(results[1].detail)


def test_a_log_that_cannot_be_reached_stays(planned: _Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its partition: what a limit of size comes to is not known without it."""
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if path == segment_file(40, LOG_SUFFIX):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)
    results = planned.applied()
    assert _outcomes(results) == ["changed", "behind", "behind"]
    assert "not reached: Input/output error" in str(results[0].detail)
