"""A partition's directory, opened for lookups; its indexes are checked before use."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from kidxlib.format.checkpoint_files import LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.log.cluster_metadata.image import release_of_node
from kidxlib.log.log import Log
from kidxlib.lookup.checked_segment import CheckedSegment
from kidxlib.lookup.checkpoint_evidence import high_watermark_of
from kidxlib.reading.log_dir_evidence import LogDirEvidenceReader
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
        of_log_dir = LogDirEvidenceReader().evidence_on_log(place, partition, None, high_watermark_of(place, partition))
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
