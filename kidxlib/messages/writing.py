"""Writes messages by their definitions, as the classes do that Kafka generates from them (`MessageDataGenerator`; bytes
as `Writable` and `ByteBufferAccessor` write them).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kidxlib.messages.definitions import Field, Message
from kidxlib.messages.reading import Scope

#: Signed integers are written by their size; these have none.
_UNSIGNED: Final = frozenset({"uint16", "uint32"})
_SIZES: Final[Mapping[str, int]] = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
}  # fmt: skip
_NULL: Final = -1


def unsigned_varint(value: int) -> bytes:
    """`ByteUtils.writeUnsignedVarint` of a number from 0 on."""
    if value < 128:  # the usual case
        return bytes((value,))
    digits = bytearray()
    while value >= 128:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def write_message(message: Message, values: Mapping[str, Any], version: int) -> bytes:
    """Write a message.

    Args:
        values: by the names of the fields, as `read_message` gives them; a field that is missing has its default.
        version: one that the message has.

    Raises:
        ValueError: the message does not have the version, or the version lacks a field that is not its default, which
            a reader would not see.
    """
    if version not in message.versions:
        raise ValueError(f"{message.name} of version {version}, which it does not have")
    output = bytearray()
    _write_struct(output, Scope.of(message, version), message.fields, values)
    return bytes(output)


def _write_struct(output: bytearray, scope: Scope, fields: Sequence[Field], values: Mapping[str, Any]) -> None:
    tagged: dict[int, bytes] = {}
    for field in fields:
        default = scope.default(field)
        value = values.get(field.name, default)
        if not scope.is_in(field.versions):
            if value != default:
                raise ValueError(f"{scope.message.name} of version {scope.version} lacks {field.name}")
        elif not scope.is_in(field.tagged):
            _write_field(output, scope, field, value)
        elif value != default:
            content = bytearray()
            _write_field(content, scope, field, value)
            assert field.tag is not None
            tagged[field.tag] = bytes(content)
    if scope.is_flexible:
        output += unsigned_varint(len(tagged))
        for tag, written in sorted(tagged.items()):
            output += unsigned_varint(tag) + unsigned_varint(len(written)) + written


def _write_field(output: bytearray, scope: Scope, field: Field, value: Any) -> None:
    if value is None and not scope.is_in(field.nullable):
        raise ValueError(f"{scope.message.name}: {field.name} is null")
    if field.element_type is not None:
        output += _length(value, scope, 4)
        for element in value or ():
            _write_value(output, scope, field, field.element_type, element)
    elif field.type in _SIZES or field.type in ("float64", "uuid", "string", "bytes"):
        _write_value(output, scope, field, field.type, value)
    else:  # a struct
        if scope.is_in(field.nullable):
            is_tagged, is_there = scope.is_in(field.tagged), value is not None
            output += unsigned_varint(is_there) if is_tagged else (1 if is_there else _NULL).to_bytes(1, signed=True)
        if value is not None:
            _write_value(output, scope, field, field.type, value)


def _write_value(output: bytearray, scope: Scope, field: Field, kind: str, value: Any) -> None:
    match kind:
        case "string":
            text = None if value is None else value.encode()
            output += _length(text, scope, 2) + (text or b"")
        case "bytes":
            output += _length(value, scope, 4) + (value or b"")
        case "uuid":
            output += base64.urlsafe_b64decode(f"{value}==")
        case "float64":
            output += struct.pack(">d", value)
        case _ if kind in _SIZES:
            output += int(value).to_bytes(_SIZES[kind], signed=kind not in _UNSIGNED)
        case _:
            _write_struct(output, scope.within(field), scope.fields_of(field), value)


def _length(value: Any, scope: Scope, size: int) -> bytes:
    """The length before bytes or elements; null has −1."""
    length = _NULL if value is None else len(value)
    return unsigned_varint(length + 1) if scope.is_flexible else length.to_bytes(size, signed=True)
