"""What retention does with a segment, why, and what a person would not expect of it."""

from __future__ import annotations

import enum
from typing import Final


class Decision(enum.StrEnum):
    """What retention does with a segment."""

    DELETE = "delete"
    KEEP = "keep"
    UNDECIDED = "undecided"  # nobody said what it would rest on


class Reason(enum.StrEnum):
    """Why a segment is deleted or stays."""

    # it goes
    LOG_START = "log-start"
    SIZE = "size"
    TIME = "time"
    # it stays
    ACTIVE = "active"
    HIGH_WATERMARK = "high-watermark"
    AFTER_KEPT = "behind"
    TIME_NOT_REACHED = "time-not-reached"
    FUTURE_TIMESTAMP = "future-timestamp"
    NO_TIMESTAMPS = "no-timestamps"
    SIZE_NOT_REACHED = "size-not-reached"
    NO_LIMIT = "no-limit"
    COMPACTED = "compacted"
    NO_POLICY = "no-policy"
    NOT_WELL = "not-well"
    LOOKS_COMPACTED = "looks-compacted"
    INTERNAL_TOPIC = "internal-topic"
    NOT_MODELLED = "not modelled"
    # it is not decided on
    POLICY_UNKNOWN = "policy-unknown"


#: By the numbers that stand for them in columns.
REASONS: Final = tuple(Reason)
#: With these a segment goes, with all others it stays.
_GOING: Final = frozenset({Reason.LOG_START, Reason.SIZE, Reason.TIME})


def decision_of(reason: Reason) -> Decision:
    """The decision that a reason gives."""
    if reason in _GOING:
        return Decision.DELETE
    return Decision.UNDECIDED if reason is Reason.POLICY_UNKNOWN else Decision.KEEP


class PlanWarning(enum.StrEnum):
    """What a person would not expect of a decision."""

    WHOLE_PARTITION = "whole-partition"
    LOOKS_COMPACTED = "looks-compacted"
    FUTURE_TIMESTAMP = "future-timestamp"
    TIMESTAMPS_IN_SECONDS = "timestamps-in-seconds"
    TIMESTAMPS_BACKWARDS = "timestamps-backwards"
    ONLY_REPLICA = "only-replica"
    LATE_HIGH_WATERMARK = "late-high-watermark"
    TIME_INDEX_PADDED = "time-index-padded"
    TIME_INDEX_INCOMPLETE = "time-index-cut-short"
