"""What producers with other settings would have written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatches:
    """What producers with some settings write of the records that were read.

    Attributes:
        codec: `compression.type`.
        batch_size: `batch.size`, in bytes.
        bytes: of all batches, headers included.
        batches: how many there are.
        full_batches: those that were closed as the next record did not fit.
        filled_batches: of a producer's last batch the part that is filled, which is not full as nothing more was read;
            the others are whole. To be multiplied up where the batches that were read stand for all.
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
        segments, batches, log_bytes: all that the catalog knows of it and could have been read: without batches of
            markers, but with their bytes.
        sampled_segments: how many segments were read of.
        sampled_batches: how many batches were read, markers of transactions left out; of magic 0 and 1 each message is
            one.
        sampled_bytes: of these, as they are in the log.
        records: in them.
        record_bytes: of these, without what stands before each one but its sizes, decompressed.
        producers: by how many producers they are: different ids, and partitions where there is no id.
        with_settings: what each setting makes of them, in the order in which settings were asked; empty where nothing
            was read.
        not_read: what could not be read and why, a line each.
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
