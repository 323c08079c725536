"""What a plan is made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kidxlib.retention.policy import TopicConfig

#: By topic, what its configuration says by each policy's name; every topic has all policies.
Configs = Mapping[str, Mapping[str, TopicConfig]]

#: The column beside the catalog's that says so of a segment's partition.
IS_ONLY_REPLICA: Final = "is_only_replica"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan is made for.

    Attributes:
        from_files: look at each time index, too.
        what_if: take Kafka's own defaults where nobody said anything; nothing is deleted by such a plan.
    """

    now_ms: int
    from_files: bool
    include_internal: bool
    what_if: bool
