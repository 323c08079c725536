"""What a build has to do: sources listed, a task for each segment, and which of them the catalog knows already."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from kidxlib.build import BuildTask, IntervalSource
from kidxlib.discover import LeftAlone, PartitionFolder, Source, list_partitions, list_segments, parse_source
from kidxlib.errors import UsageError, why
from kidxlib.finish import PartitionTask
from kidxlib.log_dir import META_PROPERTIES, CheckpointError, is_brokers, read_topic_id
from kidxlib.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TopicPartition,
    parse_partition_folder,
    segment_file,
)
from kidxlib.objects import SCHEME, Location, given_location, is_inside, is_object, location
from kidxlib.publish import Folder, list_folder, object_sizes
from kidxlib.recover import ABSENT, RecoverOptions, Status
from kidxlib.storage import FileVersion

#: So many directories, and entries of each, show whether a directory holds logs.
_LOOKED_AT_MAX: Final = 50
_ENTRIES_MAX: Final = 200

#: source, topic, partition
PartitionKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where index files go.

    Attributes:
        index_dir: the root of a mirror tree; None writes beside the segments.
        by_source: in the mirror, partitions stand below their source's name.
        publish_truncated: publish the index of a valid prefix too.
    """

    index_dir: Location | None
    by_source: bool
    publish_truncated: bool

    def folder(self, partition: PartitionFolder) -> Folder:
        name = partition.topic_partition.folder
        if self.index_dir is None:
            return Folder(str(partition.log_dir), partition.path.name)
        return Folder(str(self.index_dir), f"{partition.source.name}/{name}" if self.by_source else name)


def segments_folder(source: Location, topic_partition: TopicPartition, logs: Mapping[int, str]) -> Folder | None:
    """Where a partition's logs stand, below their source; None where a table says that they stand elsewhere.

    Args:
        logs: their paths in that table, by base offset.
    """
    name = topic_partition.folder
    for log_dir in (source, source.parent):  # the source may be a log dir, or this very partition's folder
        paths = (str(log_dir / name / segment_file(base_offset, LOG_SUFFIX)) for base_offset in logs)
        if all(path == recorded for path, recorded in zip(paths, logs.values(), strict=True)):
            return Folder(str(log_dir), name)
    return None


def index_folder(topic_partition: TopicPartition, recorded: Collection[str]) -> Folder | None:
    """Where a partition's index files stand; None where a table names several folders, or one of another partition."""
    path = location(min(recorded))
    if len(set(recorded)) > 1 or path.name != topic_partition.folder:
        return None
    return Folder(str(path.parent), path.name)


@dataclass(frozen=True, slots=True)
class SideFiles:
    """What is written of a partition besides its indexes."""

    snapshots: bool = False
    epochs: bool = False


