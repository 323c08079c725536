"""Kafka's messages with random values, and their bytes: the inverse of `kidxlib.messages.reading`."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Sequence
from typing import Any, Final

from kidxlib.messages.definitions import Field, Message
from kidxlib.messages.reading import Scope, Values

#: The size in bytes of each integer type, and whether it is signed.
_INTEGERS: Final = {
    "int8": (1, True),
    "int16": (2, True),
    "uint16": (2, False),
    "int32": (4, True),
    "uint32": (4, False),
    "int64": (8, True),
}
_TEXTS: Final = ("", "a", "consumer", "größer\u2028", '"quoted\\"', "\0\x1f\n\t\x7f", "\U0001f600", "x" * 200)
_DOUBLES: Final = (0.0, -0.0, 1.5, 1e7, 123456.75, 0.001, 0.00025, 1e300, float("nan"), float("inf"))


def random_values(message: Message, version: int, rng: random.Random) -> Values:
    """Values of all fields; those that the version lacks have their defaults."""
    return _random_struct(Scope.of(message, version), message.fields, rng)


def _random_struct(scope: Scope, fields: Sequence[Field], rng: random.Random) -> Values:
    return {
        field.name: _random(scope, field, rng) if scope.is_in(field.versions) else scope.default(field)
        for field in fields
    }


def _random(scope: Scope, field: Field, rng: random.Random) -> Any:
    if rng.random() < 0.2:
        default = scope.default(field)
        if default is not None or scope.is_in(field.nullable):
            return default
    if scope.is_in(field.nullable) and rng.random() < 0.2:
        return None
    if field.element_type is not None:
        return [_random_value(scope, field, field.element_type, rng) for _ in range(rng.randrange(4))]
    return _random_value(scope, field, field.type, rng)


def _random_value(scope: Scope, field: Field, kind: str, rng: random.Random) -> Any:
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_TEXTS)
        case "bytes":
            return rng.randbytes(rng.randrange(5))
        case "uuid":
            return base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:-2]
        case "float64":
            return rng.choice(_DOUBLES)
        case _ if kind in _INTEGERS:
            size, signed = _INTEGERS[kind]
            bits = rng.choice((3, 8 * size))
            return int.from_bytes((rng.getrandbits(bits)).to_bytes(size), signed=signed)
        case _:
            return _random_struct(scope.within(field), scope.fields_of(field), rng)


def encoded(message: Message, values: Values, version: int) -> bytes:
    """A message's bytes as Kafka writes them. Tagged fields that are not among the values have their defaults."""
    return _encoded_struct(Scope.of(message, version), message.fields, values)


def _encoded_struct(scope: Scope, fields: Sequence[Field], values: Values) -> bytes:
    present = [field for field in fields if scope.is_in(field.versions)]
    data = b"".join(_encoded(scope, field, values[field.name]) for field in present if not scope.is_in(field.tagged))
    if not scope.is_flexible:
        return data
    tagged = [
        (field.tag, _encoded(scope, field, values[field.name]))
        for field in present
        if scope.is_in(field.tagged) and values.get(field.name, scope.default(field)) != scope.default(field)
    ]
    in_order = sorted((tag, content) for tag, content in tagged if tag is not None)
    encoded_tags = (varint(tag) + varint(len(content)) + content for tag, content in in_order)
    return data + varint(len(in_order)) + b"".join(encoded_tags)


def _encoded(scope: Scope, field: Field, value: Any) -> bytes:
    if field.element_type is not None:
        if value is None:
            return _length(scope, -1, 4)
        elements = (_encoded_value(scope, field, field.element_type, element) for element in value)
        return _length(scope, len(value), 4) + b"".join(elements)
    if not isinstance(value, dict) and (value is not None or field.type in ("string", "bytes")):
        return _encoded_value(scope, field, field.type, value)
    if not scope.is_in(field.nullable):
        return _encoded_value(scope, field, field.type, value)
    is_tagged = scope.is_in(field.tagged)
    if value is None:
        return b"\0" if is_tagged else b"\xff"
    return b"\1" + _encoded_value(scope, field, field.type, value)


def _encoded_value(scope: Scope, field: Field, kind: str, value: Any) -> bytes:
    match kind:
        case "bool":
            return b"\1" if value else b"\0"
        case "string" | "bytes":
            size = 2 if kind == "string" else 4
            if value is None:
                return _length(scope, -1, size)
            data: bytes = value.encode() if kind == "string" else value
            return _length(scope, len(data), size) + data
        case "uuid":
            return base64.urlsafe_b64decode(value + "==")
        case "float64":
            return struct.pack(">d", value)
        case _ if kind in _INTEGERS:
            size, signed = _INTEGERS[kind]
            number: int = value
            return number.to_bytes(size, signed=signed)
        case _:
            return _encoded_struct(scope.within(field), scope.fields_of(field), value)


def _length(scope: Scope, length: int, size: int) -> bytes:
    return varint(length + 1) if scope.is_flexible else length.to_bytes(size, signed=True)


def varint(value: int) -> bytes:
    """An unsigned varint (`ByteUtils.writeUnsignedVarint`)."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])
