"""What producers with other settings would have written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatches:
    """What producers with some settings write of the records that were read.

    Attributes:
        codec: `compression.type`.
        batch_size: `batch.size`, in bytes.
        bytes: of all batches, with headers.
        full_batches: batches that were closed as the next record did not fit.
        filled_batches: whole batches, and the filled part of each producer's last one, which is not full as nothing
            more was read. To be multiplied up where the batches that were read stand for all.
    """

    codec: str
    batch_size: int
    bytes: int
    batches: int
    full_batches: int
    filled_batches: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSavings:
    """What was measured of a topic.

    Attributes:
        segments, batches, log_bytes: all that the catalog knows of and that could have been read: without batches of
            markers, but with their bytes.
        sampled_segments: how many segments batches were read of.
        sampled_batches: how many batches were read, without markers of transactions; each message of magic 0 and 1 is
            one.
        sampled_bytes: of these batches, as they are in the log.
        records: in these batches.
        record_bytes: of these records, decompressed, from their keys on with the sizes of their parts.
        producers: how many producers sent them: different ids, and partitions where there is no id.
        with_settings: in the order of the settings; empty where nothing was read.
        not_read: reasons, a line each.
    """

    topic: str
    segments: int
    batches: int
    log_bytes: int
    sampled_segments: int
    sampled_batches: int
    sampled_bytes: int
    records: int
    record_bytes: int
    producers: int
    with_settings: list[WrittenBatches]
    not_read: list[str]