#: What a repair may write besides indexes: all that is broken.
REPAIRED_SIDE_FILES: Final = SideFiles(snapshots=True, epochs=True)


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition as it was found.

    Attributes:
        topic_id: None where there is no `partition.metadata`.
        index_folder: where its index files go.
        only: names of the files that may be written; None for all.
    """

    folder: PartitionFolder
    topic_id: str | None
    index_folder: Folder
    only: frozenset[str] | None = None

    @property
    def key(self) -> PartitionKey:
        topic_partition = self.folder.topic_partition
        return self.folder.source.name, topic_partition.topic, topic_partition.partition

    def partition_task(self, side_files: SideFiles) -> PartitionTask:
        """What is to be done once all of its segments were read."""
        return PartitionTask(
            segments_folder=Folder(str(self.folder.path), ""),
            index_folder=self.index_folder,
            in_place=str(self.index_folder) == str(self.folder.path),
            snapshots=side_files.snapshots,
            epochs=side_files.epochs,
            only=self.only,
        )


@dataclass(slots=True)
class Plan:
    """What was found to index, what was left alone, and what a person should be told about it."""

    tasks: list[BuildTask] = field(default_factory=list)
    partitions: list[ListedPartition] = field(default_factory=list)
    log_dirs: set[str] = field(default_factory=set)  # names of the sources that are log dirs, so were listed as a whole
    unlistable: set[PartitionKey] = field(default_factory=set)
    empty: dict[str, Location] = field(default_factory=dict)  # by name, sources without any segment of any topic
    left_alone: LeftAlone = field(default_factory=LeftAlone)
    warnings: list[str] = field(default_factory=list)

    @property
    def log_bytes(self) -> int:
        return sum(task.log_bytes for task in self.tasks)

    def by_partition(self) -> Iterator[tuple[PartitionKey, Iterator[BuildTask]]]:
        """The tasks of each partition, by base offset; to be gone through before the next is asked for."""
        return groupby(self.tasks, key=lambda task: task.segment.partition_key)


def find_segments(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    target: Target,
    options_for: Callable[[str], RecoverOptions],
) -> Plan:
    """List the sources.

    Args:
        topics: matches the full names of the topics wanted.
        options_for: what a topic's indexes are built with, by its name.

    Raises:
        UsageError: there is nothing to index in any source.
    """
    plan = Plan()
    for source in sources:
        tasks_before = len(plan.tasks)
        partitions = list_partitions(source, plan.left_alone)
        wanted = [partition for partition in partitions if topics.fullmatch(partition.topic_partition.topic)]
        if all(partition.path != source.path for partition in partitions):
            plan.log_dirs.add(source.name)
        unlistable_before = len(plan.unlistable)
        for partition in wanted:
            _add_partition(plan, partition, target, options_for(partition.topic_partition.topic))
        if len(plan.tasks) == tasks_before:
            plan.warnings.append(f"{source.path}: no segment found")
            if wanted == partitions and len(plan.unlistable) == unlistable_before:
                plan.empty[source.name] = source.path
    if not plan.tasks and not plan.unlistable:
        raise UsageError(_nothing_found(sources, topics, plan))
    plan.warnings[:0] = [f"{path}: left alone: {reason}" for path, reason in plan.left_alone.unexpected]
    return plan


def repairs(plan: Plan, broken: Mapping[PartitionKey, frozenset[str]]) -> Plan:
    """What of a plan is to be done so that some files, and no others, are made anew.

    Args:
        broken: their names, by partition.
    """
    return Plan(
        tasks=[
            replace(task, only=broken[task.segment.partition_key])
            for task in plan.tasks
            if task.segment.partition_key in broken
        ],
        partitions=[
            replace(partition, only=broken[partition.key]) for partition in plan.partitions if partition.key in broken
        ],
        unlistable=plan.unlistable,
        empty=plan.empty,
        left_alone=plan.left_alone,
    )


def log_dirs_to_lock(plan: Plan) -> list[Path]:
    """The log dirs of a plan, before anything is written beside segments.

    Raises:
        UsageError: a partition's folder is a link, or in an object store.
    """
    log_dirs = set()
    for partition in plan.partitions:
        path = partition.folder.path
        if not isinstance(path, Path):
            raise UsageError(
                f"{path}: in an object store, where no lock keeps others out; write to an --index-dir instead"
            )
        if path.is_symlink():
            raise UsageError(f"{path}: a symbolic link; writing in place follows none: name the folder it leads to")
        log_dirs.add(path.parent)
    return sorted(log_dirs)


def _add_partition(plan: Plan, partition: PartitionFolder, target: Target, options: RecoverOptions) -> None:
    try:
        topic_id = read_topic_id(partition.path)
    except (CheckpointError, OSError) as error:
        topic_id = None
        plan.warnings.append(f"{why(error)}; its topic id is taken as unknown")
    listed = ListedPartition(partition, topic_id, target.folder(partition))
    plan.partitions.append(listed)
    segments = list_segments(partition, plan.left_alone)
    if segments is None:
        plan.unlistable.add(listed.key)
        return
    plan.tasks.extend(
        BuildTask(
            segment=segment,
            topic_id=topic_id,
            options=options,
            interval_source=IntervalSource.SETTINGS,
            index_folder=listed.index_folder,
            in_place=target.index_dir is None,
            publish_truncated=target.publish_truncated,
        )
        for segment in segments
    )


def _nothing_found(sources: Iterable[Source], topics: re.Pattern[str], plan: Plan) -> str:
    where = ", ".join(str(source.path) for source in sources)
    if plan.partitions:
        return f"{where}: no segment in {len(plan.partitions)} partition folders; expected files named <20 digits>.log"
    of_topics = "" if topics.pattern == ".*" else f" of a topic that matches {topics.pattern}"
    return f"{where}: no partition folder{of_topics}; expected folders named <topic>-<partition>"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSegment:
    """What the catalog says of a segment; see its columns of the same names."""

    version: FileVersion | None
    topic_id: str | None
    options: RecoverOptions
    interval_source: IntervalSource
    status: Status
    active: bool
    log_path: str
    index_folder: str
    offset_index_bytes: int | None
    time_index_bytes: int | None
    transaction_index_bytes: int | None
    finished: bool  # its partition was finished since the segment was read
    current: bool  # the row has all columns of this version of the catalog


#: The segments that the catalog knows, by base offset, by partition.
Known = Mapping[PartitionKey, Mapping[int, KnownSegment]]


@dataclass(frozen=True, slots=True)
class FirstPresent:
    """Where a partition begins by now, and its topic's id."""

    base_offset: int
    topic_id: str | None


