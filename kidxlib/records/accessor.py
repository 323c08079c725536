"""The bytes of a key or a value as Kafka's generated messages read them (`ByteBufferAccessor`)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NoReturn, TypeVar

from kidxlib.errors import MalformedError
from kidxlib.java import as_int
from kidxlib.records.record import text_of

_T = TypeVar("_T")


class Accessor:
    """Kafka's `ByteBufferAccessor`."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self._what = what
        self._at = 0

    def fail(self, expected: str) -> NoReturn:
        raise MalformedError(f"{self.data.hex() or 'nothing'} as {self._what}", expected)

    def take(self, size: int) -> bytes:
        start = self._at
        self._at += size
        if self._at > len(self.data):
            self.fail("more bytes")
        return self.data[start : self._at]

    def number(self, size: int, *, signed: bool = True) -> int:
        return int.from_bytes(self.take(size), signed=signed)

    def varint(self) -> int:
        """`ByteUtils.readUnsignedVarint`, whose result Java takes for an int."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            self.fail("a number of at most 5 bytes")
        return as_int(value)

    def array(self, read: Callable[[], _T]) -> list[_T]:
        count = self.varint() - 1
        if not 0 <= count <= len(self.data) - self._at:
            self.fail(f"an array of at most {len(self.data) - self._at} elements, not of {count}")
        return [read() for _ in range(count)]

    def text(self) -> str:
        size = self.varint() - 1
        if not 0 <= size <= 2**15 - 1:
            self.fail(f"a text, not one of {size} bytes")
        return text_of(self.take(size))

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def pass_over_tagged_fields(self) -> None:
        """Fields that version 0 does not know."""
        for _ in range(self.varint()):
            self.varint()
            size = self.varint()
            if size < 0:
                self.fail("a tagged field of 0 bytes or more")
            self.take(size)


def accessor_of(data: bytes | None, what: str) -> Accessor:
    if data is None:
        raise MalformedError(f"null as {what}", "bytes")
    return Accessor(data, what)


def check_version(reader: Accessor) -> None:
    version = reader.number(2)
    if version < 0:
        reader.fail(f"a version from 0 on, not {version}")
