"""What a reading leaves out, or is asked for and missing (`LeftOut`): each with its reason, and a line for each reason.
It is found where partitions are absent or doubtful, between the logs that were read (`gaps_between_logs`), and by
`kidxlib.reading.partition_ends`.

The cleaner leaves gaps between logs, and so does a lost segment. If logs of a topic lack records inside, the cleaner
has been there. The few offsets that were read may not show this. So for each gap, the topic's policy is looked up in
the cluster's metadata, and the cleaner's checkpoint is read (`kidxlib.audit.gaps` has more evidence).

If times are wanted, a gap counts unless the batches on both sides of it are older, or both are newer: nothing else
shows which times were in it.
"""

from __future__ import annotations

import contextlib
import enum
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kidxlib.errors import CheckpointError, KidxError
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from kidxlib.format.layouts import NO_TIMESTAMP
from kidxlib.format.segment_files import LOG_SUFFIX, NotASegment, segment_file
from kidxlib.format.topic_partition import (
    COMPACTED_BY_BROKERS,
    TopicPartition,
    is_moved,
    is_other_name,
    loaded_as,
    may_be_renamed,
)
from kidxlib.indexing.listing import SkippedEntries
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.reading.brokers_metadata import BrokersMetadata, is_compacted, log_dirs_without_metadata, other_topic_id
from kidxlib.records.batch_headers import batches
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import Location, location
from kidxlib.storage.log_dir import (
    IN_BUCKET_OR_LOST,
    PARTITION_METADATA,
    MetaProperties,
    directories_in,
    looks_unmounted,
    read_topic_id,
)
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.opened_log import opened_log
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.reading.segment_read import LogRead

#: How to read directories that do not have a partition's name.
COPY_IT: Final = "to read one, copy it to a directory called <topic>-<partition>, and name that"
#: How many partitions a line names.
_NAMED: Final = 5

#: Directories that have a partition's records and are not read.
_SET_ASIDE: Final = (NotASegment.DIRECTORY_STRAY, NotASegment.DIRECTORY_DELETE, NotASegment.DIRECTORY_FUTURE)

#: How many bytes are read to see a header.
_WINDOW_BYTES: Final = 4 * 1024


