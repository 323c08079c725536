"""The bytes of a record of magic 0 or 1 (`LegacyRecord`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kidxlib.errors import MalformedError
from kidxlib.format import layouts as formats
from kidxlib.records.record import Record

# Where things are in a message, which starts after offset and size.
_CRC_AT: Final = formats.field_position(formats.MESSAGE_V1, "crc") - formats.LOG_OVERHEAD
_LEGACY_MAGIC_AT: Final = formats.field_position(formats.MESSAGE_V1, "magic") - formats.LOG_OVERHEAD
_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes") - formats.LOG_OVERHEAD
_TIMESTAMP_AT: Final = formats.field_position(formats.MESSAGE_V1, "timestamp") - formats.LOG_OVERHEAD
KEY_AT_V0: Final = _TIMESTAMP_AT
KEY_AT_V1: Final = formats.MESSAGE_V1.itemsize - formats.LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class Message:
    """A record of magic 0 or 1 as it is stored (`LegacyRecord`): in the log, or compressed within a wrapper.

    Attributes:
        body: its bytes after offset and size.
        append_time: what its wrapper says of a broker's clock; None where that says nothing.
    """

    offset: int
    body: bytes
    append_time: int | None = None

    @property
    def crc(self) -> int:
        """The checksum that it carries."""
        return int.from_bytes(self.body[_CRC_AT:_LEGACY_MAGIC_AT])

    @property
    def covered_by_crc(self) -> bytes:
        """What that checksum is of."""
        return self.body[_LEGACY_MAGIC_AT:]

    @property
    def timestamp(self) -> int:
        """In ms since the epoch; −1 is none, as it always is of magic 0."""
        magic = self.body[_LEGACY_MAGIC_AT]
        if magic == 0:
            return formats.NO_TIMESTAMP
        if magic == 1 and self.append_time is not None:
            return self.append_time
        return int.from_bytes(self.body[_TIMESTAMP_AT:KEY_AT_V1], signed=True)

    def sizes(self) -> tuple[int, int]:
        """The sizes of key and value, as they are stored; below 0 is null.

        Raises:
            MalformedError: one is not within the message.
        """
        key_size = self._size(self._key_at, "key")
        return key_size, self._size(self._key_at + 4 + max(key_size, 0), "value")

    def record(self) -> Record:
        """What it says. What follows the value is left alone, as Kafka does.

        Raises:
            MalformedError: key or value do not fit into it.
        """
        key, at = self._sized(self._key_at, "key")
        value, _ = self._sized(at, "value")
        return Record(self.offset, self.timestamp, key, value)

    def check_not_compressed(self) -> None:
        """
        Raises:
            MalformedError: it is, which within a wrapper none may be.
        """
        if self.body[_ATTRIBUTES_AT] & formats.ATTRIBUTE_CODEC:
            raise MalformedError("a compressed message within a compressed one", "records")

    @property
    def _key_at(self) -> int:
        return KEY_AT_V0 if self.body[_LEGACY_MAGIC_AT] == 0 else KEY_AT_V1

    def _size(self, at: int, what: str) -> int:
        if at + 4 > len(self.body):
            raise MalformedError(f"the end of a message of {len(self.body)} bytes", f"the size of its {what}")
        return int.from_bytes(self.body[at : at + 4], signed=True)

    def _sized(self, at: int, what: str) -> tuple[bytes | None, int]:
        size = self._size(at, what)
        at += 4
        if at + max(size, 0) > len(self.body):
            raise MalformedError(
                f"a {what} of {size} bytes in a message of {len(self.body)}", f"at most {len(self.body) - at}"
            )
        return (None, at) if size < 0 else (self.body[at : at + size], at + size)
