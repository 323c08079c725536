"""Leader epochs of a log dir beside remote segments, and segments that are not ready to be copied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.audit.tiered.local_log import LocalLog, finding_on_local_epochs, finding_on_local_start, mended_epochs
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochs
from kidxlib.format.segment_files import SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.log.remote.segments import REMOTE_METADATA
from kidxlib.messages.remote_log_metadata import SegmentState
from tests.support.audits import audited, verified


def test_the_gate_of_tiering(tree: Path) -> None:
    """All inactive segments pass; without a snapshot at the next base offset, a sound index or an epoch they do not."""
    directory = tree / "txn-mixed-0"
    assert verified(tree, "--require-tiering", code=0)["not_ready"] == []
    (directory / segment_file(5797, SNAPSHOT_SUFFIX)).unlink()
    spoilt = directory / segment_file(5891, SNAPSHOT_SUFFIX)
    spoilt.write_bytes(spoilt.read_bytes()[:-1])
    (directory / segment_file(0, TIME_INDEX_SUFFIX)).unlink()
    os.truncate(directory / segment_file(5891, TIME_INDEX_SUFFIX), 0)  # of the active one, which stays
    found = audited(tree, tiering=True).not_ready
    assert {each.base_offset: each.missing for each in found} == {
        0: [".timeindex is missing"],
        84: [".snapshot at 5797 is missing"],
        5797: [".snapshot at 5891 is broken: unreadable"],
    }
    (directory / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 90\n")
    found = verified(tree, "--require-tiering", code=3)["not_ready"]
    assert "leader-epoch-checkpoint has no epoch before 84" in found[0]["missing"]
    assert len(found[1]["missing"]) == 1, "it began within the second one"


_FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED.name
#: First and last offset of a remote segment, and where its epochs begin.
_Segment = tuple[int, int, Mapping[int, int]]
_TWO: Final[list[_Segment]] = [(0, 99, {0: 0}), (100, 199, {0: 100, 3: 150})]


def _rows(segments: list[_Segment], **values: Any) -> pa.Table:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "topic_id": "A" * 22,
            "start_offset": first,
            "end_offset": last,
            "segment_id": f"s{number}",
            "state": _FINISHED,
            "state_since_ms": 0,
            "broker_id": 1,
            "copied_at_ms": 0,
            "max_timestamp_ms": 0,
            "log_bytes": 10,
            "leader_epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in epochs.items()],
            "transaction_index_empty": True,
            "is_read": True,
            **values,
        }
        for number, (first, last, epochs) in enumerate(segments)
    ]
    return pa.Table.from_pylist(rows, schema=REMOTE_METADATA)


def _epochs(found: Mapping[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(epoch, start) for epoch, start in found.items())


def _local(first_offset: int | None, log_start_offset: int = 0) -> LocalLog:
    return LocalLog(entries=None, log_start_offset=log_start_offset, first_offset=first_offset, end_offset=None)


@pytest.mark.parametrize(
    ("local", "of_log", "expected"),
    [
        (_local(200), {}, {0: 0, 3: 150}),
        (_local(200), {3: 200, 7: 210}, {0: 0, 3: 150, 7: 210}),
        (_local(200), {5: 200}, {0: 0, 3: 150, 5: 200}),
        (_local(100), {0: 100, 3: 150, 4: 220}, {0: 0, 3: 150, 4: 220}),
        (_local(160), {3: 160}, {0: 0, 3: 150}),
        (_local(200, log_start_offset=170), {3: 200}, {3: 170}),
        (_local(200, log_start_offset=120), {3: 200}, {0: 120, 3: 150}),
    ],
)
def test_epochs_are_those_of_the_bucket_and_then_those_of_the_log(
    local: LocalLog, of_log: dict[int, int], expected: dict[int, int]
) -> None:
    mended = mended_epochs(_rows(_TWO), local, _epochs(of_log))
    assert isinstance(mended, LeaderEpochs), mended
    assert {each.epoch: each.start_offset for each in mended.entries} == expected
    assert finding_on_local_epochs(_rows(_TWO), replace(local, entries=mended.entries)) is None


@pytest.mark.parametrize(
    ("segments", "local", "of_log", "why"),
    [
        ([], _local(0), {}, "no remote segment"),
        (_TWO, _local(230), {3: 230}, "offsets 200 to 229 are in no remote segment"),
        (_TWO, _local(100), {0: 100, 2: 150}, "other epochs at offsets 100 to 199"),
        (_TWO, _local(200), {1: 200}, "epoch 1 at offset 200, after epoch 3"),
        ([_TWO[0], (120, 199, {0: 120})], _local(200), {}, "do not follow one another"),
    ],
)
def test_what_is_not_certain_is_not_made(
    segments: list[_Segment], local: LocalLog, of_log: dict[int, int], why: str
) -> None:
    found = mended_epochs(_rows(segments), local, _epochs(of_log))
    assert isinstance(found, str) and why in found


def test_segments_that_brokers_do_not_read_do_not_count() -> None:
    """Those that are being deleted, those that a later leader has replaced, and those below the log start."""
    nothing = _local(200)
    assert finding_on_local_epochs(_rows(_TWO), nothing) is not None
    assert finding_on_local_epochs(_rows(_TWO, state=SegmentState.DELETE_SEGMENT_STARTED.name), nothing) is None
    assert finding_on_local_epochs(_rows(_TWO, is_read=False), nothing) is None
    assert finding_on_local_epochs(_rows(_TWO), _local(200, log_start_offset=200)) is None


def test_epochs_of_a_leader_whose_records_were_never_committed_hide_nothing() -> None:
    """Two leaders have copied offsets 100 to 149; consumers get the later leader's."""
    segments: list[_Segment] = [(0, 149, {0: 0}), (100, 199, {2: 100})]
    local = LocalLog(entries=_epochs({0: 0, 2: 100}).entries, log_start_offset=0, first_offset=200, end_offset=None)
    assert finding_on_local_epochs(_rows(segments), local) is None


@pytest.mark.parametrize(("first_offset", "log_start", "lost"), [(200, 0, False), (201, 0, True), (230, 230, False)])
def test_offsets_that_neither_side_has(first_offset: int, log_start: int, lost: bool) -> None:
    found = finding_on_local_start(_rows(_TWO), _local(first_offset, log_start))
    assert (found is not None) == lost
    if found is not None:
        assert found[0].segment_id == "s1" and "offsets 200 to 200" in (found[1].detail or "")
