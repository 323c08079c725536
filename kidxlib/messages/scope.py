"""A message or a struct in one version: which of its fields are there, and what the others have for a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.messages.definitions import Field, Message, Struct, Versions

#: Kafka's default of a UUID: all zeros.
_NO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Scope:
    """A message, or a struct of it, in one version. Kafka's generator has the same as its `curVersions`.

    Attributes:
        message: the message.
        possible: the versions that this part of it can have.
        given: the version that was asked for, whether it is possible or not.
    """

    message: Message
    possible: Versions
    given: int

    @classmethod
    def of(cls, message: Message, version: int) -> Scope:
        """A whole message."""
        return cls(message, message.versions, version)

    @property
    def version(self) -> int:
        """The version that is read: Kafka's classes compare a version with no other than possible ones."""
        return self.possible.nearest(self.given)

    @property
    def is_flexible(self) -> bool:
        """Whether lengths are compact and tagged fields follow."""
        return self.version in self.message.flexible

    def is_in(self, versions: Versions) -> bool:
        """Whether the version is one of these."""
        return self.version in versions

    def refuses(self, struct: Field) -> bool:
        """Whether Kafka throws where it reads or writes a struct of this field: it is defined in place, and the version
        is none that its message has. For common structs Kafka does not look.
        """
        if struct.fields is None:
            return False
        is_above = self.given > self.possible.highest and struct.versions.highest > self.possible.highest
        is_below = self.given < self.possible.lowest and struct.versions.lowest < self.possible.lowest
        return is_above or is_below

    def within(self, struct: Field) -> Scope:
        """A struct of this field."""
        if struct.fields is None:
            return Scope(self.message, self._common(struct).versions, self.given)
        return Scope(self.message, self.possible.intersection(struct.versions), self.given)

    def fields_of(self, struct: Field) -> Sequence[Field]:
        """The fields of a struct of this field."""
        return self._common(struct).fields if struct.fields is None else struct.fields

    def default(self, field: Field) -> Any:
        """The value of a field that was not read."""
        if field.default == "null":
            return None
        if field.element_type is not None:
            return []
        match field.type:
            case "string":
                return field.default
            case "bytes":
                return b""
            case "uuid":
                return field.default or _NO_UUID
            case "bool":
                return field.default.lower() == "true"
            case "float64":
                return float(field.default or 0)
            case "int8" | "int16" | "uint16" | "int32" | "uint32" | "int64":
                return int(field.default or "0", 0)
            case _:
                return {inner.name: self.default(inner) for inner in self.fields_of(field)}

    def _common(self, struct: Field) -> Struct:
        return self.message.structs[struct.element_type or struct.type]
