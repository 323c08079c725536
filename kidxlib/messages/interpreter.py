"""Reads messages by their definitions, from bytes and to JSON, and writes them, as the classes do that Kafka generates
from them (`MessageDataGenerator`, `JsonConverterGenerator`; bytes as `Readable`, `Writable` and `ByteBufferAccessor`
have them).

A reader is built once for each message and version, so that definitions are not interpreted again for each record.
"""

from __future__ import annotations

import base64
import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

from kidxlib.errors import UnreadableMessageError
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.java import as_int, boolean_text, double_text, text_of
from kidxlib.messages.definitions import Field, MessageDefinition, Struct, Versions

#: A message's values by the names of all fields; fields that the version lacks have their defaults. Bytes are `bytes`,
#: a UUID is text, an array a list, a struct such a dict. Not to be changed, as defaults are shared.
Values: TypeAlias = dict[str, Any]


class Readable:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """How many bytes are not read yet."""
        return len(self._data) - self._at

    def number(self, size: int, *, signed: bool = True) -> int:
        """The big-endian number in the next `size` bytes."""
        return int.from_bytes(self._primitive(size), signed=signed)

    def numbers(self, layout: str) -> list[Any]:
        """All numbers of an array, laid out as `struct` names it, at once."""
        return list(struct.unpack(layout, self._primitive(struct.calcsize(layout))))

    def double(self) -> float:
        value: float = _DOUBLE.unpack(self._primitive(_DOUBLE.size))[0]
        return value

    def uuid(self) -> str:
        """A UUID as Kafka shows it: URL-safe base64 without padding (`Uuid.toString`)."""
        return _uuid_text(self._primitive(16))

    def unsigned_varint(self) -> int:
        """`ByteUtils.readUnsignedVarint`, whose result Java takes for an int."""
        if self._at < len(self._data) and self._data[self._at] < 128:  # the usual case
            self._at += 1
            return self._data[self._at - 1]
        value = 0
        for shift in range(0, 35, 7):
            byte = self._primitive(1)[0]
            if shift < 28:
                value |= (byte & 127) << shift
            else:  # Java's byte has a sign
                value = as_int(value | (byte - 256 if byte >= 128 else byte) << shift)
            if byte < 128:
                return value
        raise UnreadableMessageError(
            "a number of at most 5 bytes",
            "Varint is too long, the most significant bit in the 5th byte is set, converted value: "
            f"{value & 0xFFFFFFFF:x}",
        )

    def array(self, size: int) -> bytes:
        """The next `size` bytes (`readArray`)."""
        if size > self.remaining:
            self._too_short(f"Error reading byte array of {size} byte(s): only {self.remaining} byte(s) available")
        if size < 0:
            raise UnreadableMessageError("0 bytes or more", str(size))  # NegativeArraySizeException
        start = self._at
        self._at += size
        return self._data[start : self._at]

    def _primitive(self, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > len(self._data):
            self._too_short(None)  # BufferUnderflowException
        self._at = end
        return self._data[start:end]

    def _too_short(self, message: str | None) -> NoReturn:
        raise UnreadableMessageError("more bytes", message)


@functools.lru_cache(maxsize=16 * 1024)  # many records have the same topic's and log dirs' ids
def _uuid_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode()[:-2]


_Read: TypeAlias = Callable[[Readable], Any]

_STRING_BYTES_MAX: Final = 0x7FFF
#: `MessageUtil.MAX_ARRAY_LENGTH` and `MAX_TAGGED_FIELD_COUNT`, from Kafka 4.4 on.
ARRAY_ELEMENTS_MAX: Final = 1_000_000
TAGGED_FIELDS_MAX: Final = 10_000
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

#: Kafka's default of a UUID: all zeros.
_NO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"

_DOUBLE: Final = struct.Struct(">d")

#: Arrays of these are read at once: they are most of what partitions' records have.
_ARRAY_FORMATS: Final[Mapping[str, str]] = {"int16": "h", "int32": "i"}

#: Signed integers are written by their size; these have none.
_UNSIGNED: Final = frozenset({"uint16", "uint32"})
_SIZES: Final[Mapping[str, int]] = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
}  # fmt: skip
_NULL: Final = -1


def read_message(message: MessageDefinition, readable: Readable, version: int) -> Values:
    """Read a message. An unknown version is read as the nearest known one, as in Kafka; only structs that are defined
    in place refuse it.
    """
    values: Values = _message_reader(message, version)(readable)
    return values