@dataclass(slots=True)
class Changes:
    """A plan compared with the catalog.

    Attributes:
        to_read: segments whose logs must be read.
        unchanged: how many need not be, and their bytes.
        relisted: unchanged segments whose row says something else of their path, or of whether they are active.
        gone: segments of the catalog that are in the listed sources no longer.
        to_finish: partitions with segments to read, or with something else to be derived from them anew.
    """

    to_read: list[BuildTask] = field(default_factory=list)
    unchanged: int = 0
    unchanged_bytes: int = 0
    relisted: list[BuildTask] = field(default_factory=list)
    gone: list[tuple[PartitionKey, int]] = field(default_factory=list)
    to_finish: dict[PartitionKey, FirstPresent] = field(default_factory=dict)


def compare(plan: Plan, known: Known, side_files: SideFiles, *, explicit_interval: bool, rebuild: bool) -> Changes:
    """What has changed since the catalog was written.

    A source without any segment is not compared: a directory on which nothing is mounted looks like that, and once its
    segments were gone they all would have to be read again. A broker's log dir has a segment for each partition.

    Args:
        known: the catalog's segments, of the plan's sources and topics only.
        side_files: those that are wanted; where one is missing, its partition is finished again.
        explicit_interval: the interval was given as an option, so what compaction chose does not stay.
        rebuild: read every segment, whatever the catalog says.
    """
    changes = Changes()
    sizes = _Sizes()
    first_present = _first_present(plan)
    to_finish = _without_side_files(plan, side_files)
    for key, listed in plan.by_partition():
        gone = dict(known.get(key, {}))
        for task in listed:
            segment = task.segment
            before = gone.pop(segment.base_offset, None)
            # What compaction chose stays; and what is repaired shall be like the files that are not.
            keeps_interval = task.only is not None or (before and before.interval_source is IntervalSource.COMPACTION)
            if before and keeps_interval and not (explicit_interval or rebuild):
                task = replace(
                    task,
                    options=replace(task.options, interval_bytes=before.options.interval_bytes),
                    interval_source=before.interval_source,
                )
            if rebuild or task.repairs_indexes or before is None or not _is_unchanged(task, before, sizes):
                changes.to_read.append(task)
                to_finish.add(key)
                continue
            if not before.finished or not _transaction_index_is_there(task, before, sizes):
                to_finish.add(key)
            changes.unchanged += 1
            changes.unchanged_bytes += task.log_bytes
            if (before.active, before.log_path) != (segment.active, segment.path):
                changes.relisted.append(task)
        changes.gone += _present(key, gone)
    emptied = {partition.key for partition in plan.partitions} | {key for key in known if key[0] in plan.log_dirs}
    for key in sorted(emptied & known.keys() - first_present.keys() - plan.unlistable):
        if key[0] in plan.empty:
            continue
        changes.gone += _present(key, known[key])
    changes.to_finish = {key: first for key, first in first_present.items() if key in to_finish}
    return changes


