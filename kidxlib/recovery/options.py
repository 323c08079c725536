"""The options of recovery, and which of them a topic has."""

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
    """The options that the bytes of indexes depend on, besides the log.

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


#: With so large an interval nothing is indexed, and no index can be wrong.
WITHOUT_INDEXES: Final = RecoverOptions(interval_bytes=layouts.SEGMENT_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class OptionsOfTopic:
    """The options of a topic's indexes, by topic id: another topic may have the same name.

    Attributes:
        otherwise: for a topic of this name with any other id.
        topic_id: the id of the topic in the cluster's metadata; None: it has none.
        of_topic: the options of that topic.
        known: the settings in `of_topic` from the metadata, by Kafka's names, each with who set it.
        given: the settings that the user has given, by Kafka's names, as options or in the settings file.
    """

    otherwise: RecoverOptions
    topic_id: str | None = None
    of_topic: RecoverOptions | None = None
    known: tuple[tuple[str, str], ...] = ()
    given: frozenset[str] = frozenset()

    def of_id(self, topic_id: str | None) -> RecoverOptions:
        """The options of a topic with this id; None: not known."""
        return self.of_topic if self._is_topic(topic_id) and self.of_topic is not None else self.otherwise

    def known_of(self, topic_id: str | None) -> dict[str, str]:
        """The settings that a topic with this id has from the metadata: who set each, by Kafka's names."""
        return dict(self.known) if self._is_topic(topic_id) else {}

    def is_told(self, setting: str, topic_id: str | None) -> bool:
        """Whether the user or the metadata sets a setting for a topic with this id; else it is Kafka's default."""
        return setting in self.given or setting in self.known_of(topic_id)

    def _is_topic(self, topic_id: str | None) -> bool:
        return self.topic_id is not None and self.topic_id == topic_id