@dataclass(frozen=True, slots=True)
class MessageScope:
    """A message, or a struct of it, in one version: `curVersions` of Kafka's generator.

    Attributes:
        possible: the versions that this part of the message can have.
        given: the version to read, even if it is not possible.
    """

    message: MessageDefinition
    possible: Versions
    given: int

    @classmethod
    def of(cls, message: MessageDefinition, version: int) -> MessageScope:
        return cls(message, message.versions, version)

    @property
    def version(self) -> int:
        """The version that is read: Kafka's classes compare a version only with possible ones."""
        return self.possible.nearest(self.given)

    @property
    def is_flexible(self) -> bool:
        """Whether lengths are compact and tagged fields follow."""
        return self.version in self.message.flexible

    @property
    def limits_counts(self) -> bool:
        """Whether Kafka refuses numbers of elements and of tagged fields that are too large, though bytes are there."""
        return self.message.release >= KAFKA_4_4

    def is_in(self, versions: Versions) -> bool:
        return self.version in versions

    def refuses(self, struct: Field) -> bool:
        """Whether Kafka throws when it reads or writes a struct of this field: it is defined in place, and its message
        does not have the version. Kafka does not check common structs.
        """
        if struct.fields is None:
            return False
        is_above = self.given > self.possible.highest and struct.versions.highest > self.possible.highest
        is_below = self.given < self.possible.lowest and struct.versions.lowest < self.possible.lowest
        return is_above or is_below

    def within(self, struct: Field) -> MessageScope:
        """A struct of this field."""
        if struct.fields is None:
            return MessageScope(self.message, self._common(struct).versions, self.given)
        return MessageScope(self.message, self.possible.intersection(struct.versions), self.given)

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


@functools.cache
def _message_reader(message: MessageDefinition, version: int) -> _Read:
    return _struct_reader(MessageScope.of(message, version), message.fields)


def _struct_reader(scope: MessageScope, fields: Iterable[Field]) -> _Read:
    defaults = {field.name: scope.default(field) for field in fields}
    mandatory = [
        (field.name, _field_reader(scope, field))
        for field in fields
        if scope.is_in(field.versions) and not scope.is_in(field.tagged)
    ]
    if not scope.is_flexible:
        return lambda readable: defaults | {name: read_field(readable) for name, read_field in mandatory}
    tagged = {field.tag: (field.name, _tagged_reader(scope, field)) for field in fields if field.tag is not None}
    limits_counts = scope.limits_counts

    def read(readable: Readable) -> Values:
        values = defaults | {name: read_field(readable) for name, read_field in mandatory}
        count = readable.unsigned_varint()
        if count and limits_counts:
            _check_tagged_fields(count, readable.remaining)
        for _ in range(count):
            tag, size = readable.unsigned_varint(), readable.unsigned_varint()
            if tag in tagged:
                name, read_field = tagged[tag]
                values[name] = read_field(readable)
            else:
                readable.array(size)
        return values

    return read


def _check_tagged_fields(count: int, remaining: int) -> None:
    if count < 0:
        raise UnreadableMessageError(
            f"0 tagged fields or more, not {count}", f"Invalid negative number of tagged fields {count}"
        )
    if count > remaining:
        raise UnreadableMessageError(
            f"at most {remaining} tagged fields, not {count}",
            f"Tried to read {count} tagged fields, but there are only {remaining} bytes remaining.",
        )
    if count > TAGGED_FIELDS_MAX:
        raise UnreadableMessageError(
            f"at most {TAGGED_FIELDS_MAX} tagged fields, not {count}",
            f"Tried to read {count} tagged fields, which exceeds the maximum allowed count of {TAGGED_FIELDS_MAX}.",
        )


def _tagged_reader(scope: MessageScope, field: Field) -> _Read:
    if scope.is_in(field.versions) and scope.is_in(field.tagged):
        return _field_reader(scope, field)
    return _raise("a version that has this tag", f"Tag {field.tag} is not valid for version {scope.given}")


def _field_reader(scope: MessageScope, field: Field) -> _Read:
    nullable = scope.is_in(field.nullable)
    if field.element_type is not None:
        read_element = _value_reader(scope, field, field.element_type, f"{field.name} element", nullable=False)
        return _array_reader(field, read_element, scope, nullable)
    read_value = _value_reader(scope, field, field.type, field.name, nullable)
    if not nullable or field.type in ("string", "bytes"):
        return read_value
    if scope.is_in(field.tagged):
        return lambda readable: None if readable.unsigned_varint() <= 0 else read_value(readable)
    return lambda readable: None if readable.number(1) < 0 else read_value(readable)