def _present(key: PartitionKey, segments: Mapping[int, KnownSegment]) -> Iterable[tuple[PartitionKey, int]]:
    """Those that were not gone before."""
    return ((key, base_offset) for base_offset, known in segments.items() if known.status not in ABSENT)


def all_new(plan: Plan) -> Changes:
    """What there is to do where no catalog knows anything."""
    return Changes(to_read=plan.tasks, to_finish=_first_present(plan))


def _first_present(plan: Plan) -> dict[PartitionKey, FirstPresent]:
    first: dict[PartitionKey, FirstPresent] = {}
    for task in plan.tasks:  # by base offset, within a partition
        first.setdefault(task.segment.partition_key, FirstPresent(task.segment.base_offset, task.topic_id))
    return first


def _without_side_files(plan: Plan, wanted: SideFiles) -> set[PartitionKey]:
    """The partitions in whose index folder a file is missing that is wanted, or broken."""
    found = {partition.key for partition in plan.partitions if partition.only is not None}
    if not (wanted.snapshots or wanted.epochs):
        return found
    for key, tasks in plan.by_partition():
        first, *later = tasks
        names = {LEADER_EPOCH_CHECKPOINT} if wanted.epochs else set()
        if wanted.snapshots:  # none at the start of the log
            names |= {segment_file(task.segment.base_offset, SNAPSHOT_SUFFIX) for task in later}
        if not names <= set(list_folder(first.index_folder)):
            found.add(key)
    return found


def _transaction_index_is_there(task: BuildTask, before: KnownSegment, sizes: _Sizes) -> bool:
    if before.transaction_index_bytes is None:
        return True
    return sizes.of(task, TRANSACTION_INDEX_SUFFIX) == before.transaction_index_bytes


def _is_unchanged(task: BuildTask, before: KnownSegment, sizes: _Sizes) -> bool:
    """Whether reading the log again would give the same row and the same files as the catalog and the disk have."""
    options, options_before = task.options, before.options
    return (
        before.current
        and before.status in (Status.OK, Status.TRUNCATED, Status.QUARANTINED)
        and before.version == task.segment.version
        and before.topic_id == task.topic_id
        and options_before.interval_bytes == options.interval_bytes
        and options_before.max_index_bytes == options.max_index_bytes
        and (options_before.verify_crc or not options.verify_crc)
        and before.index_folder == str(task.index_folder)
        and _files_are_there(task, before, sizes)
    )


def _files_are_there(task: BuildTask, before: KnownSegment, sizes: _Sizes) -> bool:
    if before.offset_index_bytes is None or before.time_index_bytes is None:
        # Nothing was published: right for a quarantined segment, and for a truncated one whose prefix is not wanted.
        return before.status is Status.QUARANTINED or not task.publish_truncated
    found = sizes.of(task, OFFSET_INDEX_SUFFIX), sizes.of(task, TIME_INDEX_SUFFIX)
    return found == (before.offset_index_bytes, before.time_index_bytes)


class _Sizes:
    """Bytes of index files as they stand. Of a store a folder is listed, once, in place of a request for each file."""

    def __init__(self) -> None:
        self._listed: dict[Folder, dict[str, int]] = {}

    def of(self, task: BuildTask, suffix: str) -> int | None:
        """Of one of a segment's; None where it cannot be looked at."""
        folder, name = task.index_folder, segment_file(task.segment.base_offset, suffix)
        if not is_object(folder.root):
            try:
                return os.lstat(os.path.join(str(folder), name)).st_size
            except OSError:
                return None
        if folder not in self._listed:
            self._listed[folder] = object_sizes(folder)
        return self._listed[folder].get(name)


def parse_sources(given: Iterable[str]) -> tuple[Source, ...]:
    """The sources that the `--source` options mean.

    Raises:
        UsageError: one is no folder, or names are missing or given twice.
    """
    texts = tuple(given)
    sources = tuple(parse_source(text, name_required=len(texts) > 1) for text in texts)
    for name, count in Counter(source.name for source in sources).items():
        if count > 1:
            raise UsageError(f"--source: the name {name} is given {count} times; each source needs its own")
    return sources


