"""Markers of a clean stop that are not to be believed: what lies beside them tells against them.

Source: `LogManager.shutdown`, which flushes and closes all logs, writes their ends as recovery points, and then one
marker into each log dir, all with the epoch that the broker had; `AbstractIndex.close`, which trims indexes.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.errors import CheckpointError, LogChangedError
from kidxlib.format import topic_partition
from kidxlib.format.layouts import HEADER_SIZE_UP_TO_MAGIC, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.image import ClusterMetadata
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, read_leader_epochs, small_file
from kidxlib.storage.opened_log import LogFile
from kidxlib.text.words import counted

#: What mends a marker that is not to be believed.
REMOVE_MARKERS: Final = (
    f"remove {CLEAN_SHUTDOWN_FILE} in all log dirs of the broker, which then recovers as after a crash"
)
#: What a broker does with a log dir that is an older copy, and what to do.
_SERVES_OLDER: Final = "a broker that starts serves it as it is, without what was written since"
_PUT_BACK: Final = (
    "put the log dir of the last stop in its place; where its partitions have other replicas, take what is in it away, "
    "and they come back from those"
)
_ENTRY_BYTES: Final = {
    OFFSET_INDEX_SUFFIX: OFFSET_INDEX_ENTRY.itemsize,
    TIME_INDEX_SUFFIX: TIME_INDEX_ENTRY.itemsize,
}
#: What tells against a marker, of a partition.
_WITH_RECORDS_BEYOND: Final = "with records from the recovery point on"
_WITH_ZEROS_BEYOND: Final = "with zeros from the recovery point on, and no records"
_WITH_PREALLOCATED_INDEXES: Final = "with a last segment whose index files are still preallocated"


def why_false(log_dir: Location, folders: Iterable[Location], points: Mapping[TopicPartition, int]) -> Obstacle | None:
    """What tells against a log dir's marker; None for nothing. At most the first bytes of a log are read: no clean stop
    leaves an index with zeros for its last entry, or bytes in a segment that begins at or above the recovery point, as
    it cuts off zeros behind the records, too (`FileRecords.close`). Partitions without a recovery point (`points`) tell
    nothing by it.
    """
    signs: defaultdict[str, list[str]] = defaultdict(list)
    is_read: list[str] = []
    for folder in folders:
        partition = topic_partition.served_as(folder.name)
        if partition is None:
            continue
        with contextlib.suppress(OSError, LogChangedError):  # a file that cannot be read is reported elsewhere
            files = files_in(folder)
            last = max((base for name in files if (base := parse_segment_log(name)) is not None), default=None)
            if last is None or files[segment_file(last, LOG_SUFFIX)].stat().st_size == 0:
                continue
            of_folder = []
            if points.get(partition, last + 1) <= last:
                of_folder.append(
                    _WITH_ZEROS_BEYOND
                    if _begins_with_zeros(files[segment_file(last, LOG_SUFFIX)])
                    else _WITH_RECORDS_BEYOND
                )
            if any(_ends_preallocated(files.get(segment_file(last, suffix)), suffix) for suffix in _ENTRY_BYTES):
                of_folder.append(_WITH_PREALLOCATED_INDEXES)
            for sign in of_folder:
                signs[sign].append(folder.name)
            if of_folder and segment_file(last, OFFSET_INDEX_SUFFIX) not in files:
                is_read.append(folder.name)
    if not signs:
        return None
    in_words = [
        f"{counted(len(signs[sign]), 'partition')} {sign} (the first: {min(signs[sign])})"
        for sign in (_WITH_RECORDS_BEYOND, _WITH_ZEROS_BEYOND, _WITH_PREALLOCATED_INDEXES)
        if sign in signs
    ]
    return Obstacle(
        log_dir / CLEAN_SHUTDOWN_FILE,
        f"it says that the broker stopped cleanly, and that is not so: {', and '.join(in_words)}, which no clean stop "
        "leaves",
        Effect.HIDES,
        _what_start_does(len({name for names in signs.values() for name in names}), is_read),
        REMOVE_MARKERS,
    )


def _what_start_does(partitions: int, is_read: Sequence[str]) -> str:
    """What a broker that believes the marker does with so many partitions. It recovers a segment without an `.index`
    all the same (`LogSegment.sanityCheck`); `is_read` are the partitions whose last segment has none.
    """
    if not is_read:
        return "a broker that starts reads no log that has an .index, and takes these and their indexes as they are"
    reads = f"a broker that starts reads the last segment of {counted(len(is_read), 'partition')} all the same"
    others = ", and takes the others and their indexes as they are" if len(is_read) < partitions else ""
    return f"{reads}, as its .index is missing, and cuts off what is no whole batch (the first: {min(is_read)}){others}"


def _begins_with_zeros(log: Location) -> bool:
    with contextlib.closing(LogFile(str(log), HEADER_SIZE_UP_TO_MAGIC)) as opened:
        return not any(opened.read(0, min(HEADER_SIZE_UP_TO_MAGIC, opened.size)))


def _ends_preallocated(path: Location | None, suffix: str) -> bool:
    """Whether an index's last entry is zeros, as if it was preallocated and never closed. The only entry of a time
    index may be all zeros.
    """
    if path is None:
        return False
    size = _ENTRY_BYTES[suffix]
    with contextlib.closing(LogFile(str(path), size)) as index:
        return index.size > size and not any(index.read(index.size - size, size))


def stopped_apart(log_dirs: Iterable[Location]) -> Iterator[Obstacle]:
    """The log dirs of one node whose markers are of an earlier stop than another one's. An epoch is an offset of the
    cluster's metadata, and grows with each start of the broker; −1 is none, and tells nothing.
    """
    epochs = {log_dir: epoch for log_dir in log_dirs if (epoch := _broker_epoch_in_marker(log_dir)) is not None}
    latest = max(epochs, key=lambda log_dir: epochs[log_dir], default=None)
    for log_dir, epoch in epochs.items():
        if latest is not None and epoch < epochs[latest]:
            yield Obstacle(
                log_dir / CLEAN_SHUTDOWN_FILE,
                f"brokerEpoch {epoch}, and that of {latest} is {epochs[latest]}: the broker did not stop with the two "
                "at one time, so this log dir is an older copy, or was not in use at the last stop",
                Effect.HIDES,
                _SERVES_OLDER,
                _PUT_BACK,
                is_loss=True,
            )


def _broker_epoch_in_marker(log_dir: Location) -> int | None:
    """`CleanShutdownFileHandler.read`; None where there is no marker, or none with an epoch."""
    try:
        content = json.loads(small_file(log_dir / CLEAN_SHUTDOWN_FILE))
    except (OSError, ValueError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) and content.get("version") == 0 else None
    return epoch if isinstance(epoch, int) and epoch >= 0 else None


def of_another_time(
    log_dir: Location, folders: Sequence[Location], node_id: int, metadata: ClusterMetadata
) -> str | None:
    """Why a log dir may not be as old as the cluster's metadata (read to its end), as a remark; None where nothing says
    so.

    A node that begins to lead a partition writes the epoch into its `leader-epoch-checkpoint` at once
    (`Partition.makeLeader`). So if all partitions that the node leads in a log dir have older epochs, the log dir may
    be an older copy; if all have newer epochs, the metadata may be. It is never certain: as a broker loads a log it
    removes the epochs from the log's end on (`LogLoader`, `LeaderEpochFileCache.truncateFromEnd`), and one that dies
    before its next election has lost those in which nothing was written, however long it led.
    """
    older: dict[TopicPartition, tuple[int, int]] = {}
    newer: dict[TopicPartition, tuple[int, int]] = {}
    compared, led = 0, 0
    for folder in folders:
        partition = topic_partition.served_as(folder.name)
        assignment = None if partition is None else metadata.assignments.get(partition)
        if partition is None or assignment is None:
            continue
        newest = _newest_leader_epoch(folder)
        if newest is None:
            continue
        compared, led = compared + 1, led + (assignment.last_leader == node_id)
        if assignment.last_leader == node_id and newest < assignment.led_epoch:
            older[partition] = newest, assignment.led_epoch
        elif newest > assignment.leader_epoch:
            newer[partition] = newest, assignment.leader_epoch
        if len(older) < led and len(newer) < compared:
            return None  # it takes all of them: of most log dirs two or three files are read
    see = "see that all log dirs of the broker are of one time"
    if older and len(older) == led:
        return f"{log_dir}: it may be an older copy than the cluster's metadata: {_epochs_in_words(older)}; {see}"
    if newer and len(newer) == compared:
        directory = metadata.directory
        return (
            f"{directory}: the cluster's metadata may be an older copy than {log_dir}: {_epochs_in_words(newer)}; {see}"
        )
    return None


def _epochs_in_words(epochs: Mapping[TopicPartition, tuple[int, int]]) -> str:
    first = min(epochs)
    epoch, in_metadata = epochs[first]
    return (
        f"the newest leader epoch of {first.directory} is {epoch} there, and {in_metadata} in the metadata, and so it "
        f"is of all {counted(len(epochs), 'partition')} that can be compared"
    )


def _newest_leader_epoch(folder: Location) -> int | None:
    try:
        epochs = read_leader_epochs(folder)
    except (CheckpointError, OSError):
        return None
    return None if epochs is None or epochs.last is None else epochs.last.epoch
