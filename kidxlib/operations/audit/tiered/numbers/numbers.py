"""The numbers of an audit, from what it has read and listed, and from log dirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kidxlib.operations.audit.tiered.find import Counts
from kidxlib.operations.audit.tiered.numbers.local_logs import local_logs
from kidxlib.operations.audit.tiered.numbers.settings import SETTINGS
from kidxlib.operations.audit.tiered.numbers.sizes import CopyLag, Sides, TopicId, TopicSizes, sizes_of
from kidxlib.operations.audit.tiered.numbers.what_if import WhatIf, what_if
from kidxlib.operations.audit.tiered.plan import TieredPlan
from kidxlib.operations.audit.tiered.remote_metadata import RemoteMetadata
from kidxlib.operations.audit.tiered.request import TieredRequest
from kidxlib.storage.location import Location


@dataclass(frozen=True, slots=True)
class Numbers:
    """What there is of topics on both sides.

    Attributes:
        as_of_ms: the time as of which ages are told, ms since the epoch.
        log_dirs: those that were looked at.
        topics: in the order of names.
        what_if: what other settings would free; empty where nobody has asked.
    """

    as_of_ms: int
    log_dirs: Sequence[Location] = ()
    topics: Sequence[TopicSizes] = ()
    what_if: Sequence[WhatIf] = ()

    @property
    def lags(self) -> list[CopyLag]:
        """The lags of all partitions that have some, the longest first."""
        found = [lag for topic in self.topics for lag in topic.lags]
        return sorted(found, key=lambda lag: (lag.since_ms, lag.partition.topic, lag.partition.partition))


def numbers_of(request: TieredRequest, plan: TieredPlan, metadata: RemoteMetadata, counts: Counts) -> Numbers:
    """Look at the log dirs of the metadata, and put together what is known of topics."""
    in_metadata = metadata.segments.select(["topic", "topic_id"]).group_by(["topic", "topic_id"]).aggregate([])
    topics: set[TopicId] = {(row["topic"], row["topic_id"]) for row in in_metadata.to_pylist()} | {
        *plan.topics.copied()
    }
    log_dirs = request.log_dirs
    logs = local_logs(log_dirs, topics)
    sides = Sides.of(metadata.segments, logs, plan.as_of.metadata_ms, is_given=request.as_of_ms is not None)
    copied = [topic for topic in topics if plan.topics.is_copied(*topic) is not False]
    own = {
        topic: {name: value for name in SETTINGS if (value := plan.topics.setting(*topic, name)) is not None}
        for topic in topics
    }
    return Numbers(
        as_of_ms=sides.as_of_ms,
        log_dirs=[source.path for source in log_dirs],
        topics=sizes_of(sides, counts.object_bytes, copied),
        what_if=what_if(sides, own, request.what_if) if request.what_if else (),
    )
