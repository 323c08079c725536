"""What lies there of a stream's partitions, looked at anew for each micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import DamagedLogError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.followed_transactions import FollowedTransactions
from kidxlib.reading.places import LogEnd, PartitionLogs, listed_logs
from kidxlib.reading.request import READ_COMMITTED
from kidxlib.spark.damage import damage_taker
from kidxlib.spark.options import SourceOptions
from kidxlib.spark.planning import source_request, threads
from kidxlib.storage.checkpoints import Checkpoints, read_checkpoints


@dataclass(frozen=True, slots=True)
class Available:
    """What is there of a partition.

    Attributes:
        first_offset: records below it are gone.
        log_end: where the last whole batch ends.
        limit: the end of the log, or its high watermark if nothing from there on is read.
        end: up to where a consumer reads: that, or the last stable offset.
        aborted: transactions whose records are left out.
    """

    directory: PartitionDirectory
    logs: PartitionLogs
    first_offset: int
    log_end: int
    limit: int
    end: int
    aborted: AbortedRanges


class StreamLogs:
    """Remembers where logs end, so that only what was written since is looked at."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ends: dict[TopicPartition, LogEnd] = {}
        self._transactions: dict[TopicPartition, FollowedTransactions] = {}

    def look(self, since: Mapping[TopicPartition, int], *, at_start: bool = False) -> dict[TopicPartition, Available]:
        """Look at all partitions that are read, and have segments.

        Args:
            since: what was aborted before these offsets is not asked for, now and later.
            at_start: a topic or partition that is named has to be there.

        Raises:
            UsageError: it is not, or the path is no log dir and no partition's directory.
            CheckpointError: a checkpoint file is malformed.
            DamagedLogError: what was written to a log is damaged, and `failOnDataLoss` is true; or as
                `FollowedTransactions.up_to`.
            LogChangedError, OSError: a directory cannot be listed, or a log cannot be read.
        """
        request = source_request(self._options, None)
        listed = request.partitions()
        topics = self._options.topics
        chosen = {*(topics.among(listed) if at_start else topics.found(listed))}
        directories = [each for each in listed if each.topic_partition in chosen]
        # Before logs are listed: what a high watermark names is in a log by then.
        known = {each: read_checkpoints(each) for each in dict.fromkeys(each.log_dir for each in directories)}

        def look(directory: PartitionDirectory) -> Available | None:
            logs = listed_logs(directory, request.index_dir)
            start = since.get(directory.topic_partition, 0)
            return None if logs is None else self._available(directory, logs, known[directory.log_dir], start)

        with ThreadPoolExecutor(threads()) as pool:
            found = pool.map(look, directories)
            return {each.directory.topic_partition: each for each in found if each is not None}

    def _available(
        self, directory: PartitionDirectory, logs: PartitionLogs, known: Checkpoints, since: int
    ) -> Available:
        partition = directory.topic_partition
        fails = self._options.fails_on_loss
        self._ends[partition] = logs.end(self._ends.get(partition), damage_taker(fails=fails), goes_on=not fails)
        log_end = self._ends[partition].offset
        first_offset = max(logs.first_offset, (known.log_start_offsets or {}).get(partition, 0))
        high_watermark = (known.high_watermarks or {}).get(partition)
        if high_watermark is None or self._options.to_log_end:
            end = log_end
        elif high_watermark > log_end and fails:
            raise DamagedLogError(
                f"{directory.path}: the log ends before offset {log_end}, expected records up to the high watermark "
                f"{high_watermark}, which {HIGH_WATERMARK_CHECKPOINT} says; failOnDataLoss=false reads what is there"
            )
        else:
            end = min(high_watermark, log_end)
        limit, aborted = end, AbortedRanges()
        if self._options.isolation == READ_COMMITTED:
            followed = self._transactions.setdefault(partition, FollowedTransactions(goes_on=not fails))
            transactions = followed.up_to(logs, end, since=since)
            end, aborted = transactions.last_stable_offset, transactions.aborted
        return Available(directory, logs, first_offset, log_end, limit, end, aborted)
