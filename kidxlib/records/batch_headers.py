"""The batches of a log, from header to header: the fields of a header, the place of the next one, and the checksum.

`batches` and `headers` find batches as Kafka's `FileLogInputStream` does. `batches` refuses headers that no broker
accepts; `headers` yields them too, as Kafka does until more than the header is read. Both are lazy and check no
checksums, as on a broker's read path; `is_crc_valid` does. Offsets and timestamps are Java longs: sums wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.checksums import extend_crc32, extend_crc32c
from kidxlib.format.codecs import CHUNK_BYTES
from kidxlib.format.layouts import BATCH_BYTES_MIN, MAGIC_AT, batch_size
from kidxlib.java import as_long
from kidxlib.storage.log_bytes import LogBytes

_PIECE_BYTES: Final = 16 * CHUNK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The header of a v2 batch, or of a v0 or v1 message, which is a batch of its own; a compressed one is a wrapper.

    Attributes:
        position: in the file, in bytes.
        size: in bytes, with the header.
        magic: the format's version: 0, 1, or 2 and above, which are all read as 2.
        attributes: bits, see `kidxlib.format.layouts`.
        crc: the checksum in the header.
        offset_field: the first field: the base offset of a v2 batch, the last record's offset in a wrapper.
        last_offset: of the last record, which compaction may have removed.
        max_timestamp: the largest timestamp by the header, in ms since the epoch; −1 in magic 0.
        partition_leader_epoch: −1 is none, as always below magic 2.
        base_timestamp: the base of the records' timestamps in a v2 batch.
        producer_id, producer_epoch: −1 is none.
        base_sequence: of the first record; −1 is none.
        records_count: None in a wrapper, which would have to be decompressed.
    """

    position: int
    size: int
    magic: int
    attributes: int
    crc: int
    offset_field: int
    last_offset: int
    max_timestamp: int
    partition_leader_epoch: int = layouts.NO_LEADER_EPOCH
    base_timestamp: int = layouts.NO_TIMESTAMP
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = layouts.NO_SEQUENCE
    records_count: int | None = None

    @property
    def is_v2(self) -> bool:
        return self.magic >= layouts.MAGIC_V2

    @property
    def codec(self) -> int:
        """An index of `layouts.CODECS`."""
        return self.attributes & layouts.ATTRIBUTE_CODEC

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records have the broker's timestamp, `max_timestamp`; never in magic 0."""
        return self.magic != 0 and self.attributes & layouts.ATTRIBUTE_LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.is_v2 and self.attributes & layouts.ATTRIBUTE_TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, which consumers never see."""
        return self.is_v2 and self.attributes & layouts.ATTRIBUTE_CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop tombstones and markers, in ms since the epoch; None if it is not set yet."""
        is_set = self.is_v2 and self.attributes & layouts.ATTRIBUTE_DELETE_HORIZON
        return self.base_timestamp if is_set else None

    @property
    def next_position(self) -> int:
        return self.position + self.size


def parse_batch(position: int, size: int, head: bytes) -> BatchHeader:
    magic = int.from_bytes(head[MAGIC_AT : MAGIC_AT + 1], signed=True)
    if magic < layouts.MAGIC_V2:
        offset, _size, crc, _magic, attributes, timestamp = _MESSAGE_V1.unpack_from(head)
        return BatchHeader(
            position=position,
            size=size,
            magic=magic,
            attributes=attributes,
            crc=crc,
            offset_field=offset,
            last_offset=offset,
            max_timestamp=layouts.NO_TIMESTAMP if magic == 0 else timestamp,
            records_count=1 if attributes & layouts.ATTRIBUTE_CODEC == layouts.CODEC_NONE else None,
        )
    if len(head) < layouts.BATCH_V2_BYTES_MIN:
        raise _too_small(position, size, magic)
    (
        base_offset,
        _length,
        leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = _BATCH_V2.unpack(head)
    return BatchHeader(
        position=position,
        size=size,
        magic=magic,
        attributes=attributes,
        crc=crc,
        offset_field=base_offset,
        last_offset=as_long(base_offset + last_offset_delta),
        max_timestamp=max_timestamp,
        partition_leader_epoch=leader_epoch,
        base_timestamp=base_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records_count,
    )


_BATCH_V2: Final = layouts.as_struct(layouts.BATCH_V2)
_MESSAGE_V1: Final = layouts.as_struct(layouts.MESSAGE_V1)


def _too_small(position: int, size: int, magic: int) -> MalformedRecordsError:
    return MalformedRecordsError(position, f"{size} bytes", f"{layouts.BATCH_V2_BYTES_MIN} or more of magic {magic}")


def batches(log: LogBytes, position: int = 0) -> Iterator[BatchHeader]:
    """The batches from file position `position` on, where a batch must start (`FileRecords.batchesFrom`).

    The last one is before the end of the file or before a torn batch; remaining bytes are no error. Each batch takes
    one small read of the file.
    """
    for batch in headers(log, position):
        if batch.magic < 0:
            raise MalformedRecordsError(batch.position, f"magic {batch.magic}", "0 to 127")
        if batch.is_v2 and batch.size < layouts.BATCH_V2_BYTES_MIN:
            raise _too_small(batch.position, batch.size, batch.magic)
        yield batch


def headers(log: LogBytes, position: int = 0) -> Iterator[BatchHeader]:
    """The batches of `batches`, and also batches with a negative magic or a size too small for magic 2, whose fields
    are read at their usual positions.
    """
    return (parse_batch(*span) for span in spans(log, position))


def spans(log: LogBytes, position: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """The batches by their sizes only: position, size, and the bytes of the longest header, or as many as the file
    has.
    """
    if position < 0:
        raise MalformedRecordsError(position, "that position", "one from 0 on")
    while position < log.size - layouts.HEADER_SIZE_UP_TO_MAGIC:
        head = log.read(position, layouts.BATCH_V2.itemsize)
        size = batch_size(head)
        if size < BATCH_BYTES_MIN:
            raise MalformedRecordsError(
                position, f"size {size - layouts.LOG_OVERHEAD}", f"{layouts.ENTRY_SIZE_MIN} or more"
            )
        if position > log.size - size:
            return
        yield position, size, head
        position += size


def is_crc_valid(log: LogBytes, batch: BatchHeader) -> bool:
    """Whether a batch's checksum is right (`RecordBatch.isValid`). A large batch is read piece by piece."""
    if batch.is_v2:
        if batch.size < layouts.BATCH_V2_BYTES_MIN:
            return False
        covered_from, extend = layouts.V2_ATTRIBUTES_AT, extend_crc32c
    else:
        covered_from, extend = MAGIC_AT, extend_crc32
    crc = 0
    for position in range(batch.position + covered_from, batch.next_position, _PIECE_BYTES):
        crc = extend(crc, log.read(position, min(_PIECE_BYTES, batch.next_position - position)))
    return crc == batch.crc


def epochs_of_batches(some: Iterable[BatchHeader]) -> tuple[EpochEntry, ...]:
    """The leader epochs of v2 batches, each where its batch begins; older batches have none."""
    return tuple(EpochEntry(batch.partition_leader_epoch, batch.offset_field) for batch in some if batch.is_v2)
