"""The definitions of Kafka's messages from its jars: which fields a message has in which version.

Source: Kafka's `generator/src/main/resources/common/message/README.md`, `MessageSpec`, `FieldSpec`, `Versions`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from kidxlib.format.kafka_release import NEWEST, KafkaRelease

_VERSION_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions from `lowest` to `highest`, both inclusive; none if `highest` is smaller."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def nearest(self, version: int) -> int:
        return min(max(version, self.lowest), self.highest)

    def intersection(self, other: Versions) -> Versions:
        return Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))


_NO_VERSIONS: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a message.

    Attributes:
        name: as in Kafka's JSON, with a small first letter.
        type: `int32`, `string`, …, or the name of a struct; with `[]` before it for an array.
        versions: the versions with the field.
        nullable: the versions in which it may be null.
        tagged: the versions in which it is a tagged field, written only if it is not the default.
        tag: the number of the tag; None if the field is tagged in no version.
        default: the value in versions without the field, as in the definition; "" for the default of the type.
        fields: the fields of a struct defined in place; None for a common struct or another type.
    """

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: str
    fields: tuple[Field, ...] | None

    @property
    def element_type(self) -> str | None:
        """The type of an array's elements; None for other types."""
        return self.type[2:] if self.type.startswith("[]") else None


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct that several fields of a message have."""

    versions: Versions
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # there is one of each, which a cache finds by identity
class MessageDefinition:
    """What Kafka's definition says of a message: its fields, and the versions that have them.

    Attributes:
        name: such as `PartitionRecord`.
        api_key: the type's number before the message in a record; None if it is not a topic's record.
        kind: `metadata`, `coordinator-key`, `coordinator-value` or `data`.
        versions: the versions that Kafka writes or reads.
        flexible: the versions with compact lengths and tagged fields.
        fields: in the order of the bytes.
        structs: the common structs of the fields, by name.
        since: the first Kafka that has the message; None if the oldest definitions have it.
        release: the Kafka that has the message so.
        is_by_release: whether an older one lacks the message, or fields of it.
    """

    name: str
    api_key: int | None
    kind: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    structs: Mapping[str, Struct]
    since: KafkaRelease | None
    release: KafkaRelease
    is_by_release: bool


@functools.cache
def messages_of(module: str, release: KafkaRelease = NEWEST) -> Mapping[str, MessageDefinition]:
    """The messages of a module of Kafka, such as `kafka-metadata`, by name, as far as `definitions.json` has them. They
    are as a release has them: what came later is left out.
    """
    messages = (_message(given, release) for given in _content()["modules"][module] if _is_in(given, release))
    return {message.name: message for message in messages}


@functools.cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(resources.files(__package__).joinpath("definitions.json").read_bytes())
    return content


def _is_in(given: Mapping[str, Any], release: KafkaRelease) -> bool:
    """Whether a release has a message or a field: those that came later than the oldest definitions say since when."""
    since = _since(given)
    return since is None or since <= release


def _since(given: Mapping[str, Any]) -> KafkaRelease | None:
    return KafkaRelease.parse(given.get("since", ""))


def _message(given: Mapping[str, Any], release: KafkaRelease) -> MessageDefinition:
    return MessageDefinition(
        name=given["name"],
        api_key=given.get("apiKey"),
        kind=given["type"],
        versions=_versions(given["validVersions"]),
        flexible=_versions(given["flexibleVersions"]),
        fields=_fields(given["fields"], release),
        structs={
            struct["name"]: Struct(_versions(struct["versions"]), _fields(struct["fields"], release))
            for struct in given.get("commonStructs", ())
        },
        since=_since(given),
        release=release,
        is_by_release=_says_since(given),
    )


def _says_since(given: Mapping[str, Any]) -> bool:
    return "since" in given or any(map(_says_since, (*given.get("fields", ()), *given.get("commonStructs", ()))))


def _fields(given: Sequence[Mapping[str, Any]], release: KafkaRelease) -> tuple[Field, ...]:
    return tuple(_field(field, release) for field in given if _is_in(field, release))


def _field(given: Mapping[str, Any], release: KafkaRelease) -> Field:
    name, versions = given["name"], _versions(given.get("versions", given.get("taggedVersions")))
    return Field(
        name=name[0].lower() + name[1:],
        type=given["type"],
        versions=versions,
        nullable=_versions(given.get("nullableVersions")),
        tagged=_versions(given.get("taggedVersions")),
        tag=given.get("tag"),
        default=str(given.get("default", "")),
        fields=_fields(given["fields"], release) if "fields" in given else None,
    )


def _versions(text: str | None) -> Versions:
    """`none`, `3`, `1-4` or `2+`."""
    if text is None or text == "none":
        return _NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _VERSION_MAX)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))
