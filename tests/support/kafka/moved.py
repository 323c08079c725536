"""Where Kafka's classes are in the releases that tests compare with.

Tests name a class as the newest Kafka does that they compare with. Where one has moved a class, it gets a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from py4j.java_gateway import JavaPackage

from kidxlib.format.kafka_release import KAFKA_4_3, KAFKA_4_4, KafkaRelease

_UTILS: Final = "org.apache.kafka.common.utils"
#: By the name that a class, or all of a package, has since: the release that gave it this name, and the name before.
_MOVED: Final[Mapping[str, tuple[KafkaRelease, str]]] = {
    "org.apache.kafka.common.message.AbortedTxn": (KAFKA_4_4, "org.apache.kafka.storage.internals.log.AbortedTxn"),
    f"{_UTILS}.internals.AppInfoParser": (KAFKA_4_4, f"{_UTILS}.AppInfoParser"),
    f"{_UTILS}.internals.ByteBufferOutputStream": (KAFKA_4_4, f"{_UTILS}.ByteBufferOutputStream"),
    "org.apache.kafka.tools.ConfigCommand": (KAFKA_4_4, "kafka.admin.ConfigCommand"),
    "org.apache.kafka.common.record.internal": (KAFKA_4_3, "org.apache.kafka.common.record"),
    "org.apache.kafka.metadata.KRaftMetadataCache": (KAFKA_4_3, "kafka.server.metadata.KRaftMetadataCache"),
    "org.apache.kafka.tools.DumpLogSegments": (KAFKA_4_3, "kafka.tools.DumpLogSegments"),
}


class MovedError(Exception):
    """Kafka has no such class, or no such method of a class."""


def class_name(name: str, release: KafkaRelease) -> str:
    """The name that a class has in a release."""
    for moved in (name, name.rpartition(".")[0]):
        since, before = _MOVED.get(moved, (release, moved))
        if release < since:
            return before + name.removeprefix(moved)
    return name


def not_there(package: JavaPackage, *_: object) -> NoReturn:
    """For py4j, a class that Kafka does not have is a package; this is what becomes of a call of it."""
    raise MovedError(f"this Kafka has no {package._fqn}; tests/support/kafka/moved.py says where moved classes are")
