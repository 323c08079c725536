"""What the records of control batches say: the markers of transactions, and those of KRaft's own log.

Sources: `ControlRecordType`, `EndTransactionMarker`, `ControlRecordUtils` and the generated messages, all of which are
read as version 0, whatever version they give.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from kidxlib import formats
from kidxlib.abstract_index import as_int
from kidxlib.codecs import MalformedError
from kidxlib.records import Record, text_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """What a control record says.

    Attributes:
        type_id: as its key gives it.
        name: of that type; None where Kafka knows none.
        fields: of its value, by the names of Kafka's message; None where the type is not known.
    """

    type_id: int
    name: str | None
    fields: dict[str, Any] | None


def read_control_record(record: Record) -> ControlRecord:
    """
    Raises:
        MalformedError: Kafka throws, too: key or value are null, too short, or of a version below 0.
    """
    key = _reader(record.key, "key of a control record")
    if len(key.data) < formats.CONTROL_KEY_BYTES:
        key.fail(f"{formats.CONTROL_KEY_BYTES} bytes or more")
    _check_version(key)
    type_id = key.number(2)
    if type_id not in _TYPES:
        return ControlRecord(type_id, None, None)
    name, read = _TYPES[type_id]
    return ControlRecord(type_id, name, read(_reader(record.value, f"value of a control record {name}")))


class _Reader:
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


def _reader(data: bytes | None, what: str) -> _Reader:
    if data is None:
        raise MalformedError(f"null as {what}", "bytes")
    return _Reader(data, what)


def _check_version(reader: _Reader) -> None:
    version = reader.number(2)
    if version < 0:
        reader.fail(f"a version from 0 on, not {version}")


def _end_of_transaction(value: _Reader) -> dict[str, Any]:
    _check_version(value)
    return {"coordinatorEpoch": value.number(4)}


def _leader_change(value: _Reader) -> dict[str, Any]:
    version, leader_id = value.number(2), value.number(4)

    def voter() -> dict[str, Any]:
        voter_id = value.number(4)
        value.pass_over_tagged_fields()
        if version < 1:
            return {"voterId": voter_id}
        return {"voterId": voter_id, "voterDirectoryId": _NO_UUID}  # which is not read, yet written

    voters, granting_voters = value.array(voter), value.array(voter)
    value.pass_over_tagged_fields()
    return {"version": version, "leaderId": leader_id, "voters": voters, "grantingVoters": granting_voters}


_NO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


def _snapshot_header(value: _Reader) -> dict[str, Any]:
    fields = {"version": value.number(2), "lastContainedLogTimestamp": value.number(8)}
    value.pass_over_tagged_fields()
    return fields


def _snapshot_footer(value: _Reader) -> dict[str, Any]:
    fields = {"version": value.number(2)}
    value.pass_over_tagged_fields()
    return fields


def _kraft_version(value: _Reader) -> dict[str, Any]:
    fields = {"version": value.number(2), "kRaftVersion": value.number(2)}
    value.pass_over_tagged_fields()
    return fields


def _voters(value: _Reader) -> dict[str, Any]:
    def endpoint() -> dict[str, Any]:
        fields = {"name": value.text(), "host": value.text(), "port": value.number(2, signed=False)}
        value.pass_over_tagged_fields()
        return fields

    def voter() -> dict[str, Any]:
        voter_id, directory_id, endpoints = value.number(4), value.uuid(), value.array(endpoint)
        feature = {"minSupportedVersion": value.number(2), "maxSupportedVersion": value.number(2)}
        value.pass_over_tagged_fields()
        value.pass_over_tagged_fields()
        return {
            "voterId": voter_id,
            "voterDirectoryId": directory_id,
            "endpoints": endpoints,
            "kRaftVersionFeature": feature,
        }

    version, voters = value.number(2), value.array(voter)
    value.pass_over_tagged_fields()
    return {"version": version, "voters": voters}


_TYPES: Final[dict[int, tuple[str, Callable[[_Reader], dict[str, Any]]]]] = {
    formats.CONTROL_TYPE_ABORT: ("ABORT", _end_of_transaction),
    formats.CONTROL_TYPE_COMMIT: ("COMMIT", _end_of_transaction),
    2: ("LEADER_CHANGE", _leader_change),
    3: ("SNAPSHOT_HEADER", _snapshot_header),
    4: ("SNAPSHOT_FOOTER", _snapshot_footer),
    5: ("KRAFT_VERSION", _kraft_version),
    6: ("KRAFT_VOTERS", _voters),
}
