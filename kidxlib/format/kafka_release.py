"""Releases of Kafka, where kidx tells them apart: what a node says of its own as it registers, and what differs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from kidxlib.errors import UsageError

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

    @classmethod
    def given(cls, option: str, text: str) -> Self:
        """The release that a user has named.

        Raises:
            UsageError: it is none whose answers were compared with Kafka's.
        """
        release = cls.parse(text)
        if release is None or not OLDEST <= release <= NEWEST:
            raise UsageError(f"{option} {text}: expected a version of Kafka from {OLDEST} to {NEWEST}")
        return release


#: From here on messages refuse counts that are too large, entries of a `.txnindex` any version but 0, and
#: `kafka-dump-log` names the states of transactions.
KAFKA_4_4: Final = KafkaRelease(4, 4)
#: The last release before these changes, which the older ones are like.
KAFKA_4_3: Final = KafkaRelease(4, 3)

#: From here on a node starts with a snapshot of offset 0 that has no whole batch, if it knows the voters without it.
FIRST_SNAPSHOT_MAY_BE_EMPTY: Final = KafkaRelease(4, 3)

#: The releases whose answers were compared with Kafka's.
OLDEST: Final = KafkaRelease(3, 9)
NEWEST: Final = KAFKA_4_4


@dataclass(frozen=True, slots=True)
class NodeRelease:
    """Which Kafka's answers count for what is on a node's disk, and who says so.

    Attributes:
        given: the release that the user has named (`--kafka-version`); None without one.
        registered: the one that the node has registered, at least; None where that is not known.
    """

    given: KafkaRelease | None = None
    registered: KafkaRelease | None = None

    @property
    def release(self) -> KafkaRelease:
        """The release that the user has named; else that of the node, if it is known; else the newest."""
        return self.given or self.registered or NEWEST

    @property
    def is_assumed(self) -> bool:
        """Whether nothing says which one it is."""
        return self.given is None and self.registered is None

    def __str__(self) -> str:
        if self.given is not None:
            return f"Kafka {self.given}, as --kafka-version says"
        if self.registered is not None:
            return f"Kafka {self.registered}, as which the node has registered"
        return f"Kafka {NEWEST}, as nothing says which one the node has (--kafka-version VERSION does)"


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
