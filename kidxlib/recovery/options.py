"""What the bytes of the indexes depend on besides the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format import layouts

INTERVAL_BYTES_DEFAULT: Final = 4096
MAX_INDEX_BYTES_DEFAULT: Final = 10 * 1024 * 1024

#: Kafka's names of the two settings.
INTERVAL: Final = "index.interval.bytes"
MAX_INDEX: Final = "segment.index.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """What the bytes of the indexes depend on besides the log.

    Attributes:
        interval_bytes: Kafka's `index.interval.bytes`, at least 0.
        max_index_bytes: Kafka's `segment.index.bytes`, at least 12 (one time index entry).
        verify_crc: False trusts every checksum and reads headers only.
    """

    interval_bytes: int = INTERVAL_BYTES_DEFAULT
    max_index_bytes: int = MAX_INDEX_BYTES_DEFAULT
    verify_crc: bool = True

    def __post_init__(self) -> None:
        if self.interval_bytes < 0 or self.max_index_bytes < layouts.TIME_INDEX_ENTRY.itemsize:
            raise UsageError(
                f"interval_bytes {self.interval_bytes} and max_index_bytes {self.max_index_bytes}: expected at least "
                f"0 and {layouts.TIME_INDEX_ENTRY.itemsize}"
            )

    @property
    def max_offset_entries(self) -> int:
        """How many entries an offset index has room for."""
        return self.max_index_bytes // layouts.OFFSET_INDEX_ENTRY.itemsize

    @property
    def max_time_entries(self) -> int:
        """How many entries a time index has room for."""
        return self.max_index_bytes // layouts.TIME_INDEX_ENTRY.itemsize


@dataclass(frozen=True, slots=True)
class OptionsOfTopic:
    """What a topic's indexes depend on, which is for its id to say: a topic of the same name may be another one.

    Attributes:
        otherwise: for any topic of the name.
        topic_id: of the topic that more is known of; None where nothing is.
        of_topic: what its indexes depend on.
        known: Kafka's names of the settings in `of_topic` that are this topic's own, each with who has set it.
        given: Kafka's names of the settings that the user has given, by an option or in the settings file.
    """

    otherwise: RecoverOptions
    topic_id: str | None = None
    of_topic: RecoverOptions | None = None
    known: tuple[tuple[str, str], ...] = ()
    given: frozenset[str] = frozenset()

    def of_id(self, topic_id: str | None) -> RecoverOptions:
        """For a topic with this id; None where nobody knows it."""
        return self.of_topic if self._is(topic_id) and self.of_topic is not None else self.otherwise

    def known_of(self, topic_id: str | None) -> dict[str, str]:
        """The settings that are the own ones of a topic with this id: by Kafka's names, who has set each."""
        return dict(self.known) if self._is(topic_id) else {}

    def is_told(self, setting: str, topic_id: str | None) -> bool:
        """Whether somebody says what a setting is for a topic with this id; else Kafka's default stands in."""
        return setting in self.given or setting in self.known_of(topic_id)

    def _is(self, topic_id: str | None) -> bool:
        return self.topic_id is not None and self.topic_id == topic_id
