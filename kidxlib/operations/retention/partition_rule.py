"""What a partition's segments are decided by: its bounds, its topic's policy, and what keeps all of them."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from dataclasses import dataclass

from kidxlib.format.segment_files import parse_segment_log
from kidxlib.operations.retention.partition import Partition
from kidxlib.operations.retention.plan_options import PlanOptions
from kidxlib.retention.decide import Decisions, decide, keep_all
from kidxlib.retention.partition import Bounds, Segments
from kidxlib.retention.policy import TopicConfig, kept_for_its_topic
from kidxlib.retention.reasons import Reason
from kidxlib.retention.topic_policy import TopicPolicy


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """What a partition's segments are decided by.

    Attributes:
        kept: why all of them stay; None where the policy decides.
    """

    bounds: Bounds
    policy: TopicPolicy
    kept: Reason | None
    now_ms: int
    looks_compacted: bool

    @classmethod
    def of(
        cls, partition: Partition, config: TopicConfig, options: PlanOptions, compacted: Collection[str]
    ) -> PartitionRule:
        """The rule of a partition.

        Args:
            compacted: topics that look so.
        """
        topic = partition.of_first_row("topic")
        kept = kept_for_its_topic(
            topic,
            config,
            include_internal=options.include_internal,
            what_if=options.what_if,
            looks_compacted=topic in compacted,
        )
        if parse_segment_log(posixpath.basename(partition.of_first_row("log_path"))) is None:
            kept = Reason.NOT_MODELLED  # a copy in a bucket of tiered storage: RemoteLogManager decides of it otherwise
        return cls(partition.bounds(config.policy), config.policy, kept, options.now_ms, topic in compacted)

    def decide(self, segments: Segments) -> Decisions:
        """What becomes of its segments."""
        if self.kept is not None:
            return keep_all(segments, self.kept)
        return decide(segments, self.bounds, self.policy, self.now_ms)
