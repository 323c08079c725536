"""Whether the checksum of a batch fits what it covers."""

from __future__ import annotations

from typing import Final

from kidxlib.format import layouts as formats
from kidxlib.format.checksums.crc import extend_crc32, extend_crc32c
from kidxlib.format.codecs import CHUNK_BYTES
from kidxlib.records.batch import Batch
from kidxlib.storage.log_bytes import LogBytes

_PIECE_BYTES: Final = 16 * CHUNK_BYTES
_V2_COVERS_FROM: Final = formats.field_position(formats.BATCH_V2, "attributes")
_LEGACY_COVERS_FROM: Final = formats.field_position(formats.MESSAGE_V1, "magic")


def is_crc_valid(log: LogBytes, batch: Batch) -> bool:
    """Whether its checksum fits (`RecordBatch.isValid`). Of a large batch a piece is held at a time."""
    if batch.is_v2:
        if batch.size < formats.BATCH_V2_BYTES_MIN:
            return False
        covered_from, extend = _V2_COVERS_FROM, extend_crc32c
    else:
        covered_from, extend = _LEGACY_COVERS_FROM, extend_crc32
    crc = 0
    for position in range(batch.position + covered_from, batch.next_position, _PIECE_BYTES):
        crc = extend(crc, log.read(position, min(_PIECE_BYTES, batch.next_position - position)))
    return crc == batch.crc
