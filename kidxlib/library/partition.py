"""One partition's directory, opened for lookups (`open_partition`), and what retention would delete of it
(`decide_retention`).
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np

from kidxlib.errors import KidxError
from kidxlib.format.checkpoint_files import LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.log.log import Log
from kidxlib.log.metadata_image import release_of_node
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.checked_segment import CheckedSegment
from kidxlib.lookup.checkpoint_evidence import checkpointed_high_watermark
from kidxlib.reading.brokers_metadata import BrokersEvidence
from kidxlib.retention.decide import Decisions, RetentionBounds, SegmentColumns, decide, keep_all
from kidxlib.retention.policy import Reason, TopicPolicy
from kidxlib.storage.location import Location, given_indexes
from kidxlib.storage.log_dir import read_offset_checkpoint


def open_partition(
    directory: str | os.PathLike[str],
    index_dir: str | os.PathLike[str] | None = None,
    *,
    log_start_offset: int | None = None,
    kafka_version: str | None = None,
) -> Log:
    """The log of one partition, which answers as a broker does: by offset, by time, by leader epoch.

    The directories are listed and the small checkpoint files are read at once. A log or an index is opened when an
    answer needs it. An index is checked as a broker checks it; if it cannot be right, or is missing, the segment's log
    is scanned, and the indexes that recovery would write are used, in memory.

    Args:
        directory: the partition's directory, `<topic>-<partition>` in a log dir or in an archive, here or in
            `s3://<bucket>/<prefix>`.
        index_dir: the tree with its indexes, as `recover_directory` makes it; `packed:<catalog>!/<source>` if a build
            with --pack keeps them in a catalog; None if they are beside the logs.
        log_start_offset: offsets below it are not answered; None for that of the log dir's checkpoint file, or 0 if
            that has none.
        kafka_version: the Kafka as which to answer where releases differ, which is on damage; None for the node's, as
            it has registered, and else the newest.

    Raises:
        UsageError: a URL is of another form, or `kafka_version` is none that kidx knows.
        NoSegmentsError: no segment is in the directory.
        CheckpointError: a checkpoint file is malformed.
        OSError: the directory cannot be listed, or a file cannot be looked at.
    """
    place = _place(directory)
    given = None if kafka_version is None else KafkaRelease.given("kafka_version", kafka_version)
    partition, of_log_dir = parse_partition_directory(place.name), None
    if partition is not None:
        of_log_dir = BrokersEvidence().on_log(place, partition, None, checkpointed_high_watermark(place, partition))
        if log_start_offset is None:
            log_start_offset = (read_offset_checkpoint(place.parent / LOG_START_OFFSET_CHECKPOINT) or {}).get(partition)
    return Log.open(
        place,
        None if index_dir is None else _place(index_dir) / place.name,
        log_start_offset=log_start_offset or 0,
        segment_type=CheckedSegment,
        of_log_dir=of_log_dir,
        release=functools.cache(lambda: release_of_node(place, given).release),
    )


def _place(path: str | os.PathLike[str]) -> Location:
    text = os.fspath(path)
    return given_indexes("", text) or Path(os.path.realpath(text))


def decide_retention(log: Log, policy: TopicPolicy, now_ms: int, *, high_watermark: int | None = None) -> Decisions:
    """Which segments of a partition a broker would delete by retention, and why the others stay
    (`UnifiedLog.deleteOldSegments`). Nothing is deleted.

    No error of a file is raised: a segment whose log or time index cannot be read stays, and so do all after it. If the
    policy has `remote_storage`, all segments stay: tiered storage is not modelled, and a local segment may be the only
    copy. The caller has to ask first whether a topic is one of Kafka's own.

    Args:
        log: from `open_partition`.
        policy: the topic's configuration. Its `log_start_offsets` do not count: open the partition with the log start
            offset that is meant.
        now_ms: the time of the decision, in ms since the epoch.
        high_watermark: nothing from there on is deleted; None for the log end offset.

    Returns:
        The decisions, one for each of `log.segments`, in order.
    """
    rows = [_row(segment) for segment in log.segments]
    max_timestamps, largest, sizes, fully_read = zip(*rows, strict=True)
    segments = SegmentColumns(
        base_offsets=np.array([segment.base_offset for segment in log.segments], np.int64),
        sizes=np.array(sizes, np.int64),
        max_timestamps=np.array(max_timestamps, np.int64),
        mtimes_ms=np.array(largest, np.int64),
        fully_read=np.array(fully_read, np.bool_),
    )
    if policy.remote_storage:
        return keep_all(segments, Reason.NOT_MODELLED)
    bounds = RetentionBounds.at_start(
        log.segments[0].base_offset,
        _log_end_offset(log),
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
    )
    return decide(segments, bounds, policy, now_ms)


def _row(segment: LogSegment) -> tuple[int, int, int, bool]:
    """A segment's largest timestamp, the time from which its age counts, its bytes, and whether these are known."""
    try:
        # The bytes come last: if the segment had to be recovered, they are those that a broker would leave.
        return segment.max_timestamp_so_far.timestamp, segment.largest_timestamp, segment.size, True
    except (KidxError, OSError):
        return -1, -1, 0, False
    finally:
        segment.release()


def _log_end_offset(log: Log) -> int:
    try:
        return log.log_end_offset
    except (KidxError, OSError):
        return log.segments[-1].base_offset  # it is not known, and the segment stays in any case
