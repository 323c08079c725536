"""Releases of Kafka, where kidx tells them apart: what a node says of its own as it registers, and what differs."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

_TEXT: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,3})?")


class KafkaRelease(NamedTuple):
    """A minor release: between its patches kidx knows no difference."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The release of `4.4` or `4.3.1`; None for another text."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))


#: From here on messages refuse counts that are too large, entries of a `.txnindex` any version but 0, and
#: `kafka-dump-log` names the states of transactions.
KAFKA_4_4: Final = KafkaRelease(4, 4)
#: The last release before these changes, which the older ones are like.
KAFKA_4_3: Final = KafkaRelease(4, 3)

#: The releases whose answers were compared with Kafka's.
OLDEST: Final = KafkaRelease(3, 9)
NEWEST: Final = KAFKA_4_4

#: The feature of which a node names the largest level that it supports, as it registers.
METADATA_VERSION: Final = "metadata.version"
#: The first level of each release (`MetadataVersion`). Level 31 is 4.4's, and in 4.3 too, for brokers that may use
#: levels which are not stable yet.
_FIRST_LEVELS: Final = (
    (32, KAFKA_4_4),
    (30, KAFKA_4_3),
    (28, KafkaRelease(4, 2)),
    (26, KafkaRelease(4, 1)),
    (22, KafkaRelease(4, 0)),
)


def release_of_level(level: int) -> KafkaRelease:
    """The oldest release that supports a level of `metadata.version`. A node says as it registers which level is the
    largest that it supports: it is of that release, or of a newer one by now.
    """
    return next((release for first, release in _FIRST_LEVELS if level >= first), OLDEST)
