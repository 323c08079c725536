"""The records of batches, taken apart in bulk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MalformedError
from kidxlib.format import layouts as formats
from kidxlib.format.decompression.libraries import Decompressors
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.one_by_one import placed_one_by_one
from kidxlib.records.bulk.place_kernel import NEEDS_CONTENT, NEEDS_PLACES, PLACE, PROGRESS, place_records
from kidxlib.records.bulk.placed import PlacedRecords
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.records.legacy_batch import wrapper_content
from kidxlib.records.v2_batch import content

#: Records that are given out at once, and bytes of what they are in; one batch may have more of either.
ROWS_MAX: Final = 64 * 1024
BYTES_MAX: Final = 16 * 1024 * 1024
#: More records, and decompressed bytes, of one batch than anybody sends: what has more is read record by record.
_PLACES_MAX: Final = 1024 * 1024
_CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024

_NOT_GIVEN: Final = -1


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
        """The wanted records of batches, in the order of the log.

        Raises:
            MalformedRecordsError: as `kidxlib.records.reader.records`; all batches before that one are given first.
        """
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
        yield from placed_one_by_one(table, wanted, self._rows_max, self._bytes_max)

    def _decompress(self, table: BatchTable) -> int:
        """Put into memory what a compressed batch holds, by the way that takes all that Kafka takes: its size;
        `_NOT_GIVEN` where that is none, or too much.
        """
        log, batch = table.log_of(0)
        if batch.codec == formats.CODEC_NONE:
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
