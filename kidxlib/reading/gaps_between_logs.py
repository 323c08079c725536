"""Finds gaps between the logs that are read: offsets that are neither in a log nor in the next one.

The cleaner leaves such gaps, and so does a lost segment. If logs of a topic lack records inside, the cleaner has been
there. The few offsets that were read may not show this. So for each gap, the topic's policy is looked up in the
cluster's metadata, and the cleaner's checkpoint is read (`kidxlib.audit.gaps` has more evidence).

If times are wanted, a gap counts unless the batches on both sides of it are older, or both are newer: nothing else
shows which times were in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import KidxError
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.layouts import MAGIC_V2, NO_TIMESTAMP
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS, TopicPartition
from kidxlib.log.cluster_metadata.image import BrokerSettings, topic_config
from kidxlib.reading.absent import BrokersMetadata
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.unread_offsets import LeftOut, Why
from kidxlib.records.batch_headers import batches
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.location import Location, location
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.opened_log import opened_log

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
#: How many bytes are read to see a header.
_WINDOW_BYTES: Final = 4 * 1024


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log, or a part of one, that was read to its end.

    Attributes:
        next_offset: behind its last batch, or the first wanted offset, if that is later.
        end_offset: the base offset of the next log; `next_offset` if there is none, or nothing from there on is wanted.
        lacks_records: offsets are missing within it.
        ends_ms: the largest timestamp of its last batch, in ms since the epoch; −1 if it is not known.
        first_ms, last_ms: the wanted times.
    """

    topic: str
    partition: int
    log_path: str
    next_offset: int
    end_offset: int
    lacks_records: bool
    ends_ms: int = NO_TIMESTAMP
    first_ms: int = Wanted().first_ms
    last_ms: int = Wanted().last_ms


#: Is called with each log, or part of one, that was read to its end.
TakeLog: TypeAlias = Callable[[LogRead], object]


def lacks_records(rows: NDArray[np.void], last_offset: int) -> bool:
    """Whether offsets are missing between consecutive batches of a log, or batches have fewer records than offsets.
    `last_offset` is that of the batch before; below 0 if there is none.
    """
    is_v2 = rows["magic"] >= MAGIC_V2
    begins = np.where(is_v2, rows["offset_field"], rows["last_offset"])
    before = np.concatenate([[last_offset if last_offset >= 0 else begins[0] - 1], rows["last_offset"][:-1]])
    follows = is_v2.copy()
    follows[1:] &= rows["position"][1:] == rows["position"][:-1] + rows["size"][:-1]
    is_cut = is_v2 & (rows["records_count"] < rows["last_offset"] - begins + 1)
    return bool((begins > before + 1)[follows].any() or is_cut.any())


def known_end_of(read: SegmentRead) -> LogRead | None:
    """A log whose records are known from a catalog, as if it were read; None if no catalog knows where it ends."""
    if read.records is None or read.next_offset is None:
        return None
    end_offset = read.next_offset if read.end_offset is None else max(read.end_offset, read.next_offset)
    goes_on = read.next_offset <= read.wanted.last_offset
    return LogRead(
        topic=read.topic,
        partition=read.partition,
        log_path=read.log_path,
        next_offset=read.next_offset,
        end_offset=end_offset if goes_on else read.next_offset,
        lacks_records=read.records < read.next_offset - read.base_offset,
        first_ms=read.wanted.first_ms,
        last_ms=read.wanted.last_ms,
    )


def gaps_of(logs: Iterable[LogRead]) -> list[LeftOut]:
    """The gaps that compaction does not explain, by the logs that were read and by their log dirs."""
    logs_read = list(logs)
    compacted = COMPACTED_BY_BROKERS | {log.topic for log in logs_read if log.lacks_records}
    gaps = [log for log in logs_read if log.next_offset < log.end_offset and log.topic not in compacted]
    gaps = [log for log in gaps if _may_have_wanted_times(log)]
    if not gaps:
        return []
    log_dirs = sorted({location(log.log_path).parent.parent for log in logs_read}, key=str)
    brokers, topics = BrokersMetadata(log_dirs), {log.topic for log in gaps}
    compacted |= {topic for topic in topics if any(is_compacted(topic, log_dir, brokers) for log_dir in log_dirs)}
    aside = LogsAside(log_dirs)
    return [
        LeftOut(
            partition=TopicPartition(log.topic, log.partition),
            why=Why.BETWEEN_LOGS,
            first_offset=log.next_offset,
            end_offset=log.end_offset,
            edge=log.end_offset,
            remedy=aside.remedy(location(log.log_path).parent, log.next_offset, log.end_offset),
        )
        for log in gaps
        if log.topic not in compacted
    ]


def _may_have_wanted_times(log: LogRead) -> bool:
    """Whether records with wanted times may be missing after a log."""
    if not Wanted(first_ms=log.first_ms, last_ms=log.last_ms).has_times:
        return True
    times = log.ends_ms, begins_ms(location(log.log_path).parent / segment_file(log.end_offset, LOG_SUFFIX))
    return min(times) < 0 or (max(times) >= log.first_ms and min(times) <= log.last_ms)


def begins_ms(log: Location) -> int:
    """The largest timestamp of a log's first batch, in ms since the epoch; −1 if it is not known."""
    with contextlib.suppress(OSError, KidxError), opened_log(str(log)) as opened:
        content = opened.log(opened.version.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
        return next((batch.max_timestamp for batch in batches(content)), NO_TIMESTAMP)
    return NO_TIMESTAMP


def is_compacted(topic: str, log_dir: Location, brokers: BrokersMetadata) -> bool | None:
    """Whether a topic is compacted by its policy. If that is not known, whether the cleaner's checkpoint has the topic:
    it has only cleaned ones (`LogCleanerManager.updateCheckpoints`). None if there is no such checkpoint either.
    """
    if topic in COMPACTED_BY_BROKERS:
        return True
    with contextlib.suppress(OSError, KidxError):  # a log dir that cannot be read says nothing
        node_id, metadata = brokers.owner(log_dir).node_id, brokers.metadata_of(log_dir)
        if metadata is not None and topic in metadata.to_end.topics:
            policy = topic_config(metadata.to_end, BrokerSettings(node_id, None), topic, _POLICY)
            if policy is not None:
                return _COMPACT in {word.strip() for word in policy.value.split(",")}
    with contextlib.suppress(OSError, KidxError):
        cleaned = read_offset_checkpoint(log_dir / CLEANER_CHECKPOINT)
        if cleaned is not None:
            return any(partition.topic == topic and offset > 0 for partition, offset in cleaned.items())
    return None
