"""The bytes of a message as Kafka's generated classes read them (`Readable`, `ByteBufferAccessor`)."""

from __future__ import annotations

import base64
import struct
from typing import Final, NoReturn

from kidxlib.errors import UnreadableMessageError
from kidxlib.java import as_int, text_of

_DOUBLE: Final = struct.Struct(">d")


class Readable:
    """Bytes that are read from their start to their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """Bytes that were not read yet."""
        return len(self._data) - self._at

    def number(self, size: int, *, signed: bool = True) -> int:
        """The big-endian number in the next `size` bytes."""
        return int.from_bytes(self._primitive(size), signed=signed)

    def double(self) -> float:
        value: float = _DOUBLE.unpack(self._primitive(_DOUBLE.size))[0]
        return value

    def uuid(self) -> str:
        """A UUID as Kafka shows it: URL-safe base64 without padding (`Uuid.toString`)."""
        return base64.urlsafe_b64encode(self.number(8, signed=False).to_bytes(8) + self._primitive(8)).decode()[:-2]

    def unsigned_varint(self) -> int:
        """`ByteUtils.readUnsignedVarint`, whose result Java takes for an int."""
        if self._at < len(self._data) and self._data[self._at] < 128:  # as most are
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

    def text(self, size: int) -> str:
        return text_of(self.array(size))

    def _primitive(self, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > len(self._data):
            self._too_short(None)  # BufferUnderflowException
        self._at = end
        return self._data[start:end]

    def _too_short(self, message: str | None) -> NoReturn:
        raise UnreadableMessageError("more bytes", message)
