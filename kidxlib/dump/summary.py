"""What a dump has found wrong in a file, counted: for the one line that is said of it at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kidxlib.dump.decoders.decoded import Decoded
from kidxlib.dump.findings import OffsetMismatch, OffsetNotFound, TimestampMismatch, TimestampOutOfOrder
from kidxlib.dump.items import DumpedBatch, DumpedRecord, DumpItem, InvalidBytes, has_problem

#: Of what a checksum stands in.
_CHECKED: Final[dict[type, str]] = {DumpedBatch: "batches", DumpedRecord: "records"}
#: What is wrong with entries.
_WRONG: Final[dict[type, str]] = {
    OffsetMismatch: "whose batch ends with another offset",
    OffsetNotFound: "with whose offset no batch ends",
    TimestampMismatch: "whose batch has another largest timestamp",
    TimestampOutOfOrder: "whose timestamp is not above the one before",
}


@dataclass(slots=True)
class Findings:
    """What was found wrong in the items of one file so far."""

    _seen: Counter[type] = field(default_factory=Counter)
    _wrong: Counter[type] = field(default_factory=Counter)
    _first: dict[type, str] = field(default_factory=dict)

    def add(self, item: DumpItem) -> None:
        """Take the next item into account."""
        kind: type = type(item)
        self._seen[kind] += 1
        if not has_problem(item):
            return
        if isinstance(item, DumpedRecord) and item.crc_valid is not False:
            kind = Decoded
        self._wrong[kind] += 1
        if kind not in self._first:
            self._first[kind] = _where(item)

    @property
    def line(self) -> str | None:
        """All of it in one line: how many of what, and where the first is; None where nothing is wrong."""
        return "; ".join(map(self._reported, self._wrong)) or None

    def _reported(self, kind: type) -> str:
        if kind is InvalidBytes:
            return self._first[kind]
        count, first = f"{self._wrong[kind]:,}", self._first[kind]
        if kind is Decoded:
            return f"{count} of {self._seen[DumpedRecord]:,} records could not be decoded, the first {first}"
        if kind in _CHECKED:
            return f"checksum does not match in {count} of {self._seen[kind]:,} {_CHECKED[kind]}, the first {first}"
        return f"{count} {'entry' if self._wrong[kind] == 1 else 'entries'} {_WRONG[kind]}, the first {first}"


def _where(item: DumpItem) -> str:
    match item:
        case DumpedBatch():
            return f"at byte {item.batch.position}"
        case DumpedRecord():
            return f"at offset {item.offset}, in the batch at byte {item.batch.position}"
        case InvalidBytes():
            return f"{item.bytes:,} bytes after the last whole batch, from byte {item.position} on"
        case OffsetMismatch() | OffsetNotFound():
            return f"with offset {item.index_offset}"
        case TimestampMismatch() | TimestampOutOfOrder():
            return f"with timestamp {item.index_timestamp_ms}"
        case _:
            raise AssertionError(item)
