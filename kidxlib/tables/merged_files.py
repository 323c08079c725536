"""Rewrites some files of a table together, in the table's order. One new file at a time is held in memory.

The old files are read one by one, and only the row groups that may have rows of the new file. delta-rs would query all
files of the table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem

from kidxlib.catalog.rows import Table
from kidxlib.tables.data_files import counted_bytes_of, in_schema, rows_in, sizes_of
from kidxlib.tables.sorted_files import KeyRange, SortedFile, key_ranges, write_sorted

#: Files are cut by this number of sampled keys, or up to twice as many.
_SAMPLED: Final = 50_000

_PARQUET: Final = ds.ParquetFileFormat(  # as `rows_in` reads them
    read_options=ds.ParquetReadOptions(None, "us"),
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True),
)


def write_merged(place: FileSystem, table: Table, old: pa.Table, new: list[SortedFile]) -> bool:
    """Write the rows of some files (`files_of`) into new ones; `new` gets each file as soon as it is written. The
    answer is whether all rows were written; no cause of False is known.
    """
    sizes = sizes_of(old)
    keys, expected = _sampled_keys(place, table, sizes)
    written = 0
    for part in key_ranges(keys, table.order, sum(counted_bytes_of(old).values()), at_once=1):
        rows = pa.concat_tables([_rows_between(place, table, path, part) for path in sizes])
        written += rows.num_rows
        new += write_sorted(place, table, rows, part.files)
    return written == expected


def _sampled_keys(place: FileSystem, table: Table, paths: Collection[str]) -> tuple[pa.Table, int]:
    """The columns `table.order` of rows of files, evenly sampled, and how many rows there are. All keys of one file at
    a time are held.
    """
    kept, rows, stride = table.schema(table.order).empty_table(), 0, 1
    for path in paths:
        keys = rows_in(place, table, path, table.order)
        # Every `stride`-th row, counted across files.
        positions = range(-rows % stride, keys.num_rows, stride)
        kept = pa.concat_tables([kept, keys.take(pa.array(positions, pa.int64()))])
        rows += keys.num_rows
        while kept.num_rows > 2 * _SAMPLED:
            stride *= 2
            kept = kept.take(pa.array(range(0, kept.num_rows, 2), pa.int64()))
    return kept, rows


def _rows_between(place: FileSystem, table: Table, path: str, part: KeyRange) -> pa.Table:
    """The rows of one file within a range, in the catalog's schema."""
    fragment = _PARQUET.make_fragment(unquote(path), filesystem=place)
    names = [name for name in table.column_names if name in fragment.physical_schema.names]
    return in_schema(fragment.to_table(columns=names, filter=part.expression), table.schema())
