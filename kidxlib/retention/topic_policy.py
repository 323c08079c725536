"""The retention settings of a topic, with Kafka's names and defaults, and the log start that a plan asks for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

#: Kafka's own defaults of `retention.ms` and `retention.bytes`.
RETENTION_MS_DEFAULT: Final = 7 * 24 * 60 * 60 * 1000
RETENTION_BYTES_DEFAULT: Final = -1
#: In a policy: no limit.
UNLIMITED: Final = -1
#: What of a topic's configuration a deletion rests on, by Kafka's names.
DECIDING_CONFIGS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable")


class Cleanup(enum.StrEnum):
    """A value of `cleanup.policy`; a topic may have both, or none."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """The retention settings of a topic's configuration, with Kafka's names.

    Attributes:
        retention_ms, retention_bytes: −1 for no limit.
        cleanup: `cleanup.policy`: by limits, by compaction, by both or by none.
        log_start_offsets: by partition, the offset below which records were deleted, or are to be.
        remote_storage: the topic is tiered, which is not modelled.
    """

    retention_ms: int = RETENTION_MS_DEFAULT
    retention_bytes: int = RETENTION_BYTES_DEFAULT
    cleanup: frozenset[Cleanup] = frozenset({Cleanup.DELETE})
    log_start_offsets: tuple[tuple[int, int], ...] = ()
    remote_storage: bool = False

    @property
    def cleanup_text(self) -> str:
        """`cleanup.policy` as Kafka writes it."""
        return ",".join(sorted(value.value for value in self.cleanup))

    def log_start_asked_for(self, partition: int) -> int | None:
        """The offset below which records of a partition are to be deleted; None if none was asked for."""
        return dict(self.log_start_offsets).get(partition)
