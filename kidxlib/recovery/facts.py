"""What the batch headers of a segment say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kidxlib.format import layouts as formats
from kidxlib.recovery.log_facts.header_facts import HeaderFacts, HourRecords, OffsetDigest, SmallestTimestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What the batch headers of a segment's valid prefix say.

    Attributes:
        next_offset: the last batch's last offset + 1; the base offset where there is no batch.
        valid_bytes: length of the valid prefix.
        batches: batches of v2, and messages (wrappers included) of v0 and v1.
        records: records in them; None where compressed v0 or v1 wrappers hide their count.
        max_timestamp_ms: the largest batch timestamp, −1 where there is none; of a quarantined segment perhaps that
            of the batch at which it failed, as in Kafka.
        offset_of_max_timestamp: last offset of the first batch that has it; None where there is none.
        first_leader_epoch, last_leader_epoch: of the batches that carry one; None where none does.
        magics: formats seen, ascending; −1 stands for any other than 0 to 62.
        codecs: names of the codecs seen.
        transactional_batches, control_batches: how many batches have that attribute.
        offset_entries, time_entries: entries of the two indexes.
        map_end_offset: the last v2 batch's last offset + 1, the base offset where there is none; a snapshot of the
            producers at the segment's end is named by it (`ProducerStateManager.mapEndOffset`).
        offsets_increase: each batch's last offset is above that of the batch before it. Kafka looks only from one
            indexed batch to the next.
        log_crc32c: CRC-32C of the whole file, its invalid tail too; None where checksums were not verified, where a
            batch is of magic 0 or 1, or of one that `magics` has as −1, or where more than
            `log_checksum.TAIL_BYTES_MAX` bytes are invalid.
        log_crc64nvme: CRC-64/NVME of the whole file, as Java's long; None where all bytes were not read for it.
        offset_digests: digests of the batches by aligned ranges of base offsets, which may be added up.
        smallest_timestamp_ms: the smallest timestamp of a record, −1 where one has none or there is no record; None
            where headers do not say it.
        smallest_timestamps: the smallest timestamp from a position on, at each position from which on it is larger.
        records_by_hour: records of batches by the hour of their largest timestamp; None where wrappers hide a count.
    """

    next_offset: int
    valid_bytes: int
    batches: int
    records: int | None
    max_timestamp_ms: int
    offset_of_max_timestamp: int | None
    first_leader_epoch: int | None
    last_leader_epoch: int | None
    magics: tuple[int, ...]
    codecs: tuple[str, ...]
    transactional_batches: int
    control_batches: int
    offset_entries: int
    time_entries: int
    map_end_offset: int
    offsets_increase: bool
    log_crc32c: int | None
    log_crc64nvme: int | None
    offset_digests: tuple[OffsetDigest, ...]
    smallest_timestamp_ms: int | None
    smallest_timestamps: tuple[SmallestTimestamp, ...] | None
    records_by_hour: tuple[HourRecords, ...] | None


def facts_of(state: np.void, header_facts: HeaderFacts, log_crc32c: int | None) -> SegmentFacts:
    def known(field: str) -> int | None:
        value = int(state[field])
        return value if value >= 0 else None

    magics = int(state["magics"])
    smallest = header_facts.smallest_timestamps() if header_facts.timestamps_are_certain else None
    return SegmentFacts(
        next_offset=int(state["next_offset"]),
        valid_bytes=int(state["position"]),
        batches=int(state["batches"]),
        records=None if state["compressed_messages"] else int(state["records"]),
        max_timestamp_ms=int(state["max_timestamp"]),
        offset_of_max_timestamp=known("offset_of_max_timestamp"),
        first_leader_epoch=known("first_leader_epoch"),
        last_leader_epoch=known("last_leader_epoch"),
        magics=((-1,) if magics >> 63 else ()) + tuple(_bits(magics & (2**63 - 1))),
        codecs=tuple(formats.CODECS[codec] for codec in _bits(int(state["codecs"]))),
        transactional_batches=int(state["transactional_batches"]),
        control_batches=int(state["control_batches"]),
        offset_entries=int(state["offset_entries"]),
        time_entries=int(state["time_entries"]),
        map_end_offset=int(state["map_end_offset"]),
        offsets_increase=not state["disordered"],
        log_crc32c=log_crc32c,
        log_crc64nvme=None,
        offset_digests=header_facts.offset_digests(),
        smallest_timestamp_ms=None if smallest is None else smallest_of(smallest),
        smallest_timestamps=smallest,
        records_by_hour=None if state["compressed_messages"] else header_facts.records_by_hour(),
    )


def smallest_of(timestamps: tuple[SmallestTimestamp, ...]) -> int:
    """The smallest of all; −1 where there is no record."""
    return timestamps[0].timestamp_ms if timestamps else formats.NO_TIMESTAMP


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
