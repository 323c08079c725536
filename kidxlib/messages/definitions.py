"""The definitions of Kafka's messages, as its jars have them: which fields a message has in which version.

Source: Kafka's `generator/src/main/resources/common/message/README.md`, `MessageSpec`, `FieldSpec`, `Versions`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

_VERSION_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions from `lowest` to `highest`, both included; none where `highest` is smaller."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def nearest(self, version: int) -> int:
        """The version among these that is nearest to `version`."""
        return min(max(version, self.lowest), self.highest)

    def intersection(self, other: Versions) -> Versions:
        return Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))


_NO_VERSIONS: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a message.

    Attributes:
        name: as in Kafka's JSON: its first letter is small.
        type: `int32`, `string`, …, the name of a struct, or either behind `[]` for an array of them.
        versions: those that have it.
        nullable: those in which it may be null.
        tagged: those in which it stands among the tagged fields, and only where it is not the default.
        tag: its number there; None where it is tagged in no version.
        default: its value in versions that lack it, as the definition says it; "" for the default of its type.
        fields: those of a struct that is defined in place; None where it is no struct, or a common one.
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
        """The type of an array's elements; None of other types."""
        return self.type[2:] if self.type.startswith("[]") else None


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct that several fields of a message have."""

    versions: Versions
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # there is one of each, which a cache finds by identity
class Message:
    """A message.

    Attributes:
        name: as `PartitionRecord`.
        api_key: what stands before it for its type; None of a message that is no record of a topic.
        kind: `metadata`, `coordinator-key`, `coordinator-value` or `data`.
        versions: those that Kafka writes or reads.
        flexible: those with compact lengths and tagged fields.
        fields: in the order of its bytes.
        structs: the common structs of its fields, by name.
    """

    name: str
    api_key: int | None
    kind: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    structs: Mapping[str, Struct]


def kafka_version() -> str:
    """The release that the definitions are of."""
    version: str = _content()["kafka"]
    return version


@functools.cache
def messages_of(module: str) -> Mapping[str, Message]:
    """All messages that a module of Kafka, as `kafka-metadata`, has in its jar and that are known here, by name."""
    messages = map(_message, _content()["modules"][module])
    return {message.name: message for message in messages}


@functools.cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(resources.files(__package__).joinpath("definitions.json").read_bytes())
    return content


def _message(given: Mapping[str, Any]) -> Message:
    return Message(
        name=given["name"],
        api_key=given.get("apiKey"),
        kind=given["type"],
        versions=_versions(given["validVersions"]),
        flexible=_versions(given["flexibleVersions"]),
        fields=_fields(given["fields"]),
        structs={
            struct["name"]: Struct(_versions(struct["versions"]), _fields(struct["fields"]))
            for struct in given.get("commonStructs", ())
        },
    )


def _fields(given: Sequence[Mapping[str, Any]]) -> tuple[Field, ...]:
    return tuple(map(_field, given))


def _field(given: Mapping[str, Any]) -> Field:
    name, versions = given["name"], _versions(given.get("versions", given.get("taggedVersions")))
    return Field(
        name=name[0].lower() + name[1:],
        type=given["type"],
        versions=versions,
        nullable=_versions(given.get("nullableVersions")),
        tagged=_versions(given.get("taggedVersions")),
        tag=given.get("tag"),
        default=str(given.get("default", "")),
        fields=_fields(given["fields"]) if "fields" in given else None,
    )


def _versions(text: str | None) -> Versions:
    """`none`, `3`, `1-4` or `2+`."""
    if text is None or text == "none":
        return _NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _VERSION_MAX)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))
