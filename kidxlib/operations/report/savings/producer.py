"""A producer that lays records down in batches.

Sources: `RecordAccumulator.append`, `ProducerBatch`, `MemoryRecordsBuilder.hasRoomFor`, `CompressionRatioEstimator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format.layouts import BATCH_V2_BYTES_MIN
from kidxlib.operations.report.savings.batch_kernel import ESTIMATION_FACTOR, fill_batch
from kidxlib.operations.report.savings.codecs import UNCOMPRESSED, compressed_bytes
from kidxlib.operations.report.savings.records import Records
from kidxlib.operations.report.savings.saving import WrittenBatches

#: What a producer that has just started takes for the ratio (`CompressionType.rate`).
NO_ESTIMATE: Final = np.float32(1.0)
_IMPROVING_STEP: Final = np.float32(0.005)
_DETERIORATE_STEP: Final = np.float32(0.05)


@dataclass(slots=True)
class Contents:
    """Batches of some records, and how large they are once they are compressed: each is compressed once, though
    producers with several `batch.size` may write it.

    Attributes:
        records: of each producer.
    """

    records: Sequence[Records]
    _rooms: list[NDArray[np.uint8]] = field(default_factory=list)
    _sizes: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rooms = [each.room() for each in self.records]

    def room(self, producer: int) -> NDArray[np.uint8]:
        """The memory in which the last batch of a producer was laid down."""
        return self._rooms[producer]

    def batch(self, producer: int, first: int, codec: str, batch_size: int, ratio: np.float32) -> tuple[int, int, int]:
        """Lay down a batch.

        Args:
            producer: by its number.
            first: number of its first record.
            ratio: compressed bytes of a byte, as the producer estimates them.

        Returns:
            The number of the record after its last one, and its bytes after the header, plain and compressed.
        """
        records, room = self.records[producer], self._rooms[producer]
        of_records = records.bodies, records.ends, records.timestamps, records.begins
        after, plain = fill_batch(*of_records, first, batch_size, ratio, codec != UNCOMPRESSED, room)
        key = codec, producer, first, after
        if key not in self._sizes:
            self._sizes[key] = compressed_bytes(codec, room[:plain].data)
        return after, plain, self._sizes[key]


class Producer:
    """A producer with some settings, and what it has written."""

    def __init__(self, codec: str, batch_size: int, ratio: np.float32 = NO_ESTIMATE) -> None:
        """
        Args:
            ratio: compressed bytes of a byte, as it estimates them at first.
        """
        self._codec, self._batch_size, self._ratio = codec, batch_size, ratio
        self._observed: np.float32 | None = None
        self._plain_bytes = self._bytes = self._batches = self._full_batches = 0
        self._missing = 0.0  # of batches that end as there are no more records

    def write(self, contents: Contents, producer: int) -> None:
        """Write all records of a producer, the last batch too, which may not be full."""
        records = contents.records[producer]
        first, count = 0, len(records.timestamps)
        while first < count:
            ratio = self._ratio
            # The batch before is closed, and its ratio known, only after this one has begun.
            if self._observed is not None:
                self._ratio = updated(self._ratio, self._observed)
            first, plain, compressed = contents.batch(producer, first, self._codec, self._batch_size, ratio)
            self._observed = np.float32(compressed / plain)
            self._plain_bytes += plain
            self._bytes += BATCH_V2_BYTES_MIN + compressed
            self._batches += 1
            self._full_batches += first < count and not records.begins[first]
            if first == count and not records.is_closed:
                self._missing += max(1 - self._estimated(plain, ratio) / max(self._batch_size, 1), 0)

    def _estimated(self, plain: int, ratio: np.float32) -> float:
        """How large the producer takes a batch for."""
        factor = 1 if self._codec == UNCOMPRESSED else float(ratio * ESTIMATION_FACTOR)
        return BATCH_V2_BYTES_MIN + plain * factor

    @property
    def settled_ratio(self) -> np.float32:
        """What a producer estimates that has written such batches for a while."""
        return _settled((self._bytes - self._batches * BATCH_V2_BYTES_MIN) / self._plain_bytes)

    @property
    def written(self) -> WrittenBatches:
        return WrittenBatches(
            codec=self._codec,
            batch_size=self._batch_size,
            bytes=self._bytes,
            batches=self._batches,
            full_batches=self._full_batches,
            filled_batches=self._batches - self._missing,
        )


def updated(ratio: np.float32, observed: np.float32) -> np.float32:
    """What a producer estimates after a batch (`CompressionRatioEstimator.updateEstimation`)."""
    if observed > ratio:
        return np.float32(max(ratio + _DETERIORATE_STEP, observed))
    return np.float32(max(ratio - _IMPROVING_STEP, observed))


def settled_ratio(contents: Contents, producer: int, codec: str, batch_size: int) -> np.float32:
    """What a producer estimates that has run for a while.

    Args:
        producer: whose first records are looked at.
    """
    if codec == UNCOMPRESSED:
        return NO_ESTIMATE
    ratio = NO_ESTIMATE
    for _ in range(2):  # the first batch is small
        _, plain, compressed = contents.batch(producer, 0, codec, batch_size, ratio)
        ratio = np.float32(compressed / plain)
    return _settled(float(ratio))


def _settled(ratio: float) -> np.float32:
    """The middle of how far an estimate goes up and down, where batches have a ratio."""
    return np.float32(ratio + _DETERIORATE_STEP / 2)
