"""Java's numbers, texts and properties files. Its arithmetic wraps around at 16, 32 or 64 bits."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from typing import Final

_INT_MAX: Final = 2**31 - 1


def as_long(value: int) -> int:
    """`value` wrapped to Java's 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def as_int(value: int) -> int:
    """`value` wrapped to Java's 32 bits."""
    return (value + 2**31) % 2**32 - 2**31


def as_short(value: int) -> int:
    """`value` cast to Java's 16 bits."""
    return (value + 2**15) % 2**16 - 2**15


def incremented_sequence(sequence: int, increment: int) -> int:
    """A sequence number incremented as in Java (`DefaultRecordBatch.incrementSequence`): 0 follows the largest int."""
    if sequence > as_int(_INT_MAX - increment):
        return as_int(increment - (_INT_MAX - sequence) - 1)
    return as_int(sequence + increment)


def decremented_sequence(sequence: int, decrement: int) -> int:
    """A sequence number decremented as in Java (`DefaultRecordBatch.decrementSequence`): the largest int precedes 0."""
    if sequence < decrement:
        return as_int(_INT_MAX - (decrement - sequence) + 1)
    return as_int(sequence - decrement)


#: `int` refuses longer texts.
_CHARACTERS_MOST: Final = 4300
_INTEGER = re.compile(r"[+-]?\d+")


def parse_int(text: str) -> int | None:
    """The result of Java's `Integer.parseInt`; None if it throws a `NumberFormatException`."""
    return _parse(text, 32)


def parse_long(text: str) -> int | None:
    """The result of Java's `Long.parseLong`; None if it throws a `NumberFormatException`."""
    return _parse(text, 64)


def _parse(text: str, bits: int) -> int | None:
    if _INTEGER.fullmatch(text) is None or len(text) > _CHARACTERS_MOST:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def split_by_pattern(separator: re.Pattern[str], text: str) -> list[str]:
    """`Pattern.split` with a separator that is never empty. A text without the separator is the only part, even if it
    is empty; else empty strings at the end are dropped.
    """
    parts = separator.split(text)
    if len(parts) == 1:
        return parts
    while parts and not parts[-1]:
        parts.pop()
    return parts


def text_of(data: bytes) -> str:
    """UTF-8 as Java reads it: malformed bytes become U+FFFD, a surrogate one of them, where Python makes three."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", data).decode(errors="replace")


_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def boolean_text(value: bool) -> str:
    """`Boolean.toString`."""
    return "true" if value else "false"


def double_text(value: float) -> str:
    """`Double.toString` since Java 19: the fewest digits that tell the number from its neighbours."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    text, point = "".join(map(str, digits)), len(digits) + exponent  # 0.text * 10**point
    if not -3 < point <= 7:  # that is, below 0.001, or 10,000,000 and above
        return f"{sign}{text[0]}.{text[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{text}"
    return f"{sign}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"


def hash_of(text: str) -> int:
    """`String.hashCode`, of UTF-16's units."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = as_int(31 * value + int(unit))
    return value


#: A key ends at the first `=`, `:` or blank without a backslash before it.
_KEY: Final = re.compile(r"((?:[^\s=:\\]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(content: bytes) -> dict[str, str]:
    """The settings in a Java properties file that have a name (`java.util.Properties.load`). The last one counts of
    several with the same name.

    Bytes are read as ISO 8859-1, as in Java. A `\\u` without four hexadecimal digits, at which Java throws, is a `u`.
    """
    settings = {}
    for line in _logical_lines(content.decode("latin-1")):
        match = _KEY.fullmatch(line)
        assert match is not None
        settings[_unescaped(match[1])] = _unescaped(match[2])
    settings.pop("", None)
    return settings


def parse_property_list(value: str) -> list[str]:
    """The items of a property that is a list (`ConfigDef.Type.LIST`)."""
    return [word for word in map(str.strip, value.split(",")) if word]


def _logical_lines(text: str) -> list[str]:
    """Lines without comments. A line that ends in a backslash continues in the next."""
    lines: list[str] = []
    continued = ""
    for line in _LINE_END.split(text):
        stripped = line.lstrip(_BLANKS)
        if not continued and stripped[:1] in ("", "#", "!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2 == 1:
            continued += stripped[:-1]
        else:
            lines.append(continued + stripped)
            continued = ""
    return [*lines, continued]


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
