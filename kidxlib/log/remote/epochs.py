"""The leader epochs of a partition's remote segments, as the metadata of all segments has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.messages.remote_log_metadata import SegmentState


def read_segments(segments: pa.Table) -> list[dict[str, Any]]:
    """The rows of `REMOTE_METADATA` that are copied and that brokers read."""
    is_copied = segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_FINISHED.name
    wanted = np.array(is_copied & segments["is_read"].to_numpy(), np.bool_)
    rows: list[dict[str, Any]] = segments.filter(pa.array(wanted)).to_pylist() if wanted.any() else []
    return rows


def epochs_up_to(segments: Sequence[Mapping[str, Any]]) -> dict[str, tuple[EpochEntry, ...] | None]:
    """What `RemoteLogManager.copyLogSegment` copies with each segment, but for epochs before the first one that is
    left, of which no record is left either.

    Args:
        segments: rows of `REMOTE_METADATA` of one partition that brokers read, by start offset.

    Returns:
        By segment id. None where segments before it are missing, or two end where it begins.
    """
    ends = Counter(each["end_offset"] for each in segments)
    found: dict[str, tuple[EpochEntry, ...] | None] = {}
    at_end: dict[int, tuple[EpochEntry, ...] | None] = {}
    for number, each in enumerate(segments):
        before = () if number == 0 else at_end.get(each["start_offset"] - 1)
        epochs = None if before is None else _joined(before, each["leader_epochs"])
        found[each["segment_id"]] = epochs
        at_end[each["end_offset"]] = epochs if ends[each["end_offset"]] == 1 else None
    return found


def _joined(before: tuple[EpochEntry, ...], own: Sequence[Mapping[str, int]]) -> tuple[EpochEntry, ...] | None:
    entries = list(before)
    for each in own:
        last = entries[-1] if entries else None
        if last is not None and each["epoch"] < last.epoch:
            return None
        if last is None or each["epoch"] > last.epoch:
            entries.append(EpochEntry(each["epoch"], each["start_offset"]))
    return tuple(entries)