def _value_reader(scope: MessageScope, field: Field, kind: str, name: str, nullable: bool) -> _Read:
    """The reader of a value that is not an array: of a field, or of an array's element. `name` is the one in Kafka's
    exceptions.
    """
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in ("string", "bytes"):
        return _bytes_reader(name, kind == "string", scope.is_flexible, nullable)
    if scope.refuses(field):
        return _raise("a version that Kafka knows", f"Can't read version {scope.given} of {kind}")
    return _struct_reader(scope.within(field), scope.fields_of(field))


def _array_reader(field: Field, read_element: _Read, scope: MessageScope, nullable: bool) -> _Read:
    name, is_flexible, limits_counts = field.name, scope.is_flexible, scope.limits_counts
    array_format = _ARRAY_FORMATS.get(field.element_type or "")

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
        if limits_counts and count > ARRAY_ELEMENTS_MAX:
            raise UnreadableMessageError(
                f"an array of at most {ARRAY_ELEMENTS_MAX} elements, not of {count}",
                f"Tried to read a collection of size {count}, which exceeds the maximum allowed size of "
                f"{ARRAY_ELEMENTS_MAX}.",
            )
        if array_format is not None:
            return readable.numbers(f">{count}{array_format}")
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
        data = readable.array(size)
        return text_of(data) if is_text else data

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


def json_object(message: MessageDefinition, values: Values, version: int) -> dict[str, Any]:
    """A message in the JSON of Kafka's `…JsonConverter.write`: the fields of a version, with tagged ones if they are
    not the default. Bytes are base64.

    Kafka throws if a field is set that the version lacks. That cannot happen here: the message was read in the same
    version, or in a lower one.
    """
    return _struct(MessageScope.of(message, version), message.fields, values)


def _struct(scope: MessageScope, fields: Sequence[Field], values: Values) -> dict[str, Any]:
    return {
        field.name: _value(scope, field, values[field.name])
        for field in fields
        if scope.is_in(field.versions)
        and not (scope.is_in(field.tagged) and values[field.name] == scope.default(field))
    }


def _value(scope: MessageScope, field: Field, value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [_value(scope, field, element) for element in value]
        case dict():
            return _struct(scope.within(field), scope.fields_of(field), value)
        case _:
            return value


def json_text(value: Any) -> str:
    """The JSON of a message's values, as Jackson writes a `JsonNode`: on one line without spaces, with only the
    necessary escapes.
    """
    match value:
        case None:
            return "null"
        case bool():
            return boolean_text(value)
        case int():
            return str(value)
        case float():
            text = double_text(value)
            return text if text[-1].isdigit() else f'"{text}"'  # JSON has no NaN and no infinity
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case list():
            return f"[{','.join(map(json_text, value))}]"
        case dict():
            return f"{{{','.join(f'{json_text(name)}:{json_text(inner)}' for name, inner in value.items())}}}"
        case _:
            raise TypeError(value)


_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(character): f"\\{escape}"
    for character, escape in {'"': '"', "\\": "\\", "\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}.items()
}


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


def write_message(message: MessageDefinition, values: Mapping[str, Any], version: int) -> bytes:
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
    _write_struct(output, MessageScope.of(message, version), message.fields, values)
    return bytes(output)


def _write_struct(output: bytearray, scope: MessageScope, fields: Sequence[Field], values: Mapping[str, Any]) -> None:
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


def _write_field(output: bytearray, scope: MessageScope, field: Field, value: Any) -> None:
    if value is None and not scope.is_in(field.nullable):
        raise ValueError(f"{scope.message.name}: {field.name} is null")
    if field.element_type is not None:
        output += _written_length(value, scope, 4)
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


def _write_value(output: bytearray, scope: MessageScope, field: Field, kind: str, value: Any) -> None:
    match kind:
        case "string":
            text = None if value is None else value.encode()
            output += _written_length(text, scope, 2) + (text or b"")
        case "bytes":
            output += _written_length(value, scope, 4) + (value or b"")
        case "uuid":
            output += base64.urlsafe_b64decode(f"{value}==")
        case "float64":
            output += _DOUBLE.pack(value)
        case _ if kind in _SIZES:
            output += int(value).to_bytes(_SIZES[kind], signed=kind not in _UNSIGNED)
        case _:
            _write_struct(output, scope.within(field), scope.fields_of(field), value)


def _written_length(value: Any, scope: MessageScope, size: int) -> bytes:
    """The length before bytes or elements; null has −1."""
    length = _NULL if value is None else len(value)
    return unsigned_varint(length + 1) if scope.is_flexible else length.to_bytes(size, signed=True)
