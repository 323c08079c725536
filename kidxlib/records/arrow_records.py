"""The records of a log as Arrow tables, with a row for each, also for transaction markers and aborted records.

The columns have the names of `kidx dump --json`, and −1 is none, as in `kidxlib.records.arrow_columns`. Checksums are
not checked, as on a broker's read path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.java import text_of
from kidxlib.records.arrow_columns import (
    CONSUMED,
    HEADER,
    HEADERS,
    Array,
    attribute_flags,
    flags_array,
    numbers_array,
    sequence_numbers,
    timestamp_type_ids,
    timestamp_types,
    words_array,
)
from kidxlib.records.batch_table import BatchTable
from kidxlib.records.control import read_control_record
from kidxlib.records.fill_kernel import fill_control_types, fill_data, fill_ends, fill_header_ends, fill_headers
from kidxlib.records.placed_records import BYTES_MAX, ROWS_MAX, PlacedRecords, RecordPlacer
from kidxlib.records.reader import Record
from kidxlib.records.wanted_records import WantedRecords

#: The names of control records, by type.
_MARKERS: Final = ("ABORT", "COMMIT")

_Column: TypeAlias = Callable[[PlacedRecords], Array]


def record_batch(placed: PlacedRecords, schema: pa.Schema, others: Mapping[str, Array]) -> pa.RecordBatch:
    """Records as rows. `others` are the columns that do not come from batches and records, as far as the schema has
    them.
    """
    return pa.RecordBatch.from_arrays([_column(placed, field, others) for field in schema], schema=schema)


def _column(placed: PlacedRecords, field: pa.Field[Any], others: Mapping[str, Array]) -> Array:
    if field.name == "headers":
        return _headers(placed, none_is_null=field.nullable)
    return others[field.name] if field.name in others else _COLUMNS[field.name](placed)


def pieces(placed: PlacedRecords, rows_max: int, bytes_max: int) -> Iterator[PlacedRecords]:
    """Cut records into pieces of limited number, and of limited size of keys and values. A larger record is a piece
    alone.
    """
    sizes = np.maximum(placed.places["key_bytes"], 0) + np.maximum(placed.places["value_bytes"], 0)
    if len(sizes) <= rows_max and int(sizes.sum()) <= bytes_max:
        yield placed
        return
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start]) - int(sizes[start])
        end = min(int(np.searchsorted(ends, before + bytes_max, "right")), start + rows_max)
        end = max(end, start + 1)
        yield PlacedRecords(placed.batches, placed.places[start:end])
        start = end


def _of_places(kind: pa.DataType, field: str, placed: PlacedRecords) -> Array:
    return numbers_array(kind, placed.places[field])


def _of_batches(kind: pa.DataType, field: str, placed: PlacedRecords) -> Array:
    return numbers_array(kind, placed.of_batches(field))


def _flags(bit: int, placed: PlacedRecords) -> Array:
    return flags_array(attribute_flags(placed.batches, bit)[placed.places["batch"]])


def _timestamp_type(placed: PlacedRecords) -> Array:
    return timestamp_types(timestamp_type_ids(placed.batches)[placed.places["batch"]])


def _timestamp_type_id(placed: PlacedRecords) -> Array:
    return numbers_array(pa.int32(), timestamp_type_ids(placed.batches)[placed.places["batch"]])


def _sequences(placed: PlacedRecords) -> Array:
    deltas = placed.places["offset"] - placed.of_batches("offset_field")
    return sequence_numbers(placed.of_batches("base_sequence"), deltas)


def _binary(what: str, placed: PlacedRecords) -> Array:
    return _binary_array(placed.places[f"{what}_at"], placed.places[f"{what}_bytes"])


def _binary_array(addresses: NDArray[np.int64], sizes: NDArray[np.int64]) -> Array:
    """The values at addresses in memory; a size below 0 is null."""
    rows = len(sizes)
    ends, filled = np.empty(rows + 1, np.int32), np.zeros(-(-rows // 8), np.uint8)
    size, nulls = fill_ends(sizes, ends, filled)
    data = np.empty(size, np.uint8)
    fill_data(addresses, sizes, data)
    buffers = [pa.py_buffer(filled.data) if nulls else None, pa.py_buffer(ends.data), pa.py_buffer(data.data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


def _headers(placed: PlacedRecords, *, none_is_null: bool) -> Array:
    rows = len(placed.places)
    ends, filled = np.empty(rows + 1, np.int32), np.zeros(-(-rows // 8), np.uint8)
    count = fill_header_ends(placed.places, ends, filled)
    key_at, key_bytes, value_at, value_bytes = (np.empty(count, np.int64) for _ in range(4))
    fill_headers(placed.places, key_at, key_bytes, value_at, value_bytes)
    keys, values = _decode_header_keys(_binary_array(key_at, key_bytes)), _binary_array(value_at, value_bytes)
    inside = pa.StructArray.from_arrays([keys, values], fields=HEADER)
    buffers = [pa.py_buffer(filled.data) if none_is_null else None, pa.py_buffer(ends.data)]
    return pa.Array.from_buffers(HEADERS, rows, buffers, children=[inside])


def _decode_header_keys(keys: Array) -> Array:
    """Decode UTF-8 as Java does."""
    try:
        texts: Array = keys.cast(pa.string())
    except pa.ArrowInvalid:
        seen = keys.dictionary_encode()
        assert isinstance(seen, pa.DictionaryArray)
        texts = pa.array([text_of(key) for key in seen.dictionary.to_pylist() if key is not None], pa.string()).take(
            seen.indices
        )
    return texts


_COLUMNS: Final[Mapping[str, _Column]] = {
    "offset": partial(_of_places, pa.int64(), "offset"),
    "timestamp": partial(_of_places, CONSUMED.field("timestamp").type, "timestamp"),
    "timestampType": _timestamp_type_id,
    "timestamp_ms": partial(_of_places, pa.int64(), "timestamp"),
    "timestamp_type": _timestamp_type,
    "key": partial(_binary, "key"),
    "value": partial(_binary, "value"),
    "leader_epoch": partial(_of_batches, pa.int32(), "partition_leader_epoch"),
    "producer_id": partial(_of_batches, pa.int64(), "producer_id"),
    "producer_epoch": partial(_of_batches, pa.int16(), "producer_epoch"),
    "sequence": _sequences,
    "transactional": partial(_flags, layouts.ATTRIBUTE_TRANSACTIONAL),
    "control": partial(_flags, layouts.ATTRIBUTE_CONTROL),
    "batch_position": partial(_of_batches, pa.int64(), "position"),
}


def record_rows(
    tables: Iterable[BatchTable],
    segment_base_offset: int,
    schema: pa.Schema,
    wanted: WantedRecords,
    *,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Arrow rows for the wanted records of one segment, in the schema of `schema_of_columns`. `rows_max` and
    `bytes_max` limit a batch of rows; one record may have more bytes.
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
    others["segment_base_offset"] = numbers_array(pa.int64(), np.full(len(placed.places), segment_base_offset))
    if len(placed.places):
        yield record_batch(placed, schema, others)
    if malformed is not None:
        raise malformed


def _control_types(placed: PlacedRecords) -> tuple[pa.Array[Any], MalformedRecordsError | None]:
    """The control types of all records before the first batch with a malformed marker, and its error."""
    of_places = attribute_flags(placed.batches, layouts.ATTRIBUTE_CONTROL)[placed.places["batch"]]
    known = np.empty(len(placed.places), np.int32)
    if fill_control_types(placed.places, of_places, known) == len(known):
        return words_array(_MARKERS, known), None
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
    """A record without headers."""

    def data(what: str) -> bytes | None:
        size = int(place[f"{what}_bytes"])
        return None if size < 0 else ctypes.string_at(int(place[f"{what}_at"]), size)

    return Record(int(place["offset"]), int(place["timestamp"]), data("key"), data("value"))
