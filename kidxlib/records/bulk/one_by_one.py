"""The records of one batch by way of `kidxlib.records.reader`: of a batch that is malformed, which says why, or that is
larger than anybody sends, which takes no more memory for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kidxlib.errors import MalformedRecordsError
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.place_kernel import PLACE
from kidxlib.records.bulk.placed import PlacedRecords
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.records.reader import records
from kidxlib.records.record import Record

_NULL: Final = -1


def placed_one_by_one(table: BatchTable, wanted: Wanted, rows_max: int, bytes_max: int) -> Iterator[PlacedRecords]:
    """The wanted records of the only batch of a table, as many at once as are given out at once.

    Raises:
        MalformedRecordsError: as `kidxlib.records.reader.records`.
    """
    log, batch = table.log_of(0)
    held = _Held()
    try:
        for record in records(log, batch):
            if wanted.holds(record.offset, record.timestamp):
                held.add(record)
                if len(held.places) == rows_max or len(held.memory) > bytes_max:
                    yield held.placed(table)
                    held = _Held()
    except MalformedRecordsError as error:
        position = int(table.rows["position"][0])
        raise MalformedRecordsError(position, error.found, error.expected) from error
    if held.places:
        yield held.placed(table)


class _Held:
    """Records in memory, their headers in the bytes of magic 2."""

    def __init__(self) -> None:
        self.memory = bytearray()
        self.places: list[tuple[int, ...]] = []

    def add(self, record: Record) -> None:
        key_at, key_bytes = self._put(record.key)
        value_at, value_bytes = self._put(record.value)
        headers_at = len(self.memory)
        self.memory += _varint(len(record.headers))
        for data in (each for header in record.headers for each in (header.key.encode(), header.value)):
            self.memory += _varint(_NULL if data is None else len(data))
            self._put(data)
        self.places.append((record.offset, record.timestamp, 0, key_at, key_bytes, value_at, value_bytes, headers_at))

    def placed(self, table: BatchTable) -> PlacedRecords:
        places = np.array(self.places, PLACE)
        address = np.frombuffer(self.memory, np.uint8).ctypes.data
        for field in ("key_at", "value_at", "headers_at"):
            places[field] += address
        return PlacedRecords(table.rows, places)

    def _put(self, data: bytes | None) -> tuple[int, int]:
        at = len(self.memory)
        if data is None:
            return at, _NULL
        self.memory += data
        return at, len(data)


def _varint(value: int) -> bytes:
    """A number from −1 on, as `ByteUtils.writeVarint` has it."""
    value = value << 1 if value >= 0 else ~value << 1 | 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
