"""A plan's partition decided on again before anything is renamed: what has changed, or would not go now, stays."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.names import LOG_SUFFIX, segment_file
from kidxlib.publish import Folder, Retirer
from kidxlib.reconsider import PartitionThen, SegmentThen, reconsidered
from kidxlib.retention import TopicPolicy
from kidxlib.retire import Outcome, PlannedSegment, Retired, Retirement, carry_out

_BASE_OFFSETS: Final = (0, 10, 25, 40)
_BYTES: Final = 100
#: Each segment's largest timestamp is its base offset, and at this time the first three are older than 10 ms.
_NOW: Final = 36
_POLICY: Final = TopicPolicy(retention_ms=10)


class _Planned:
    """A log dir with one partition, of which three segments are planned to go."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "t-0"
        self.folder.mkdir(parents=True)
        for base_offset in _BASE_OFFSETS:
            self.log(base_offset).write_bytes(bytes(_BYTES))
        (self.folder / "partition.metadata").write_text("version: 0\ntopic_id: abc\n")
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
                    well=True,
                )
                for file, next_offset in zip(files, (*_BASE_OFFSETS[1:], 50), strict=True)
            ],
        )
        here = Folder(str(root), "t-0")
        self.retirement = Retirement(("it", "t", 0), here, here, tuple(files[:3]))

    def log(self, base_offset: int) -> Path:
        return self.folder / segment_file(base_offset, LOG_SUFFIX)

    def checkpoint(self, name: str, offset: int) -> None:
        (self.root / name).write_text(f"0\n1\nt 0 {offset}\n")

    def _file(self, base_offset: int) -> PlannedSegment:
        status = self.log(base_offset).stat()
        return PlannedSegment(base_offset, status.st_size, status.st_mtime_ns, status.st_ino)

    def carried_out(self, now_ms: int = _NOW, policy: TopicPolicy = _POLICY) -> list[Retired]:
        with Retirer() as retirer:
            again = reconsidered(retirer, self.retirement, self.then, policy, now_ms)
        return carry_out([again], lambda _: None, lambda: None)


@pytest.fixture
def planned(tmp_path: Path) -> _Planned:
    return _Planned(tmp_path / "logs")


def _outcomes(retired: list[Retired]) -> list[str]:
    return [found.outcome.value for found in retired]


def test_what_is_as_it_was_goes_as_planned(planned: _Planned) -> None:
    assert _outcomes(planned.carried_out()) == ["deleted"] * 3
    assert [planned.log(base_offset).exists() for base_offset in _BASE_OFFSETS] == [False, False, False, True]
    assert _outcomes(planned.carried_out()) == ["gone"] * 3


def test_what_a_run_before_has_renamed_is_finished(planned: _Planned) -> None:
    """With sizes as they were, also where a limit of size decides."""
    for base_offset in _BASE_OFFSETS[:2]:
        planned.log(base_offset).rename(f"{planned.log(base_offset)}.deleted")
    by_size = TopicPolicy(retention_ms=-1, retention_bytes=_BYTES)
    assert _outcomes(planned.carried_out(policy=by_size)) == ["deleted"] * 3
    assert sorted(path.name for path in planned.folder.glob("*.log*")) == [segment_file(40, LOG_SUFFIX)]


def _topic_made_anew(planned: _Planned) -> None:
    (planned.folder / "partition.metadata").write_text("version: 0\ntopic_id: xyz\n")


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
    retired = planned.carried_out()
    assert _outcomes(retired) == ["changed", "behind", "behind"]
    assert message in str(retired[0].detail) and str(retired[0].detail).endswith("build again and plan again")
    assert all(planned.log(base_offset).exists() for base_offset in _BASE_OFFSETS)


def test_what_would_not_go_now_stays(planned: _Planned) -> None:
    """By the clock, by the policy, or as the catalog says by now that it is damaged; with all behind it."""
    earlier = planned.carried_out(now_ms=15)
    assert _outcomes(earlier)[1:] == ["not-due", "behind"] and planned.log(10).exists()
    assert str(earlier[1].detail) == f"{planned.log(10)}: time-not-reached, decided on again"
    longer = planned.carried_out(policy=TopicPolicy(retention_ms=1000))
    assert _outcomes(longer) == ["gone", "not-due", "behind"]
    first, second, *others = planned.then.segments
    planned.then = replace(planned.then, segments=[first, replace(second, well=False), *others])
    [_, damaged, behind] = planned.carried_out()
    assert (damaged.outcome, behind.outcome) == (Outcome.NOT_DUE, Outcome.BEHIND)
    assert str(damaged.detail).endswith("not-well, decided on again") and planned.log(10).exists()


def test_a_log_of_the_same_size_and_time_is_another(planned: _Planned) -> None:
    """An older snapshot restored with its times: the inode tells."""
    log, status = planned.log(10), planned.log(10).stat()
    shutil.copy(log, planned.root / "other")
    os.replace(planned.root / "other", log)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    retired = planned.carried_out()
    assert _outcomes(retired) == ["deleted", "changed", "behind"]
    assert f"inode {log.stat().st_ino}; planned as" in str(retired[1].detail)


def test_a_log_that_cannot_be_reached_stays(planned: _Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its partition: what a limit of size comes to is not known without it."""
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if path == segment_file(40, LOG_SUFFIX):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)
    retired = planned.carried_out()
    assert _outcomes(retired) == ["changed", "behind", "behind"]
    assert "not reached: Input/output error" in str(retired[0].detail)
