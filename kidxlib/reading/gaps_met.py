"""Gaps between logs that reading meets: offsets that are neither in a log nor in the one after it.

The cleaner leaves such gaps, and a segment that was lost does. Logs of a topic that lack records within tell that the
cleaner was there. Of a few offsets that were read they may not: so where there is a gap, the topic's policy by the
cluster's metadata is asked, and the cleaner's checkpoint (`kidxlib.audit.gaps` has more evidence, and asks who knows
the offsets).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import KidxError
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.layouts import MAGIC_V2
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS, TopicPartition
from kidxlib.log.cluster_metadata.image import BrokerSettings, topic_config
from kidxlib.reading.absent import BrokersMetadata
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.storage.location import Location, location
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.small_files import read_offset_checkpoint

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log, or a part of one, that was read to its end.

    Attributes:
        next_offset: behind its last batch, or where what is wanted begins, if that is later.
        end_offset: where the next log begins; the same where none does, or nothing from there on is wanted.
        lacks_records: offsets are missing within it.
    """

    topic: str
    partition: int
    next_offset: int
    end_offset: int
    lacks_records: bool


#: Takes each log, or part of one, that was read to its end.
TakeLog: TypeAlias = Callable[[LogRead], object]


def lacks_records(rows: NDArray[np.void], last_offset: int) -> bool:
    """Whether offsets are missing between batches that follow one another, or batches have fewer records than offsets.

    Args:
        last_offset: of the batch before; below 0 where there is none.
    """
    is_v2 = rows["magic"] >= MAGIC_V2
    begins = np.where(is_v2, rows["offset_field"], rows["last_offset"])
    before = np.concatenate([[last_offset if last_offset >= 0 else begins[0] - 1], rows["last_offset"][:-1]])
    is_cut = is_v2 & (rows["records_count"] < rows["last_offset"] - begins + 1)
    return bool((begins > before + 1)[is_v2].any() or is_cut.any())


def known_end_of(read: SegmentRead) -> LogRead | None:
    """A log of which a catalog tells the records, as one that was read; None where no catalog tells where it ends."""
    if read.records is None or read.next_offset is None:
        return None
    end_offset = read.next_offset if read.end_offset is None else max(read.end_offset, read.next_offset)
    goes_on = read.next_offset <= read.wanted.last_offset
    return LogRead(
        topic=read.topic,
        partition=read.partition,
        next_offset=read.next_offset,
        end_offset=end_offset if goes_on else read.next_offset,
        lacks_records=read.records < read.next_offset - read.base_offset,
    )


def gaps_of(logs: Iterable[LogRead], reads: Iterable[SegmentRead]) -> list[LeftOut]:
    """The gaps that no compaction explains, as far as the logs that were read tell, and their log dirs.

    Args:
        reads: that the logs were read for.
    """
    found, reads = list(logs), list(reads)
    compacted = COMPACTED_BY_BROKERS | {log.topic for log in found if log.lacks_records}
    in_question = {log.topic for log in found if log.next_offset < log.end_offset} - compacted
    if in_question:
        log_dirs = {location(read.log_path).parent.parent for read in reads if read.topic in in_question}
        compacted |= _compacted(in_question, sorted(log_dirs, key=str))
    lost = [log for log in found if log.next_offset < log.end_offset and log.topic not in compacted]
    if not lost:
        return []
    directories = {(read.topic, read.partition): location(read.log_path).parent for read in reads}
    aside = LogsAside(sorted({directory.parent for directory in directories.values()}, key=str))
    return [
        LeftOut(
            partition=TopicPartition(log.topic, log.partition),
            why=Why.BETWEEN_LOGS,
            first_offset=log.next_offset,
            end_offset=log.end_offset,
            edge=log.end_offset,
            remedy=aside.remedy(directories[log.topic, log.partition], log.next_offset, log.end_offset),
        )
        for log in lost
    ]


def _compacted(topics: Collection[str], log_dirs: Collection[Location]) -> set[str]:
    """The topics of which a log dir says that they are compacted."""
    brokers = BrokersMetadata(log_dirs)
    return {topic for topic in topics if any(is_compacted(topic, log_dir, brokers) for log_dir in log_dirs)}


def is_compacted(topic: str, log_dir: Location, brokers: BrokersMetadata) -> bool | None:
    """Whether a topic has the policy; where that is not known, whether the cleaner has cleaned it: its checkpoint has
    no other (`LogCleanerManager.updateCheckpoints`). None where the log dir has no such checkpoint, either.
    """
    if topic in COMPACTED_BY_BROKERS:
        return True
    with contextlib.suppress(OSError, KidxError):  # a log dir of which nothing is known says nothing
        owner = brokers.owner(log_dir)
        metadata = None if owner.cluster_id is None else brokers.of_cluster(owner.cluster_id)
        if metadata is not None and topic in metadata.to_end.topics:
            policy = topic_config(metadata.to_end, BrokerSettings(owner.node_id, None), topic, _POLICY)
            if policy is not None:
                return _COMPACT in {word.strip() for word in policy.value.split(",")}
    with contextlib.suppress(OSError, KidxError):
        cleaned = read_offset_checkpoint(log_dir / CLEANER_CHECKPOINT)
        if cleaned is not None:
            return any(partition.topic == topic and offset > 0 for partition, offset in cleaned.items())
    return None
