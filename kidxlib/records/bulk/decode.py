"""The records of batches, taken apart in bulk, by where their parts lie in memory.

A batch that is malformed, or larger than anybody sends, goes by way of `kidxlib.records.reader`, which says what is
wrong with it, and takes no more memory for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.decompression.libraries import Decompressors
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.place_kernel import NEEDS_CONTENT, NEEDS_PLACES, PLACE, PROGRESS, place_records
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.records.reader import Record, content, records, wrapper_content

#: Records that are given out at once, and bytes of what they are in; one batch may have more of either.
ROWS_MAX: Final = 64 * 1024
BYTES_MAX: Final = 16 * 1024 * 1024
#: More records, and decompressed bytes, of one batch than anybody sends: what has more is read record by record.
_PLACES_MAX: Final = 1024 * 1024
_CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024

_NOT_GIVEN: Final = -1


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Some records; valid until the next ones are asked for.

    Attributes:
        batches: rows of dtype `BATCH`.
        places: of dtype `PLACE`, in the order of the log; each names the row of its batch.
    """

    batches: NDArray[np.void]
    places: NDArray[np.void]

    def of_batches(self, field: str) -> NDArray[Any]:
        """A field of each record's batch."""
        of_records: NDArray[Any] = self.batches[field][self.places["batch"]]
        return of_records


_NULL: Final = -1


def _placed_one_by_one(table: BatchTable, wanted: Wanted, rows_max: int, bytes_max: int) -> Iterator[PlacedRecords]:
    """The wanted records of the only batch of a table, as many at once as are given out at once."""
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


class RecordPlacer:
    """Places the records of batches. It has memory of its own, for one table at a time."""

    def __init__(self, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        """
        Args:
            rows_max, bytes_max: records that are given out at once, and bytes of what they are in; one batch may have
                more of either.
        """
        self._decompressors = Decompressors()
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._places = np.empty(rows_max, PLACE)
        self._room = np.empty(bytes_max, np.uint8)
        self._scratch = np.empty(2, np.int64)

    def placed(self, table: BatchTable, wanted: Wanted) -> Iterator[PlacedRecords]:
        """The wanted records of batches, in the order of the log."""
        number = 0
        while number < len(table.rows):
            progress = self._place(table, wanted, number)
            if progress["places"]:
                yield PlacedRecords(table.rows, self._places[: progress["places"]])
            if progress["batch"] > number:
                number = int(progress["batch"])
            elif not self._makes_room(progress):
                yield from self._placed_alone(table.only(number), wanted)
                number += 1

    def _place(self, table: BatchTable, wanted: Wanted, number: int, given: int = _NOT_GIVEN) -> NDArray[np.void]:
        """Place as many batches as there is room for, from one on."""
        progresses = np.zeros(1, PROGRESS)
        progresses["batch"] = number
        place_records(
            table.rows,
            table.window,
            table.window_position,
            _read_only(self._room),
            self._room,
            given,
            self._bytes_max,
            self._decompressors.zstd,
            self._decompressors.gzip,
            wanted.limits,
            self._scratch,
            self._places,
            progresses,
        )
        progress: NDArray[np.void] = progresses[0]
        return progress

    def _makes_room(self, progress: NDArray[np.void]) -> bool:
        """Make room for a batch that needs more than there was, if it is not too much."""
        if progress["why"] == NEEDS_PLACES and progress["needed"] <= _PLACES_MAX:
            self._places = np.empty(progress["needed"], PLACE)
            return True
        if progress["why"] == NEEDS_CONTENT and len(self._room) < _CONTENT_BYTES_MAX:
            self._room = np.empty(min(4 * len(self._room), _CONTENT_BYTES_MAX), np.uint8)
            return True
        return False

    def _placed_alone(self, table: BatchTable, wanted: Wanted) -> Iterator[PlacedRecords]:
        """The records of a batch that the loop does not take as it is."""
        given = self._decompress(table)
        if given != _NOT_GIVEN:
            progress = self._place(table, wanted, 0, given)
            if progress["why"] == NEEDS_PLACES and self._makes_room(progress):
                progress = self._place(table, wanted, 0, given)
            if progress["batch"] == 1:
                yield PlacedRecords(table.rows, self._places[: progress["places"]])
                return
        yield from _placed_one_by_one(table, wanted, self._rows_max, self._bytes_max)

    def _decompress(self, table: BatchTable) -> int:
        """Put into memory what a compressed batch holds, by the way that takes all that Kafka takes: its size;
        `_NOT_GIVEN` where that is none, or too much.
        """
        log, batch = table.log_of(0)
        if batch.codec == layouts.CODEC_NONE:
            return _NOT_GIVEN
        try:
            stream = content(log, batch) if batch.is_v2 else wrapper_content(log, batch)
            found = stream.take(_CONTENT_BYTES_MAX + 1)
        except MalformedError:
            return _NOT_GIVEN
        if len(found) > _CONTENT_BYTES_MAX:
            return _NOT_GIVEN
        if len(found) > len(self._room):
            self._room = np.empty(_CONTENT_BYTES_MAX, np.uint8)
        self._room[: len(found)] = np.frombuffer(found, np.uint8)
        return len(found)


def _read_only(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    view = array.view()
    view.setflags(write=False)
    return view
