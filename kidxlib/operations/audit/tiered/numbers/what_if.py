"""What other retention settings would free on both sides, by the rules of `kidxlib.retention.decide`.

In the bucket, a leader deletes the first segments that are too old, or too many together with what is not copied yet
(`RLMExpirationTask.cleanupExpiredRemoteLogSegments`). In log dirs, `local.retention` deletes the first segments that
are copied, and what lies before the start of the bucket goes, too (`UnifiedLog.deleteOldSegments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.audit.tiered.numbers.local_logs import LocalLog
from kidxlib.operations.audit.tiered.numbers.settings import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    RETENTION_BYTES,
    RETENTION_MS,
    SETTINGS,
)
from kidxlib.operations.audit.tiered.numbers.sizes import Sides, TopicId, highest_copied
from kidxlib.retention.decide import decide
from kidxlib.retention.partition import Bounds, Segments
from kidxlib.retention.topic_policy import UNLIMITED, TopicPolicy

#: A local limit that is the other one.
_AS_THE_OTHER: Final = -2
_NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Amount:
    """Segments, and the bytes of their logs."""

    segments: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.segments + other.segments, self.bytes + other.bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.segments - other.segments, self.bytes - other.bytes)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What goes on each side."""

    remote: Amount = Amount()
    local: Amount = Amount()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What other settings would free of a topic.

    Attributes:
        due: what goes by its own settings.
        then: what goes by the others.
        unknown: settings that nobody has said; no limit stands in for each.
    """

    topic: str
    topic_id: str
    due: Deleted
    then: Deleted
    unknown: Sequence[str]

    @property
    def freed(self) -> Deleted:
        """What would go besides; below 0 what would stay."""
        return Deleted(self.then.remote - self.due.remote, self.then.local - self.due.local)


def what_if(sides: Sides, own: Mapping[TopicId, Mapping[str, int]], others: Mapping[str, int]) -> list[WhatIf]:
    """What other settings would free of each topic, in the order of names.

    Args:
        own: the settings that each topic has, by Kafka's names; those that are known.
        others: that it would have.
    """
    found: dict[TopicId, WhatIf] = {}
    for partition in sides.partitions:
        topic = partition.topic, partition.topic_id
        settings = own.get(topic, {})
        due, then = _deleted(sides, partition, settings), _deleted(sides, partition, {**settings, **others})
        known = found.get(topic)
        if known is not None:
            due, then = _sum(known.due, due), _sum(known.then, then)
        unknown = [name for name in SETTINGS if name not in settings and name not in others]
        found[topic] = WhatIf(topic=topic[0], topic_id=topic[1], due=due, then=then, unknown=unknown)
    return list(found.values())


def _sum(one: Deleted, other: Deleted) -> Deleted:
    return Deleted(one.remote + other.remote, one.local + other.local)


def _deleted(sides: Sides, partition: TopicIdPartition, settings: Mapping[str, int]) -> Deleted:
    remote, copied_to = _remote(sides.remote_of(partition)), highest_copied(sides.remote_of(partition)) + 1
    ms, bytes_ = settings.get(RETENTION_MS, UNLIMITED), settings.get(RETENTION_BYTES, UNLIMITED)
    gone = 0
    if len(remote):
        whole, end = _with_what_is_not_copied(remote, sides.furthest(partition), copied_to)
        policy = TopicPolicy(retention_ms=ms, retention_bytes=bytes_)
        # A leader takes what is as old as the limit, and not only what is older.
        decisions = decide(whole, Bounds(0, end, _NO_END if len(whole) > len(remote) else end), policy, _after(sides))
        gone = min(decisions.deleted, len(remote))
    start = copied_to if gone == len(remote) else int(remote.base_offsets[gone])
    local_ms, local_bytes = settings.get(LOCAL_RETENTION_MS, UNLIMITED), settings.get(LOCAL_RETENTION_BYTES, UNLIMITED)
    local = TopicPolicy(
        retention_ms=ms if local_ms == _AS_THE_OTHER else local_ms,
        retention_bytes=bytes_ if local_bytes == _AS_THE_OTHER else local_bytes,
    )
    of_logs = Amount()
    for log in sides.logs.get(partition, ()):
        segments = replace(log.segments, max_timestamps=log.largest_timestamps(range(len(log.segments))))
        of_logs += _first(segments, decide(segments, Bounds(start, copied_to, _NO_END), local, sides.as_of_ms).deleted)
    return Deleted(_first(remote, gone), of_logs)


def _after(sides: Sides) -> int:
    return sides.as_of_ms + 1


def _remote(rows: pa.Table) -> Segments:
    return Segments(
        base_offsets=rows["start_offset"].to_numpy(),
        sizes=rows["log_bytes"].to_numpy(),
        max_timestamps=rows["max_timestamp_ms"].to_numpy(),
        mtimes_ms=rows["copied_at_ms"].to_numpy(),
        fully_read=np.ones(rows.num_rows, np.bool_),
    )


def _with_what_is_not_copied(remote: Segments, log: LocalLog | None, copied_to: int) -> tuple[Segments, int]:
    """The whole partition, and the offset up to which it is copied."""
    is_local = np.zeros(0, np.bool_) if log is None else log.segments.base_offsets >= copied_to
    if log is None or not is_local.any():
        return remote, copied_to
    only_local = log.segments.part(int(np.argmax(is_local)), len(log.segments))
    pairs = ((getattr(remote, name), getattr(only_local, name)) for name in Segments.__slots__)
    return Segments(*(np.concatenate(pair) for pair in pairs)), int(only_local.base_offsets[0])


def _first(segments: Segments, count: int) -> Amount:
    return Amount(count, int(segments.sizes[:count].sum()))
