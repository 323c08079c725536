"""The batches of a log, from header to header, as Kafka's `FileLogInputStream` finds them.

`batches` refuses headers that no broker takes; `headers` gives them for whatever they say, as Kafka does until it is
asked for more than the header. Both are lazy, and look at no checksum, as on a broker's read path.
"""

from __future__ import annotations

from collections.abc import Iterator

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.format.batch_header import SIZE_AT
from kidxlib.records.batch import Batch, parse_batch, too_small
from kidxlib.storage.log_bytes import LogBytes


def batches(log: LogBytes, position: int = 0) -> Iterator[Batch]:
    """The batches from file position `position` on, which must be where one starts (`FileRecords.batchesFrom`).

    It ends where no whole batch follows, be that the end of the file or a batch that reaches past it; bytes left over
    are no error. One small read of the file a batch.

    Raises:
        MalformedRecordsError: a size that no batch can have, or a negative magic; a negative `position`, as an index
            that is damaged may name.
    """
    for batch in headers(log, position):
        if batch.magic < 0:
            raise MalformedRecordsError(batch.position, f"magic {batch.magic}", "0 to 127")
        if batch.is_v2 and batch.size < formats.BATCH_V2_BYTES_MIN:
            raise too_small(batch.position, batch.size, batch.magic)
        yield batch


def headers(log: LogBytes, position: int = 0) -> Iterator[Batch]:
    """The batches, as `batches` yields them, and also those with a negative magic or with a size too small for magic 2.
    The fields of such a batch are the bytes at their usual places.

    Raises:
        MalformedRecordsError: a size that not even a message of magic 0 can have; a header that reaches past the end
            of the file; a negative `position`.
    """
    return (parse_batch(*span) for span in spans(log, position))


def spans(log: LogBytes, position: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Where the batches lie, by their sizes alone: position, size, and the bytes from there on that a header may take,
    as many as the file has.

    Raises:
        MalformedRecordsError: a size that no batch can have, or a negative `position`.
    """
    if position < 0:
        raise MalformedRecordsError(position, "that position", "one from 0 on")
    while position < log.size - formats.HEADER_SIZE_UP_TO_MAGIC:
        head = log.read(position, formats.BATCH_V2.itemsize)
        size = formats.LOG_OVERHEAD + int.from_bytes(head[SIZE_AT : SIZE_AT + 4], signed=True)
        if size < formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN:
            raise MalformedRecordsError(
                position, f"size {size - formats.LOG_OVERHEAD}", f"{formats.ENTRY_SIZE_MIN} or more"
            )
        if position > log.size - size:
            return
        yield position, size, head
        position += size
