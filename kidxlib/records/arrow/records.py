"""The records of a log as Arrow tables, a row for each: markers of transactions too, and what was aborted.

The names of the columns are those of `kidx dump --json`, and −1 is none, as in `kidxlib.records.arrow.batches`.
Checksums are not looked at, as on a broker's read path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.records.arrow.arrays import has_attribute, numbers, words
from kidxlib.records.arrow.columns import pieces, record_batch
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.decode import BYTES_MAX, ROWS_MAX, RecordPlacer
from kidxlib.records.bulk.fill_kernel import fill_control_types
from kidxlib.records.bulk.placed import PlacedRecords
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.records.control import read_control_record
from kidxlib.records.record import Record

#: By the types of control records.
_MARKERS: Final = ("ABORT", "COMMIT")


def record_rows(
    tables: Iterable[BatchTable],
    segment_base_offset: int,
    schema: pa.Schema,
    wanted: Wanted,
    *,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Rows of a schema that `records_schema` gave, for the records of one segment that are wanted.

    Args:
        tables: its batches.
        rows_max, bytes_max: of what is given out at once; one record may have more bytes.

    Raises:
        MalformedRecordsError: as `kidxlib.records.reader.records`; all batches before that one are given first.
    """
    placer = RecordPlacer(rows_max, bytes_max)
    for table in tables:
        for placed in placer.placed(table, wanted):
            for piece in pieces(placed, rows_max, bytes_max):
                yield from _rows(piece, segment_base_offset, schema)


def _rows(placed: PlacedRecords, segment_base_offset: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    others: dict[str, Any] = {}
    malformed: MalformedRecordsError | None = None
    if "control_type" in schema.names:
        control_types, malformed = _control_types(placed)
        placed = PlacedRecords(placed.batches, placed.places[: len(control_types)])
        others["control_type"] = control_types
    others["segment_base_offset"] = numbers(pa.int64(), np.full(len(placed.places), segment_base_offset))
    if len(placed.places):
        yield record_batch(placed, schema, others)
    if malformed is not None:
        raise malformed


def _control_types(placed: PlacedRecords) -> tuple[pa.Array[Any], MalformedRecordsError | None]:
    """What markers say that they are; of all records before the first batch with a malformed one, and what that is."""
    of_places = has_attribute(placed.batches, formats.ATTRIBUTE_CONTROL)[placed.places["batch"]]
    known = np.empty(len(placed.places), np.int32)
    if fill_control_types(placed.places, of_places, known) == len(known):
        return words(_MARKERS, known), None
    names: list[str | None] = [None] * len(known)
    for number in np.flatnonzero(of_places).tolist():
        place = placed.places[number]
        try:
            names[number] = read_control_record(_record(place)).name
        except MalformedError as error:
            before = int(np.searchsorted(placed.places["batch"], place["batch"], "left"))
            position = int(placed.batches["position"][place["batch"]])
            return pa.array(names[:before], pa.string()), MalformedRecordsError(position, error.found, error.expected)
    return pa.array(names, pa.string()), None


def _record(place: NDArray[np.void]) -> Record:
    """A record without its headers."""

    def data(what: str) -> bytes | None:
        size = int(place[f"{what}_bytes"])
        return None if size < 0 else ctypes.string_at(int(place[f"{what}_at"]), size)

    return Record(int(place["offset"]), int(place["timestamp"]), data("key"), data("value"))