class WhyLeftOut(enum.StrEnum):
    """Why offsets are not read."""

    BEYOND_HIGH_WATERMARK = "beyond-high-watermark"
    BEYOND_LAST_STABLE_OFFSET = "beyond-last-stable-offset"
    BELOW_LOG_START = "below-log-start"
    HIDDEN_BELOW_LOG_START = "hidden-below-log-start"
    LOG_START_ABOVE_END = "log-start-above-end"
    BEYOND_LOG_END = "beyond-log-end"
    ENDS_BELOW_HIGH_WATERMARK = "log-ends-below-high-watermark"
    ENDS_BEFORE_INDEX = "log-ends-before-its-index"
    BEFORE_FIRST_SEGMENT = "before-first-segment"
    FIRST_LOGS_MISSING = "first-logs-missing"
    FIRST_LOGS_NOT_KNOWN = "first-logs-not-known"
    BETWEEN_LOGS = "between-logs"
    NO_LOG = "no-log"
    NO_DIRECTORY = "no-directory"
    NOT_ANYWHERE = "not-anywhere"
    OTHER_LOG_DIR = "other-log-dir"
    NOT_IN_LOG_DIRS = "not-in-log-dirs"
    OLDER_LOG_DIR = "older-log-dir"
    OTHER_TOPIC_ID = "other-topic-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Offsets of a partition that are not read, or a whole partition, which has no `edge`.

    Attributes:
        end_offset: the offset after the last one; None for no end.
        edge: the high watermark, last stable offset, log start or log end beyond which the offsets lie.
        records: how many records have the offsets; None if these were not counted.
        directory_id: the `directory.id` of the log dir that has the partition by the metadata, where the partition has
            no directory; None if the metadata does not say it.
        aside: for a partition without a directory, one with its records that the broker moves, deletes or has set
            aside, or that somebody has renamed; None for none.
        remedy: what to do about logs that begin among missing offsets and that no broker loads; None for none.
        unmounted: the empty ones of the log dirs that are read, if none of these has the partition; None for none.
        told_by: what shows that a partition is in an older log dir, or has another topic's id.
        is_problem: whether the caller gets less than there is, or not what was asked for; otherwise it is a remark.
    """

    partition: TopicPartition
    why: WhyLeftOut
    first_offset: int = 0
    end_offset: int | None = None
    edge: int = 0
    records: int | None = None
    directory_id: str | None = None
    aside: str | None = None
    remedy: str | None = None
    unmounted: str | None = None
    told_by: str | None = None
    is_problem: bool = True

    @property
    def offsets(self) -> str:
        """The offsets in words."""
        if self.end_offset is None:
            return f"{self.partition.directory} from {self.first_offset} on"
        if self.end_offset == self.first_offset + 1:
            return f"{self.partition.directory} {self.first_offset}"
        return f"{self.partition.directory} {self.first_offset} to {self.end_offset - 1}"


def lines_of_left_out(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """A line for each reason, and for each sign that partitions are not as they should be."""
    by_reason: dict[WhyLeftOut, dict[str | None, list[LeftOut]]] = {}
    for left in left_out:
        by_reason.setdefault(left.why, {}).setdefault(left.told_by, []).append(left)
    for why in WhyLeftOut:
        for told_by, group in by_reason.get(why, {}).items():
            yield _line(why, group) if told_by is None else _line_told_by(why, told_by, group)


#: The words about offsets, by reason: what they are, what they lie beyond, and what to do.
_OF_OFFSETS: Final = {
    WhyLeftOut.BEYOND_HIGH_WATERMARK: (
        f"not read: {{}} beyond the high watermark that {HIGH_WATERMARK_CHECKPOINT} has",
        "the high watermark is",
        "; --to-log-end (in Python to_log_end=True, in Spark toLogEnd=true) reads them",
    ),
    WhyLeftOut.BEYOND_LAST_STABLE_OFFSET: (
        "not read: {} from the last stable offset on, where a transaction begins that has not ended",
        "the last stable offset is",
        "; isolation read_uncommitted reads them",
    ),
    WhyLeftOut.BELOW_LOG_START: ("asked for and not there: offsets below the log start", "the log starts at", ""),
    WhyLeftOut.HIDDEN_BELOW_LOG_START: (
        f"not read: {{}} below the log start that {LOG_START_OFFSET_CHECKPOINT} has",
        "the log start is",
        "",
    ),
    WhyLeftOut.LOG_START_ABOVE_END: (
        f"not read: {{}}, as the log start that {LOG_START_OFFSET_CHECKPOINT} has is above the log end",
        "the log start is",
        "; kidx verify says what is wrong",
    ),
    WhyLeftOut.BEYOND_LOG_END: ("asked for and not there: offsets beyond the log end", "the log ends at", ""),
    WhyLeftOut.ENDS_BELOW_HIGH_WATERMARK: (
        "missing: {} below the high watermark, before which the log ends",
        "the high watermark is",
        "; look for a replica or a copy that has them",
    ),
    WhyLeftOut.ENDS_BEFORE_INDEX: (
        "missing: {} or more behind the end of the log, which its .index has",
        "the log ends at",
        "; look for a replica or a copy that has them",
    ),
    WhyLeftOut.BEFORE_FIRST_SEGMENT: (
        "not in this log dir: {} between the log start and the first segment",
        "the first segment begins at",
        "; of a topic with tiered storage read its bucket, too",
    ),
    WhyLeftOut.FIRST_LOGS_MISSING: (
        f"missing: {{}} before the first log, though {LEADER_EPOCH_CHECKPOINT} begins there, which a broker that "
        "deletes logs cuts",
        "the first log begins at",
        "; look for a replica or a copy that has them",
    ),
    WhyLeftOut.FIRST_LOGS_NOT_KNOWN: (
        f"not known: {{}} before the first log, where {LEADER_EPOCH_CHECKPOINT} begins",
        "the first log begins at",
        f"; {IN_BUCKET_OR_LOST}",
    ),
    WhyLeftOut.BETWEEN_LOGS: (
        "in no log: {} between two logs",
        "the next log begins at",
        "; unless the topic is compacted, a segment is missing: kidx verify looks for who has it",
    ),
}
#: The words about whole partitions, by reason: what they are, and what to do.
_OF_PARTITIONS: Final = {
    WhyLeftOut.NO_LOG: ("no .log in the directory of {}", "if there was one, look for a copy of it"),
    WhyLeftOut.NO_DIRECTORY: (
        "no directory of {} that the cluster's metadata gives to this broker",
        "look for a copy of it",
    ),
    WhyLeftOut.NOT_ANYWHERE: ("asked for and not there: {}", "see that the names are right"),
    WhyLeftOut.OTHER_LOG_DIR: ("in other log dirs of the broker: {}", "name all log dirs to read them"),
    WhyLeftOut.NOT_IN_LOG_DIRS: (
        "in none of these log dirs, by the numbers of those that are: {}",
        "name all log dirs of the broker: one of them has the cluster's metadata, which says where they are",
    ),
}

#: The words about partitions that are read although something shows that they are not as they should be.
_AS_TOLD: Final = {WhyLeftOut.OLDER_LOG_DIR: "in an older log dir", WhyLeftOut.OTHER_TOPIC_ID: "with another topic id"}


def remedy_of_unmounted(unmounted: str) -> str:
    """What to do about partitions that are left out because log dirs are empty, in words."""
    return f"nothing is in {unmounted}: is the disk mounted? Mount it, and run this again"


def _line_told_by(why: WhyLeftOut, told_by: str, group: list[LeftOut]) -> str:
    names = _first_few([left.partition.directory for left in group])
    return f"{_AS_TOLD[why]}: {counted(len(group), 'partition')}: {names}; {told_by}"


def _line(why: WhyLeftOut, group: list[LeftOut]) -> str:
    if why in _OF_PARTITIONS:
        what, to_do = _OF_PARTITIONS[why]
        names = _first_few([left.partition.directory for left in group])
        aside = [left.aside for left in group if left.aside is not None]
        folders = f"; perhaps all that is left is {_first_few(aside)}: {COPY_IT}" if aside else ""
        if group[0].unmounted is not None:
            to_do = remedy_of_unmounted(group[0].unmounted)
        return f"{what.format(counted(len(group), 'partition'))}: {names}; {to_do}{folders}{_remedies(group)}"
    what, edge, to_do = _OF_OFFSETS[why]
    names = _first_few([f"{left.offsets} ({edge} {left.edge})" for left in group])
    return f"{what.format(_sizes(group))}: {names}{to_do}{_remedies(group)}"


def _remedies(group: list[LeftOut]) -> str:
    remedies = [left.remedy for left in group if left.remedy is not None]
    return f"; {_first_few(remedies)}" if remedies else ""


def _sizes(group: list[LeftOut]) -> str:
    """The number of offsets, and of records if all were counted."""
    sizes = [None if left.end_offset is None else left.end_offset - left.first_offset for left in group]
    offsets = "offsets" if None in sizes else counted(sum(size or 0 for size in sizes), "offset")
    records = [left.records for left in group if left.records is not None]
    of_records = f" ({counted(sum(records), 'record')})" if len(records) == len(group) else ""
    return f"{offsets}{of_records} of {counted(len(group), 'partition')}"


def _first_few(texts: list[str]) -> str:
    more = f", and {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


def in_older_log_dirs(
    brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]
) -> tuple[list[LeftOut], list[str]]:
    """The offsets that partitions lack because their log dir is older than another of its broker; and lines on log dirs
    that are older and have none of the partitions, or that may be older, and on copies of the metadata that cannot be
    read, so that the metadata may be older.
    """
    older, maybe = brokers.older_log_dirs()
    for log_dir in brokers.log_dirs:
        with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
            maybe += [line for line in brokers.unread_copies(log_dir) if line not in maybe]
    left_out = [
        LeftOut(partition=partition, why=WhyLeftOut.OLDER_LOG_DIR, told_by=older[log_dir])
        for partition, log_dir in there
        if log_dir in older
    ]
    told = {left.told_by for left in left_out}
    return left_out, [*(line for line in older.values() if line not in told), *maybe]


def other_topic_ids_as_left_out(
    brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]
) -> Iterator[LeftOut]:
    """A `LeftOut` for each partition whose `partition.metadata` has another topic id than the cluster's metadata has
    for its topic: a broker does not serve it, and its records may be another topic's.
    """
    names: dict[Location, Mapping[str, str]] = {}
    for partition, log_dir in there:
        with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
            metadata = brokers.metadata_of(log_dir)
            if metadata is None:
                continue
            if metadata.directory not in names:
                names[metadata.directory] = metadata.to_end.topic_names
            topic_id = read_topic_id(log_dir / partition.directory)
            topic_names = names[metadata.directory]
            if topic_id and (differs := other_topic_id(topic_id, partition.topic, metadata.to_end, topic_names)):
                told_by = (
                    f"{PARTITION_METADATA} there has {differs}: the records may be another topic's; kidx verify says "
                    "what to do"
                )
                yield LeftOut(partition=partition, why=WhyLeftOut.OTHER_TOPIC_ID, told_by=told_by)


def absent_as_left_out(
    log_dirs: Collection[Location],
    asks_for: Callable[[TopicPartition], bool],
    brokers: BrokersMetadata,
    there: Collection[TopicPartition],
    *,
    by_name: bool,
) -> list[LeftOut]:
    """The absent partitions for which `asks_for` is true: those of a log dir that is read as a whole (`log_dirs`), and
    those of other log dirs of the broker. Where no log dir has the metadata, another one has it, and the numbers of a
    topic's partitions tell some: they begin at 0 and lack none.

    If partitions are asked for `by_name`, one in a log dir that is not read is a problem, and not merely good to know.
    """
    absent: dict[TopicPartition, LeftOut] = {}
    topic_ids: dict[str, str] = {}
    owners = list[MetaProperties]()
    for log_dir in brokers.log_dirs:
        with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
            if log_dir in log_dirs:
                owners.append(brokers.owner(log_dir))
    for node_id, cluster_id in {(owner.node_id, owner.cluster_id) for owner in owners}:
        with contextlib.suppress(OSError, KidxError):
            metadata = None if cluster_id is None else brokers.of_cluster(cluster_id)
            if metadata is not None and node_id is not None:
                topic_ids |= metadata.to_end.topics
                directories = {owner.directory_id for owner in owners if owner.node_id == node_id}
                for left in _assigned(asks_for, metadata.to_end, node_id, directories, by_name=by_name):
                    absent.setdefault(left.partition, left)
    if log_dirs_without_metadata(log_dirs, brokers):
        for partition in filter(asks_for, partitions_numbered_below(there)):
            left = LeftOut(partition=partition, why=WhyLeftOut.NOT_IN_LOG_DIRS, is_problem=by_name)
            absent.setdefault(partition, left)
    folders = _other_folders(log_dirs) if absent else []
    empty = unmounted_log_dirs(log_dirs) if absent else None
    return [
        _with_place(replace(left, aside=_aside(folders, partition, topic_ids.get(partition.topic))), empty)
        for partition, left in sorted(absent.items())
        if partition not in there
    ]


def _with_place(absent: LeftOut, empty: str | None) -> LeftOut:
    """Add the empty log dirs that may have the partition once they are mounted; then its absence is a problem."""
    if empty is None or absent.why is WhyLeftOut.NO_DIRECTORY:
        return absent
    return replace(absent, unmounted=empty, is_problem=True)


def unmounted_log_dirs(log_dirs: Collection[Location]) -> str | None:
    """The empty log dirs, in words: if their disks are not mounted, the partitions on these are left out. None if no
    log dir is empty.
    """
    return ", ".join(sorted(str(log_dir) for log_dir in log_dirs if looks_unmounted(log_dir))) or None


def folders_passed_over(
    place: str, skipped: SkippedEntries, there: Iterable[TopicPartition], meant: Iterable[TopicPartition]
) -> Iterator[str]:
    """Lines on the directories that have records and are not read: those that a broker moves, deletes or has set aside,
    and those that somebody has renamed.

    A listing of `place` gave `skipped` and the partitions that are `there`; those of them that are asked for are
    `meant`.
    """
    for reason in _SET_ASIDE:
        if count := skipped.counts[reason]:
            yield f"{place}: not read: {counted(count, 'directory', 'directories')} ({reason.in_words}); {COPY_IT}"
    listed = [*(Path(path).name for path, _ in skipped.unexpected), *(partition.directory for partition in there)]
    names, asked = list(filter(is_other_name, listed)), list(meant)
    if renamed := sorted({name for name in names if any(may_be_renamed(name, partition) for partition in asked)}):
        directories, first_names = counted(len(renamed), "directory", "directories"), ", ".join(renamed[:3])
        yield f"{place}: not read: {directories} with a partition's name and more ({first_names}); {COPY_IT}"


def _other_folders(log_dirs: Iterable[Location]) -> list[Location]:
    """The directories whose names are not those of partitions, or begin with a dot."""
    folders: list[Location] = []
    for log_dir in log_dirs:
        with contextlib.suppress(OSError):
            folders += [folder for folder in directories_in(log_dir) if is_other_name(folder.name)]
    return folders


def _aside(folders: Iterable[Location], partition: TopicPartition, topic_id: str | None) -> str | None:
    """The first directory of a partition that brokers move, delete or have set aside, or that somebody has renamed. A
    deleted topic's directory does not count, though it has the same name.
    """
    for folder in folders:
        is_moved_there = is_moved(folder.name) and loaded_as(folder.name) == partition
        if not is_moved_there and not may_be_renamed(folder.name, partition):
            continue
        with contextlib.suppress(OSError, CheckpointError):
            if topic_id is None or read_topic_id(folder) in (topic_id, None):
                return str(folder)
    return None


def may_be_elsewhere(log_dir: Location, unmounted: str | None) -> str:
    """The line on a log dir without metadata; `unmounted` is that of the log dirs that are read."""
    if BrokersMetadata.is_in(log_dir):
        lacking = f"nothing there that can be read, so that nobody can tell which partitions {log_dir} should have"
        return f"{log_dir / METADATA_DIRECTORY}: {lacking}; kidx verify says what is wrong"
    return (
        f"{log_dir}: no {METADATA_DIRECTORY} in it, so that another log dir of its broker has that, and perhaps "
        f"partitions that are asked for; {'name all log dirs' if unmounted is None else remedy_of_unmounted(unmounted)}"
    )


def partitions_numbered_below(there: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """The partitions with numbers below the largest that is there, for each topic: each is there, or left out."""
    last: defaultdict[str, int] = defaultdict(int)
    for partition in there:
        last[partition.topic] = max(last[partition.topic], partition.partition)
    for topic, number in last.items():
        yield from (TopicPartition(topic, below) for below in range(number))


def _assigned(
    asks_for: Callable[[TopicPartition], bool],
    metadata: ClusterMetadata,
    node_id: int,
    directories: Collection[str | None],
    *,
    by_name: bool,
) -> Iterator[LeftOut]:
    """All partitions that a broker is assigned, as if none were there."""
    all_are_read = set(metadata.log_dirs.get(node_id, ())) <= set(directories)
    for partition, assignment in metadata.assignments.items():
        if node_id in assignment.replicas and asks_for(partition):
            number = assignment.replicas.index(node_id)
            directory_id = assignment.directories[number] if number < len(assignment.directories) else None
            is_here = all_are_read or (directory_id is not None and directory_id in directories)
            why = WhyLeftOut.NO_DIRECTORY if is_here else WhyLeftOut.OTHER_LOG_DIR
            yield LeftOut(partition=partition, why=why, directory_id=directory_id, is_problem=is_here or by_name)


def gaps_between_logs(logs: Iterable[LogRead]) -> list[LeftOut]:
    """What is left out between logs: gaps that compaction does not explain, by the logs that were read and by their log
    dirs.
    """
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
            why=WhyLeftOut.BETWEEN_LOGS,
            first_offset=log.next_offset,
            end_offset=log.end_offset,
            edge=log.end_offset,
            remedy=aside.remedy(location(log.log_path).parent, log.next_offset, log.end_offset),
        )
        for log in gaps
        if log.topic not in compacted
    ]


def _may_have_wanted_times(log: LogRead) -> bool:
    if not WantedRecords(first_ms=log.first_ms, last_ms=log.last_ms).has_times:
        return True
    following = location(log.log_path).parent / segment_file(log.end_offset, LOG_SUFFIX)
    times = log.ends_ms, timestamp_ms_behind_left_out(following)
    return min(times) < 0 or (max(times) >= log.first_ms and min(times) <= log.last_ms)


def timestamp_ms_behind_left_out(log: Location) -> int:
    """The largest timestamp of the first batch of a log, in ms since the epoch, which bounds the times of what is left
    out before the log; −1 if it is not known.
    """
    with contextlib.suppress(OSError, KidxError), opened_log(str(log)) as opened:
        content = opened.log(opened.version.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
        return next((batch.max_timestamp for batch in batches(content)), NO_TIMESTAMP)
    return NO_TIMESTAMP
