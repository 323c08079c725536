"""Evidence on a partition's log from its log dir's other files: where the log began, how far it went, and whether its
topic is compacted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache, partial

from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.log import LogDirEvidence
from kidxlib.lookup.checkpoint_evidence import ReadOffsets, evidence_of_checkpoints
from kidxlib.reading.absent import BrokersMetadata
from kidxlib.reading.gaps_between_logs import is_compacted
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.storage.logs_aside import LogsAside


class LogDirEvidenceReader:
    """Reads checkpoints and the cluster's metadata of log dirs, once for each log dir.

    `log_dirs` are those that may have the cluster's metadata, besides the one in which a log is.
    """

    def __init__(self, log_dirs: Collection[Location] = ()) -> None:
        #: The contents of checkpoint files, as `read_offset_checkpoint` returns them.
        self.offsets_in: ReadOffsets = cache(read_offset_checkpoint)
        self._log_dirs = log_dirs
        self._brokers = BrokersMetadata(log_dirs)
        self._others: dict[Location, BrokersMetadata] = {}

    def evidence_on_log(
        self, directory: Location, partition: TopicPartition, first_base: int | None, high_watermark: int | None
    ) -> LogDirEvidence:
        """What the log dirs say of a partition's log. Files are read at the first question. `first_base` is the base
        offset of its first log; None for that of the first log that is in the directory now.
        """
        log_dir = directory.parent
        brokers = self._brokers
        if log_dir not in self._log_dirs:
            brokers = self._others.setdefault(log_dir, BrokersMetadata([log_dir, *self._log_dirs]))
        return replace(
            evidence_of_checkpoints(directory, partition, first_base, high_watermark, self.offsets_in),
            is_compacted=partial(is_compacted, partition.topic, log_dir, brokers),
            what_is_aside=partial(LogsAside([log_dir, *self._log_dirs]).remedy, directory),
        )
