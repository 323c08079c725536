"""Matches and compares rows of two tables by their keys, column by column; runs of equal rows; and conversion between
Arrow's and NumPy's arrays without copying.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: Positions of rows in a table; −1: none.
Positions = NDArray[np.int64]
Flags = NDArray[np.bool_]
Longs: TypeAlias = NDArray[np.int64]
#: An array or a chunked array. pyarrow's stubs lack methods of nested and chunked ones.
Values: TypeAlias = Any
#: Codes of a null, and of a text that the dictionary does not have.
_NULL: Final = -1
_UNKNOWN: Final = -2


def positions_in(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> Positions:
    """For each row the position of the first row of `others` with the same key; −1: none. The key's columns have text
    or whole numbers, and are never null.
    """
    packed, packed_others = _packed_keys(rows, others, key)
    indices: Values = pc.index_in(packed, value_set=packed_others)
    positions: Positions = indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return positions


def differing(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> Flags:
    """Which rows differ in some columns from the rows at the same position of `others`. Nulls are equal to each other,
    and so are NaNs. The columns have the same types in both tables; lists, maps and structs may be among them.
    """
    differ = np.zeros(rows.num_rows, np.bool_)
    for name in names:
        differ |= ~_equal_values(rows[name].combine_chunks(), others[name].combine_chunks())
    return differ


def _packed_keys(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> tuple[Values, Values]:
    """The keys of both tables as bytes of fixed width. Text becomes a number, the same in both tables."""
    numbers = []
    for name in key:
        both: Values = pa.chunked_array([*rows[name].chunks, *others[name].chunks], rows.schema.field(name).type)
        if not pa.types.is_integer(both.type):
            both = pa.chunked_array(
                [chunk.indices for chunk in both.dictionary_encode().unify_dictionaries().chunks], pa.int32()
            )
        numbers.append(both.to_numpy().astype(np.int64))
    packed = np.column_stack(numbers) if numbers else np.empty((0, 0), np.int64)
    width = 8 * len(key)
    of_bytes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(packed), [None, pa.py_buffer(packed.tobytes())]
    )
    return of_bytes.slice(0, rows.num_rows), of_bytes.slice(rows.num_rows)


def _equal_values(some: Values, others: Values) -> Flags:
    both_null = flags_of(pc.and_(some.is_null(), others.is_null()))
    both_valid = flags_of(pc.and_(some.is_valid(), others.is_valid()))
    if pa.types.is_struct(some.type):
        inside = np.ones(len(some), np.bool_)
        for number in range(some.type.num_fields):
            # `field` leaves out nulls of the struct itself; these rows are decided above.
            inside &= _equal_values(some.field(number), others.field(number))
        return both_null | (both_valid & inside)
    if pa.types.is_list(some.type) or pa.types.is_map(some.type):
        return both_null | _lists_equal(some, others, both_valid)
    equal: Values = pc.equal(some, others)
    equal = equal.fill_null(False)
    if pa.types.is_floating(some.type):
        both_nan: Values = pc.and_(some.is_nan(), others.is_nan())
        equal = pc.or_(equal, both_nan.fill_null(False))
    return both_null | flags_of(equal)


def _lists_equal(some: Values, others: Values, both_valid: Flags) -> Flags:
    """Whether lists or maps are equal, row by row; false if one is null. Maps are equal if they have the same entries
    in the same order.
    """
    lengths = lengths_of(some)
    comparable: Flags = both_valid & (lengths == lengths_of(others))
    equal = comparable.copy()
    filled = np.flatnonzero(comparable & (lengths > 0))
    if len(filled):
        elements = [_elements(side.take(pa.array(filled))) for side in (some, others)]
        starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
        equal[filled] = np.logical_and.reduceat(_equal_values(*elements), starts)
    return equal


def lengths_of(lists: Values) -> NDArray[np.int64]:
    """The length of each list or map in a column of Arrow; 0 for null."""
    offsets: NDArray[np.int64] = lists.offsets.to_numpy().astype(np.int64)
    return np.where(flags_of(lists.is_valid()), np.diff(offsets), 0)


def _elements(lists: Values) -> Values:
    """The items of lists or maps without nulls, in sequence."""
    if pa.types.is_map(lists.type):
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        return pa.StructArray.from_arrays([lists.keys, lists.items], ["key", "value"])[first:last]
    return lists.flatten()


def flags_of(column: Values) -> Flags:
    """The flags in a column of Arrow; false for null."""
    flags: Flags = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


def is_any_of(column: Values, words: Sequence[str]) -> Flags:
    """Which texts in a column of Arrow are among some words; false for null."""
    return flags_of(pc.is_in(texts(column), value_set=pa.array(words, pa.string())))


def taken_at(column: Values, at: Positions) -> Values:
    """The values of a column or a table at some positions; null for −1."""
    places: Values = pa.array(at, mask=at < 0)
    return column.take(places)


def numpy_of(column: pa.ChunkedArray[Any]) -> NDArray[Any]:
    """The numbers in a column of Arrow without nulls. `to_numpy` imports pandas if it is installed, which takes longer
    than a listing.
    """
    chunks: list[NDArray[Any]] = [np.from_dlpack(chunk) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.empty(0, np.int64)


def runs(columns: Sequence[pa.Array[Any]]) -> Iterator[tuple[int, int]]:
    """The first row of each run of rows that are equal in all columns, and the row after it. A null equals a null."""
    rows = len(columns[0])
    changes = np.zeros(max(rows - 1, 0), np.bool_)
    for column in columns:
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode(null_encoding="encode")
        codes = column.indices.fill_null(-1).to_numpy()
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if rows else []
    yield from itertools.pairwise([*starts, rows])


def numbers_in(column: Values) -> tuple[Longs, Flags]:
    """The whole numbers of up to 64 bits in a column of Arrow, with 0 for each null; and which are not null."""
    numbers: Longs = column.fill_null(0).to_numpy().astype(np.int64)
    valid: Flags = column.is_valid().to_numpy()
    return numbers, valid


def same_text(column: Values, wanted: Sequence[str | None], which: Positions) -> Flags:
    """Whether each row has the text that it should have, which stands in `wanted` at a position of `which`. A null is
    like a null. Codes are compared, as there are far fewer texts than rows.
    """
    encoded: Values = pa.chunked_array(column.dictionary_encode()).unify_dictionaries()
    if not encoded.num_chunks:
        return np.zeros(0, np.bool_)
    codes = [chunk.indices.fill_null(_NULL).to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    texts_wanted = pa.array(wanted, pa.string())
    codes_wanted: Values = pc.index_in(texts_wanted, value_set=encoded.chunk(0).dictionary)
    codes_wanted = pc.if_else(texts_wanted.is_null(), _NULL, codes_wanted.fill_null(_UNKNOWN))
    same: Flags = np.concatenate(codes) == codes_wanted.to_numpy(zero_copy_only=False)[which]
    return same


def texts(column: Values) -> Values:
    """A column of text in Arrow, without a dictionary."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
