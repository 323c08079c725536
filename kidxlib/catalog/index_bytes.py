"""The table `index_bytes`: index files that `build --pack` keeps in the catalog. `kidxlib.storage.packed` reads its
rows as if they were files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kidxlib.catalog.rows import SEGMENT_KEY, PartitionOfSource, Table, column, row
from kidxlib.format.checksums.crc import crc32c
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


def packed_rows(files: Sequence[PackedFile]) -> list[dict[str, Any]]:
    """Files that are packed as rows of the kind `packed`. All but the key of a file that is removed is null."""
    return [
        {
            "packed": {
                "source": file.source,
                "topic": file.topic,
                "partition": file.partition,
                "base_offset": file.base_offset,
                "kind": file.kind,
                "size_bytes": None if file.content is None else len(file.content),
                "crc32c": None if file.content is None else crc32c(file.content),
                "content": file.content,
            }
        }
        for file in files
    ]