def parse_topics(pattern: str) -> re.Pattern[str]:
    """The regular expression of `--topics`.

    Raises:
        UsageError: it is not one.
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--topics {pattern}: not a regular expression: {error}") from error


def mirror_to_write(option: str, path: str) -> Location:
    """The absolute path of a folder on this machine or on a file system that every executor mounts, or one in a store.

    Raises:
        UsageError: it is a URL of something else, a file stands in its place or on the way to it, or it is in the log
            dir of a broker.
    """
    if not path:
        raise UsageError(f"{option} '': expected the path of a folder")
    if (place := given_location(f"{option} ", path)) is not None:
        return place
    try:
        folder = Path(os.path.realpath(path))
    except ValueError as error:  # of a NUL
        raise UsageError(f"{option} {path}: {error}") from error
    # Not pathlib's own, which raise where a folder may not be entered.
    nearest = next(above for above in (folder, *folder.parents) if os.path.exists(above))
    if not os.path.isdir(nearest):
        raise UsageError(f"{option} {path}: {nearest} is a file; expected a folder, or a place where one can be made")
    for above in (folder, *folder.parents):
        if is_brokers(above):
            raise UsageError(
                f"{option} {path}: {above} is a broker's log dir (it holds {META_PROPERTIES}), and a broker does not "
                "start beside directories that are no partitions; expected a place of its own"
            )
    if (log := _log_in(folder)) is not None:
        raise UsageError(
            f"{option} {path}: it is a log dir, {log} is there, and its index files would be replaced; expected a "
            "place of its own (--in-place writes beside the logs that are read, under the log dir's lock)"
        )
    return folder


def _log_in(folder: Path) -> str | None:
    """The path of a log in a folder, or in one of its first partitions, or of those of its first sources: in a mirror
    tree there is none. None where none is found, or not all may be listed.
    """
    places, looked_at = [folder], 0
    while places and looked_at < _LOOKED_AT_MAX:
        place, looked_at = places.pop(0), looked_at + 1
        try:
            with os.scandir(place) as entries:
                inside = list(itertools.islice(entries, _ENTRIES_MAX))
        except OSError:
            continue
        for entry in inside:
            if entry.name.endswith(LOG_SUFFIX):
                return entry.path
            is_source = place == folder and parse_partition_folder(entry.name) is None
            if entry.is_dir(follow_symlinks=False) and (is_source or parse_partition_folder(entry.name) is not None):
                places.append(Path(entry.path))
    return None


def mirror_tree(path: str | None) -> Location | None:
    """The absolute path of the mirror tree that `--index-dir` names, or its place in a store; None where it was not
    given.

    Raises:
        UsageError: there is no such folder, or a store does not say so.
    """
    if path is None:
        return None
    if (place := given_location("--index-dir ", path)) is not None:
        try:
            if place.exists():
                return place
        except OSError as error:
            raise UsageError(f"--index-dir {path}: {error.strerror}") from error
    if not os.path.isdir(path):
        raise UsageError(f"--index-dir {path}: no such folder; expected a mirror tree that a build has made")
    return Path(os.path.realpath(path))


def refuse_overlap(index_dir: Location | None, catalog: str | None, sources: Iterable[Source]) -> None:
    """Nothing is written into or around a source; and VACUUM would delete index files that stand among tables.

    Args:
        index_dir: None where index files go beside the segments on purpose.
        catalog: a path or URL; None where there is no catalog folder.

    Raises:
        UsageError: two of the folders are the same, or one is inside the other.
    """
    folders = [(f"source {source.path}", str(source.path)) for source in sources]
    written = []
    if index_dir is not None:
        written.append((f"--index-dir {index_dir}", str(index_dir)))
    if catalog is not None:
        written.append((f"--catalog {catalog}", re.sub("^s3[an]://", SCHEME, catalog)))  # Hadoop's names of the same
    for number, (option, path) in enumerate(written):
        for other_option, other in folders + written[:number]:
            if is_inside(path, other) or is_inside(other, path):
                raise UsageError(
                    f"{option} and {other_option}: one is inside the other; keep them apart "
                    "(--in-place writes beside the segments)"
                )
