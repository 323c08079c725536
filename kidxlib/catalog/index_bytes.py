"""The table `index_bytes`: index files that `build --pack` keeps in the catalog. `kidxlib.storage.packed` reads its
rows as if they were files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.rows import SEGMENT_KEY, PartitionOfSource, Table, column, row, rows_of_kind
from kidxlib.format.checksums import crc32c
from kidxlib.storage.packed import TABLE, PackedFile


@row
class IndexBytesRow(PartitionOfSource):
    """One row per index file of the sources that were built with --pack: what a build without it writes as a file."""

    base_offset: int = column("offset in the file's name; -1 of a leader-epoch-checkpoint, which has none")
    kind: str = column("index, timeindex, txnindex, snapshot or leader-epoch-checkpoint")
    size_bytes: int = column("size of the file")
    crc32c: int = column("CRC-32C of the file")
    content: bytes = column("the file, byte for byte")


INDEX_BYTES: Final = Table(
    name=TABLE,
    row=IndexBytesRow,
    key=(*SEGMENT_KEY, "kind"),
    sort_by=("topic", "partition", "base_offset"),
    group_bytes=1024 * 1024,
)

_TYPES: Final[Mapping[str, pa.DataType]] = {each.name: each.arrow_type for each in IndexBytesRow.columns()}
#: Rows that are written together; a file has up to 10 MiB.
_ROWS_PER_BATCH: Final = 1_000


def packed_batches(files: Sequence[PackedFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the table `index_bytes`, one for each packed file, of `schema` with `packed` set. All but the key of a
    file that is removed is null.
    """
    for start in range(0, len(files), _ROWS_PER_BATCH):
        part = files[start : start + _ROWS_PER_BATCH]
        contents = [file.content for file in part]
        columns: dict[str, Sequence[Any]] = {
            "source": [file.source for file in part],
            "topic": [file.topic for file in part],
            "partition": [file.partition for file in part],
            "base_offset": [file.base_offset for file in part],
            "kind": [file.kind for file in part],
            "size_bytes": [None if content is None else len(content) for content in contents],
            "crc32c": [None if content is None else crc32c(content) for content in contents],
            "content": contents,
        }
        arrays = {name: pa.array(values, _TYPES[name]) for name, values in columns.items()}
        yield rows_of_kind("packed", arrays, len(part), schema)
