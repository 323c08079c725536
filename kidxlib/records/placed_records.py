"""Decodes the records of batches in bulk, to the addresses of their parts.

`kidxlib.records.reader` reads batches that are malformed or larger than usual: it tells what is wrong, and needs no
more memory for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.decompress_kernel import Decompressors
from kidxlib.records.batch_table import BatchTable
from kidxlib.records.batch_writer import write_varint
from kidxlib.records.place_kernel import NEEDS_CONTENT, NEEDS_PLACES, PLACE, PROGRESS, place_records
from kidxlib.records.reader import Record, content, records, wrapper_content
from kidxlib.records.wanted_records import WantedRecords

#: The most records that are returned at once, and the most bytes of their batches' content; one batch may have more.
ROWS_MAX: Final = 64 * 1024
BYTES_MAX: Final = 16 * 1024 * 1024
#: Records and decompressed bytes, more than usual batches have. A larger batch is read record by record.
_PLACES_MAX: Final = 1024 * 1024
_CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024

_NOT_GIVEN: Final = -1


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Some records, valid until the next ones are read.

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


def _placed_one_by_one(
    table: BatchTable, wanted: WantedRecords, rows_max: int, bytes_max: int
) -> Iterator[PlacedRecords]:
    """The wanted records of a table's only batch, in pieces."""
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
    """Records in memory, with headers in the format of magic 2."""

    def __init__(self) -> None:
        self.memory = bytearray()
        self.places: list[tuple[int, ...]] = []

    def add(self, record: Record) -> None:
        key_at, key_bytes = self._put(record.key)
        value_at, value_bytes = self._put(record.value)
        headers_at = len(self.memory)
        self.memory += write_varint(len(record.headers))
        for data in (part for header in record.headers for part in (header.key.encode(), header.value)):
            self.memory += write_varint(_NULL if data is None else len(data))
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


class RecordPlacer:
    """Finds the places of the records of batches. It has memory for one table at a time. At most `rows_max` records are
    returned at once, and `bytes_max` of content; one batch may have more.
    """

    def __init__(self, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._decompressors = Decompressors()
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._places = np.empty(rows_max, PLACE)
        self._room = np.empty(bytes_max, np.uint8)
        self._scratch = np.empty(2, np.int64)

    def placed(self, table: BatchTable, wanted: WantedRecords) -> Iterator[PlacedRecords]:
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

    def _place(
        self, table: BatchTable, wanted: WantedRecords, number: int, given: int = _NOT_GIVEN
    ) -> NDArray[np.void]:
        """Place batches from a number on, as many as there is room for."""
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
        """Make room for a larger batch, within limits."""
        if progress["why"] == NEEDS_PLACES and progress["needed"] <= _PLACES_MAX:
            self._places = np.empty(progress["needed"], PLACE)
            return True
        if progress["why"] == NEEDS_CONTENT and len(self._room) < _CONTENT_BYTES_MAX:
            self._room = np.empty(min(4 * len(self._room), _CONTENT_BYTES_MAX), np.uint8)
            return True
        return False

    def _placed_alone(self, table: BatchTable, wanted: WantedRecords) -> Iterator[PlacedRecords]:
        """The records of a batch that the compiled loop has refused."""
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
        """Decompress a batch with `kidxlib.format.codecs`, which accepts all that Kafka accepts. Returns the size of
        the content; `_NOT_GIVEN` if the batch is not compressed, or the content is too large.
        """
        log, batch = table.log_of(0)
        if batch.codec == layouts.CODEC_NONE:
            return _NOT_GIVEN
        try:
            stream = content(log, batch) if batch.is_v2 else wrapper_content(log, batch)
            decompressed = stream.take(_CONTENT_BYTES_MAX + 1)
        except MalformedError:
            return _NOT_GIVEN
        if len(decompressed) > _CONTENT_BYTES_MAX:
            return _NOT_GIVEN
        if len(decompressed) > len(self._room):
            self._room = np.empty(_CONTENT_BYTES_MAX, np.uint8)
        self._room[: len(decompressed)] = np.frombuffer(decompressed, np.uint8)
        return len(decompressed)


def _read_only(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    view = array.view()
    view.setflags(write=False)
    return view
