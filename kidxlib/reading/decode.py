"""Checked batches of a segment, made rows of: records as a consumer gets them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.reading.damage import Damage
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records.arrow.arrays import Array, has_attribute, numbers, words
from kidxlib.records.arrow.records import pieces, record_batch
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.decode import BYTES_MAX, ROWS_MAX, RecordPlacer


class Decoder:
    """Makes rows of batches. It has memory of its own, for the batches of one table at a time."""

    def __init__(self, schema: pa.Schema) -> None:
        """
        Args:
            schema: columns of `CONSUMED`.
        """
        self._schema = schema
        self._placer = RecordPlacer()

    def rows(self, read: SegmentRead, table: BatchTable) -> Iterator[pa.RecordBatch | Damage]:
        """The records of batches as a consumer gets them, some at a time, and damage in the place of batches that do
        not hold what they say.

        Args:
            table: batches of that segment, each with the right checksum.
        """
        table = table.where(is_seen(read, table.rows))
        while len(table.rows):
            try:
                for placed in self._placer.placed(table, read.wanted):
                    for piece in pieces(placed, ROWS_MAX, BYTES_MAX):
                        yield record_batch(piece, self._schema, _constants(read, len(piece.places), self._schema))
            except MalformedRecordsError as error:
                number = int(np.searchsorted(table.rows["position"], error.position))
                yield _damage(read, table.rows[number], error)
                table = table.after(number)
            else:
                return


def is_seen(read: SegmentRead, rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which batches a consumer sees: no markers, and none that is to be left out because it was aborted."""
    return ~(has_attribute(rows, formats.ATTRIBUTE_CONTROL) | read.aborted.holds(rows))


def _constants(read: SegmentRead, rows: int, schema: pa.Schema) -> dict[str, Array]:
    """The columns that are the same for all records of a segment."""
    found = {}
    if "topic" in schema.names:
        found["topic"] = words([read.topic], np.zeros(rows, np.int32))
    if "partition" in schema.names:
        found["partition"] = numbers(pa.int32(), np.full(rows, read.partition))
    return found


def _damage(read: SegmentRead, batch: NDArray[np.void], error: MalformedRecordsError) -> Damage:
    position, last_offset = int(batch["position"]), int(batch["last_offset"])
    return Damage(
        path=read.log_path,
        topic=read.topic,
        partition=read.partition,
        position=position,
        end=position + int(batch["size"]),
        first_offset=int(batch["offset_field"]) if batch["magic"] >= formats.MAGIC_V2 else read.base_offset,
        next_offset=last_offset + 1,
        reason=f"found {error.found}, expected {error.expected}",
    )
