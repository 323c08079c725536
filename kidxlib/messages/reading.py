"""Reads messages by their definitions: what the classes do that Kafka generates from these (`MessageDataGenerator`).

A reader is put together once for each message and version, so that no definition is looked at again for each record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kidxlib.errors import UnreadableMessageError
from kidxlib.java import as_int
from kidxlib.messages.definitions import Field, Message
from kidxlib.messages.readable import Readable
from kidxlib.messages.scope import Scope

#: A message's values by the names of all its fields; those that the version lacks have their default. Bytes are
#: `bytes`, a UUID is its text, an array a list, a struct a dict as this one. Not to be changed, as defaults are shared.
Values: TypeAlias = dict[str, Any]
_Read: TypeAlias = Callable[[Readable], Any]

_STRING_BYTES_MAX: Final = 0x7FFF
_FIXED: Final[Mapping[str, _Read]] = {
    "bool": lambda readable: readable.number(1) != 0,
    "int8": lambda readable: readable.number(1),
    "int16": lambda readable: readable.number(2),
    "uint16": lambda readable: readable.number(2, signed=False),
    "int32": lambda readable: readable.number(4),
    "uint32": lambda readable: readable.number(4, signed=False),
    "int64": lambda readable: readable.number(8),
    "float64": Readable.double,
    "uuid": Readable.uuid,
}


def read_message(message: Message, readable: Readable, version: int) -> Values:
    """Read a message.

    Args:
        version: one that the message does not have is read as the nearest that it has, as Kafka does; only structs
            that are defined in place refuse it.

    Raises:
        UnreadableMessageError: Kafka throws, too.
    """
    values: Values = _message_reader(message, version)(readable)
    return values


@functools.cache
def _message_reader(message: Message, version: int) -> _Read:
    return _struct_reader(Scope.of(message, version), message.fields)


def _struct_reader(scope: Scope, fields: Iterable[Field]) -> _Read:
    defaults = {field.name: scope.default(field) for field in fields}
    mandatory = [
        (field.name, _field_reader(scope, field))
        for field in fields
        if scope.is_in(field.versions) and not scope.is_in(field.tagged)
    ]
    if not scope.is_flexible:
        return lambda readable: defaults | {name: read_field(readable) for name, read_field in mandatory}
    tagged = {field.tag: (field.name, _tagged_reader(scope, field)) for field in fields if field.tag is not None}

    def read(readable: Readable) -> Values:
        values = defaults | {name: read_field(readable) for name, read_field in mandatory}
        for _ in range(readable.unsigned_varint()):
            tag, size = readable.unsigned_varint(), readable.unsigned_varint()
            if tag in tagged:
                name, read_field = tagged[tag]
                values[name] = read_field(readable)
            else:
                readable.array(size)
        return values

    return read


def _tagged_reader(scope: Scope, field: Field) -> _Read:
    if scope.is_in(field.versions) and scope.is_in(field.tagged):
        return _field_reader(scope, field)
    return _raise("a version that has this tag", f"Tag {field.tag} is not valid for version {scope.given}")


def _field_reader(scope: Scope, field: Field) -> _Read:
    nullable = scope.is_in(field.nullable)
    if field.element_type is not None:
        read_element = _value_reader(scope, field, field.element_type, f"{field.name} element", nullable=False)
        return _array_reader(field.name, read_element, scope.is_flexible, nullable)
    read_value = _value_reader(scope, field, field.type, field.name, nullable)
    if not nullable or field.type in ("string", "bytes"):
        return read_value
    if scope.is_in(field.tagged):
        return lambda readable: None if readable.unsigned_varint() <= 0 else read_value(readable)
    return lambda readable: None if readable.number(1) < 0 else read_value(readable)


def _value_reader(scope: Scope, field: Field, kind: str, name: str, nullable: bool) -> _Read:
    """What reads a value that is no array.

    Args:
        kind: its type: the field's, or that of its elements.
        name: as Kafka's exceptions have it.
    """
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in ("string", "bytes"):
        return _bytes_reader(name, kind == "string", scope.is_flexible, nullable)
    if scope.refuses(field):
        return _raise("a version that Kafka knows", f"Can't read version {scope.given} of {kind}")
    return _struct_reader(scope.within(field), scope.fields_of(field))


def _array_reader(name: str, read_element: _Read, is_flexible: bool, nullable: bool) -> _Read:
    def read(readable: Readable) -> list[Any] | None:
        count = _length(readable, is_flexible, 4)
        if count < 0:
            _check_nullable(name, nullable)
            return None
        if count > readable.remaining:
            raise UnreadableMessageError(
                f"an array of at most {readable.remaining} elements, not of {count}",
                f"Tried to allocate a collection of size {count}, but there are only {readable.remaining} bytes "
                "remaining.",
            )
        return [read_element(readable) for _ in range(count)]

    return read


def _bytes_reader(name: str, is_text: bool, is_flexible: bool, nullable: bool) -> _Read:
    def read(readable: Readable) -> str | bytes | None:
        size = _length(readable, is_flexible, 2 if is_text else 4)
        if size < 0:
            _check_nullable(name, nullable)
            return None
        if is_text and size > _STRING_BYTES_MAX:
            raise UnreadableMessageError(
                f"a text of at most {_STRING_BYTES_MAX} bytes, not of {size}",
                f"string field {name} had invalid length {size}",
            )
        return readable.text(size) if is_text else readable.array(size)

    return read


def _length(readable: Readable, is_flexible: bool, size: int) -> int:
    return as_int(readable.unsigned_varint() - 1) if is_flexible else readable.number(size)


def _check_nullable(name: str, nullable: bool) -> None:
    if not nullable:
        raise UnreadableMessageError(
            f"a value of {name}, not null", f"non-nullable field {name} was serialized as null"
        )


def _raise(expected: str, message: str) -> _Read:
    def read(_readable: Readable) -> Any:
        raise UnreadableMessageError(expected, message)

    return read
