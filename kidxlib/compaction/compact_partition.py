"""The compaction of a partition: a task, how it is compacted, and each change with its outcome, and why a file stays.

Index files become smaller and fewer: they are trimmed and coarsened, and files that nothing needs are removed. Each
change is computed from the files as they are now, and is the same as in a dry run. A new file is on disk before it
replaces the old one as a whole, as in a build. So a stopped run can be run again, with the same result.

Trimming does what closing the segment would have done. Kafka preallocates the index files of the active segment. When
the segment is closed or rolled, the time index gets its last entry and both files are truncated
(`LogSegment.onBecomeInactiveSegment`, `close`). A killed broker leaves both files long, and the next broker reads the
zeros as entries. The entries before the zeros are checked against the log. If an entry is wrong, the file stays, such
as after a follower truncated its log: old entries follow the last right one.

Files that nothing needs (`find_orphans`) are those that a broker removes when it starts
(`LogLoader.removeTempFilesAndCollectSwapFiles`, `loadSegmentFiles`, `ProducerStateManager.removeStraySnapshots`), but
no broker ever starts in an index directory.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.sparse_indexes import audit_offset_index, audit_time_index
from kidxlib.catalog.segments import IndexFile, SegmentToCompact
from kidxlib.compaction.policy import CompactionPolicy
from kidxlib.errors import LogChangedError, PublishError
from kidxlib.format.checksums import crc32c
from kidxlib.format.layouts import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import (
    AUXILIARY_SUFFIXES,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_file,
    parse_segment_log,
    parse_snapshot,
    segment_file,
)
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.records.batch_headers import batches
from kidxlib.recovery.coarsen import Indexes, ScanCost, coarsen_indexes, indexes_from_headers, scan_cost
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.recovery.recover import RecoveredSegment
from kidxlib.storage.location import Directory, FileStatus, FileVersion
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.packed import PackedFile, is_packed
from kidxlib.storage.publisher import GROUP_BYTES, GROUP_FILES, FileOwner, Published, Publisher, is_staging
from kidxlib.storage.remover import Remover
from kidxlib.storage.small_files import read_end, read_file, without_room
from kidxlib.text.times import NS_PER_MS


class Mode(enum.Enum):
    """Whether to find changes only, to compute them, or to apply them."""

    LOOK = enum.auto()  # find which files would change, not how
    PLAN = enum.auto()
    APPLY = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """
    Attributes:
        segments_directory: the directory of the logs; None: not known.
        index_directory: the directory of the indexes; may be the same.
        segments: all in the catalog, also those missing from the source, by base offset.
    """

    key: PartitionKey
    segments_directory: Directory | None
    index_directory: Directory
    segments: tuple[SegmentToCompact, ...]

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The directories where the partition's index and auxiliary files may be."""
        if self.segments_directory is None or str(self.segments_directory) == str(self.index_directory):
            return (self.index_directory,)
        return self.segments_directory, self.index_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """
    Attributes:
        policy: which segments get which interval.
        trim: truncate files that end in zeros.
        orphans: remove files that nothing needs.
        now_ms: the time for the age of segments in rules.
        clock_ms: the machine's time, for the age of files to remove.
        staged_delay_ns: a staged file is removed so long after it was written; no run takes longer.
        delete_delay_ns: one that a broker deletes, so long after it was renamed (`file.delete.delay.ms`).
        locked: the log dirs in which files may be written.
    """

    policy: CompactionPolicy
    trim: bool
    orphans: bool
    now_ms: int
    clock_ms: int
    staged_delay_ns: int
    delete_delay_ns: int
    locked: frozenset[str] = frozenset()


class ChangeAction(enum.StrEnum):
    TRIM = "trim"
    COARSEN = "coarsen"
    DENSIFY = "densify"  # the reverse: a smaller interval
    REMOVE = "remove"


class ChangeOutcome(enum.StrEnum):
    PLANNED = "planned"  # nothing was written
    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the new interval gives the same bytes, or an earlier run wrote and did not record them
    REMOVED = "removed"
    KEPT = "kept"


#: The reasons why a file stays that was to change. Others are why a recovery with that interval fails
#: (`ScanEnd.reason`), and what is wrong with an index (`audit.Finding.reason`).
LOG_CHANGED: Final = "log-changed"  # since the build
UNREADABLE: Final = "unreadable"
UNFINISHED: Final = "unfinished"  # the build stopped before the segment's transactions
NOT_LOCKED: Final = "not-locked"  # it is new in a log dir that needed no lock when the run looked: run again
NOT_OURS: Final = "not-ours"  # it is in a log dir and not in the catalog: a broker removes it when it starts


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The path of a file; `log_dir` is its Kafka log dir if it is beside logs, else None."""

    path: str
    log_dir: str | None


@dataclass(frozen=True, slots=True)
class Coarsened:
    """Both indexes of a segment, at the old and at the new interval.

    Attributes:
        version: of the log.
        cost_before: None if the `.index` is not the one in the catalog.
        cost_after, offset_index, time_index: of the new indexes; None if the old ones stay or the new ones are not made
            yet.
    """

    version: FileVersion
    interval_before: int
    interval_after: int
    cost_before: ScanCost | None = None
    cost_after: ScanCost | None = None
    offset_index: IndexFile | None = None
    time_index: IndexFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """The change of one file, or of both indexes of a segment.

    Attributes:
        base_offset: None if the file is not a segment's.
        place: of the file; for both indexes of the `.index`.
        reason: why the file is removed, or why it stays.
        bytes_before: the size of the file, or of both indexes.
        bytes_after: None if it was not computed.
        coarsened: None if no index is made sparser or denser.
        packed: files that a catalog is to keep, or to keep no longer, of this change and of others that settle with it.
    """

    key: PartitionKey
    base_offset: int | None
    action: ChangeAction
    outcome: ChangeOutcome
    place: FilePlace
    reason: str | None = None
    bytes_before: int
    bytes_after: int | None
    coarsened: Coarsened | None = None
    packed: tuple[PackedFile, ...] = ()


#: Reasons with which an offset index serves lookups well, but has entries that are not the log's.
_STALE: Final = ("entries-behind-the-end", "not-increasing")


@dataclass(slots=True)
class FilesToCompact:
    """The files of a partition to compact, and how they may be changed.

    Attributes:
        listed: the regular files of each directory, by name.
    """

    task: CompactionTask
    options: CompactionOptions
    mode: Mode
    use_mmap: bool
    publisher: Publisher
    remover: Remover
    listed: dict[Directory, dict[str, FileStatus]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for directory in self.task.directories:
            self.listed[directory] = self._listed(directory)

    def _listed(self, directory: Directory) -> dict[str, FileStatus]:
        """The regular files of a directory; none if it is reached through a symlink, where nothing is touched."""
        try:
            return self.remover.files(directory)
        except PublishError:
            return {}

    @contextmanager
    def opened(
        self, segment: SegmentToCompact, access: Access = Access.NORMAL
    ) -> Iterator[tuple[LogBytes, FileOwner | None]]:
        """Open a segment's log, up to the end of its last valid batch when it was built, and find its file's owner."""
        directory, valid_bytes = self.task.segments_directory, segment.valid_bytes
        if directory is None or valid_bytes is None:
            raise FileNotFoundError
        path = os.path.join(str(directory), segment_file(segment.base_offset, LOG_SUFFIX))
        with opened_log(path) as opened:
            if opened.version != segment.version:
                raise LogChangedError(f"{directory}: the log has changed since it was built; build again")
            log = opened.log(valid_bytes, use_mmap=self.use_mmap, access=access)
            yield log, None if opened.status is None else FileOwner.of(opened.status)
            opened.ensure_unchanged()

    def remove(self, directory: Directory, name: str) -> None:
        if is_packed(directory.root):
            self.publisher.remove(directory, name)
        else:
            self.remover.remove(directory, name)

    def place(self, directory: Directory, name: str) -> FilePlace:
        return FilePlace(
            os.path.join(str(directory), name), directory.root if self._is_beside_logs(directory) else None
        )

    def may_write(self, place: FilePlace) -> bool:
        """Whether a file may be changed: beside logs, only if their log dir is locked."""
        return self.mode is not Mode.APPLY or place.log_dir is None or place.log_dir in self.options.locked

    def owner_in(self, directory: Directory, owner: FileOwner | None) -> FileOwner | None:
        """The owner of a new file in a directory: the logs' owner beside logs, else None for this user."""
        return owner if self._is_beside_logs(directory) else None

    def _is_beside_logs(self, directory: Directory) -> bool:
        return self.task.segments_directory is not None and str(directory) == str(self.task.segments_directory)


def _why_not_read(error: OSError | LogChangedError) -> str:
    return LOG_CHANGED if isinstance(error, LogChangedError) else UNREADABLE


def compact_each_partition(
    tasks: Iterable[CompactionTask], options: CompactionOptions, mode: Mode, use_mmap: bool
) -> Iterator[IndexChange]:
    """Compact one partition after the other: find what to change, and with `Mode.APPLY` change it. A change is returned
    after its files are durable. Without `use_mmap`, logs are read in chunks: see
    `kidxlib.indexing.segments.build_segments`.
    """
    with Publisher() as publisher, Remover() as remover:
        waiting: list[IndexChange] = []
        for task in tasks:
            for change in _changes(FilesToCompact(task, options, mode, use_mmap, publisher, remover)):
                waiting.append(change)
                if mode is not Mode.APPLY or publisher.staged_bytes >= GROUP_BYTES or len(waiting) >= GROUP_FILES:
                    yield from _settled(waiting, publisher, remover)
        yield from _settled(waiting, publisher, remover)


def _settled(waiting: list[IndexChange], publisher: Publisher, remover: Remover) -> Iterator[IndexChange]:
    publisher.commit()
    if waiting:
        waiting[0] = replace(waiting[0], packed=publisher.take_packed())
    if any(change.outcome is ChangeOutcome.REMOVED for change in waiting):
        remover.flush()
    yield from waiting
    waiting.clear()


def _changes(files: FilesToCompact) -> Iterator[IndexChange]:
    present = {segment.base_offset for segment in files.task.segments if segment.status not in ABSENT}
    segments_directory = files.task.segments_directory
    names = [] if segments_directory is None else files.listed[segments_directory]
    logs = {base_offset for name in names if (base_offset := parse_segment_log(name)) is not None}
    last = max(logs or present, default=-1)
    for segment in files.task.segments:
        if segment.status in ABSENT or segment.active or segment.base_offset >= last:
            continue
        coarsened = _coarsen_segment(files, segment)
        if coarsened is not None:
            yield coarsened
        if files.options.trim and segment.status is Status.OK:
            is_replaced = coarsened is not None and coarsened.outcome is not ChangeOutcome.KEPT
            yield from _trim_segment(files, segment, files.task.directories[: -1 if is_replaced else None])
    if files.options.orphans:
        for directory in files.task.directories:
            for orphan in find_orphans(files.listed[directory], present | logs, files.options):
                yield _remove_orphan(files, directory, orphan)


def _coarsen_segment(files: FilesToCompact, segment: SegmentToCompact) -> IndexChange | None:
    """Give a segment's indexes the interval of the policy; None if they have it, or if there are no indexes."""
    if segment.version is None or segment.offset_index_crc32c is None or segment.valid_bytes is None:
        return None  # no index was published
    interval = files.options.policy.interval_for(
        files.task.key[1], segment.version.size, segment.largest_timestamp_ms, files.options.now_ms
    )
    if interval is None or interval == segment.options.interval_bytes:
        return None
    directory = files.task.index_directory
    names = [segment_file(segment.base_offset, suffix) for suffix in (TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX)]
    sizes = [files.listed[directory][name].st_size for name in names if name in files.listed[directory]]
    coarsened = Coarsened(segment.version, segment.options.interval_bytes, interval)
    change = IndexChange(
        key=files.task.key,
        base_offset=segment.base_offset,
        action=ChangeAction.COARSEN if interval > segment.options.interval_bytes else ChangeAction.DENSIFY,
        outcome=ChangeOutcome.PLANNED,
        place=files.place(directory, names[-1]),
        bytes_before=sum(sizes),
        bytes_after=None,
        coarsened=coarsened,
    )
    if not segment.is_finished:
        return replace(change, outcome=ChangeOutcome.KEPT, reason=UNFINISHED)
    if not files.may_write(change.place):
        return replace(change, outcome=ChangeOutcome.KEPT, reason=NOT_LOCKED)
    if files.mode is Mode.LOOK:
        return change
    present = _as_recorded(files, segment)
    denser = present if segment.options.interval_bytes < interval and segment.offsets_increase else None
    try:
        with files.opened(segment, Access.NORMAL if denser is None else Access.RANDOM) as (log, owner):
            indexes = _indexes(log, segment, interval, denser)
    except (OSError, LogChangedError) as error:
        return replace(change, outcome=ChangeOutcome.KEPT, reason=_why_not_read(error))
    if isinstance(indexes, str):
        return replace(change, outcome=ChangeOutcome.KEPT, reason=indexes)
    outcome = ChangeOutcome.UNCHANGED if indexes == present else ChangeOutcome.PLANNED
    if files.mode is Mode.APPLY:  # the offset index last, as in a build
        contents = zip(names, (indexes.time_index, indexes.offset_index), strict=True)
        published = {
            files.publisher.stage(directory, name, content, files.owner_in(directory, owner))
            for name, content in contents
        }
        outcome = ChangeOutcome.WRITTEN if Published.WRITTEN in published else ChangeOutcome.UNCHANGED
    coarsened = replace(
        coarsened,
        cost_before=None if present is None else scan_cost(present.offset_index, segment.valid_bytes),
        cost_after=scan_cost(indexes.offset_index, segment.valid_bytes),
        offset_index=IndexFile.of(indexes.offset_index, OFFSET_INDEX_ENTRY),
        time_index=IndexFile.of(indexes.time_index, TIME_INDEX_ENTRY),
    )
    return replace(change, outcome=outcome, bytes_after=indexes.size, coarsened=coarsened)


def _indexes(log: LogBytes, segment: SegmentToCompact, interval: int, denser: Indexes | None) -> Indexes | str:
    """The new indexes, or why there are none: Kafka fails on the segment at this interval."""
    options = replace(segment.options, interval_bytes=interval)
    if denser is not None:
        coarsened = coarsen_indexes(log, segment.base_offset, options, denser)
        if coarsened is not None:
            return coarsened
    recovered = indexes_from_headers(log, segment.base_offset, options)
    if recovered.end.status is Status.QUARANTINED:
        assert recovered.end.reason is not None
        return recovered.end.reason
    return Indexes(recovered.offset_index, recovered.time_index)


def _as_recorded(files: FilesToCompact, segment: SegmentToCompact) -> Indexes | None:
    """The segment's indexes; None unless both are, byte for byte, those in the catalog."""
    contents = []
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        content = read_file(files.task.index_directory, segment_file(segment.base_offset, suffix))
        if content is None or crc32c(content) != segment.crc32c_of(suffix):
            return None
        contents.append(content)
    return Indexes(*contents)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """An index file that ends in zeros, trimmed.

    Attributes:
        content: the new content; None: the file stays.
        reason: why the file stays, in a short word.
    """

    suffix: str
    content: bytes | None
    reason: str | None = None


def _trim_offset_index(log: LogBytes, recovered: RecoveredSegment, base_offset: int, content: bytes) -> Trimmed:
    """The entries of an `.index` that ends in zeros. No entry is all zeros, because the batch at byte 0 is never
    indexed. `log` ends with its last valid batch.
    """
    trimmed = without_room(content, OffsetIndex.entry_bytes)
    finding = audit_offset_index(log, recovered, base_offset, np.frombuffer(trimmed, np.uint8), active=False)
    return _unless_wrong(finding, len(content) % OffsetIndex.entry_bytes, trimmed)


def _trim_time_index(log: LogBytes, recovered: RecoveredSegment, offset_index: OffsetIndex, content: bytes) -> Trimmed:
    """The entries of a `.timeindex` that ends in zeros, and the entry that closing the segment adds.

    The first entry of a segment that begins at 1970-01-01T00:00:00Z is all zeros. If it is uncertain whether there was
    such an entry, the file stays. `log` ends with its last valid batch; `offset_index` is correct.
    """
    facts, base_offset = recovered.facts, offset_index.base_offset
    entries = without_room(content, TimeIndex.entry_bytes)
    first = next(batches(log), None)
    if not entries and first is not None and first.max_timestamp == 0 < facts.max_timestamp_ms:
        return Trimmed(TIME_INDEX_SUFFIX, None, "zero-timestamp")
    index = TimeIndex.from_bytes(entries, base_offset)
    last, offset = index.last_entry, facts.offset_of_max_timestamp
    if offset is not None and last.timestamp < facts.max_timestamp_ms and last.offset <= offset:
        index.resize(len(entries) + TimeIndex.entry_bytes)
        index.maybe_append(facts.max_timestamp_ms, offset, skip_full_check=True)
    trimmed = index.to_bytes()
    finding = audit_time_index(log, recovered, offset_index, np.frombuffer(trimmed, np.uint8), active=False)
    return _unless_wrong(finding, len(content) % TimeIndex.entry_bytes, trimmed)


_ENTRY_BYTES: Final = {
    OFFSET_INDEX_SUFFIX: OffsetIndex.entry_bytes,
    TIME_INDEX_SUFFIX: TimeIndex.entry_bytes,
}


def _unless_wrong(finding: Finding, bytes_over: int, trimmed: bytes) -> Trimmed:
    if bytes_over:
        return Trimmed(finding.file, None, "not-whole")
    if finding.verdict is Verdict.BROKEN or finding.reason in _STALE:
        return Trimmed(finding.file, None, finding.reason)
    return Trimmed(finding.file, trimmed)


def _trim_segment(
    files: FilesToCompact, segment: SegmentToCompact, directories: Sequence[Directory]
) -> Iterator[IndexChange]:
    """Truncate the zeros at the ends of a segment's index files in some directories."""
    for directory in directories:
        padded = {
            suffix: name
            for suffix, entry_bytes in _ENTRY_BYTES.items()
            if (name := segment_file(segment.base_offset, suffix)) in files.listed[directory]
            and read_end(directory, name, entry_bytes) == bytes(entry_bytes)
        }
        if not padded:
            continue
        owner = None
        try:
            with files.opened(segment) as (log, owner):
                trimmed = list(_trimmed(segment, log, directory, padded))
        except (OSError, LogChangedError) as error:
            trimmed = [Trimmed(suffix, None, _why_not_read(error)) for suffix in padded]
        for file in trimmed:
            name = padded[file.suffix]
            place = files.place(directory, name)
            before = files.listed[directory][name].st_size
            content, reason, outcome = file.content, file.reason, ChangeOutcome.PLANNED
            if content is not None and len(content) == before:
                continue  # its only entry is of 1970
            if content is not None and not files.may_write(place):
                content, reason = None, NOT_LOCKED
            if content is None:
                outcome = ChangeOutcome.KEPT
            elif files.mode is Mode.APPLY:
                files.publisher.stage(directory, name, content, files.owner_in(directory, owner))
                outcome = ChangeOutcome.WRITTEN
            yield IndexChange(
                key=files.task.key,
                base_offset=segment.base_offset,
                action=ChangeAction.TRIM,
                outcome=outcome,
                place=place,
                reason=reason,
                bytes_before=before,
                bytes_after=before if content is None else len(content),
            )


def _trimmed(
    segment: SegmentToCompact, log: LogBytes, directory: Directory, padded: dict[str, str]
) -> Iterator[Trimmed]:
    base_offset = segment.base_offset
    recovered = indexes_from_headers(log, base_offset, segment.options)
    offset_index, time_index = (
        read_file(directory, segment_file(base_offset, suffix)) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    )
    if OFFSET_INDEX_SUFFIX in padded and offset_index is not None:
        trimmed = _trim_offset_index(log, recovered, base_offset, offset_index)
        offset_index = trimmed.content
        yield trimmed
    if TIME_INDEX_SUFFIX in padded and time_index is not None:
        entries = OffsetIndex.from_bytes(recovered.offset_index if offset_index is None else offset_index, base_offset)
        yield _trim_time_index(log, recovered, entries, time_index)


def _remove_orphan(files: FilesToCompact, directory: Directory, orphan: Orphan) -> IndexChange:
    place = files.place(directory, orphan.name)
    parsed = parse_segment_file(orphan.name)
    outcome, reason = ChangeOutcome.PLANNED, orphan.reason.value
    is_auxiliary_file = orphan.reason in (OrphanReason.NO_SEGMENT, OrphanReason.STRAY_SNAPSHOT)
    if place.log_dir is not None and is_auxiliary_file and not _is_ours(files, directory, orphan):
        outcome, reason = ChangeOutcome.KEPT, NOT_OURS
    elif not files.may_write(place):
        outcome, reason = ChangeOutcome.KEPT, NOT_LOCKED
    elif files.mode is Mode.APPLY:
        files.remove(directory, orphan.name)
        outcome = ChangeOutcome.REMOVED
    return IndexChange(
        key=files.task.key,
        base_offset=None if parsed is None else parsed[0],
        action=ChangeAction.REMOVE,
        outcome=outcome,
        place=place,
        reason=reason,
        bytes_before=orphan.size,
        bytes_after=orphan.size if outcome is ChangeOutcome.KEPT else 0,
    )


def _is_ours(files: FilesToCompact, directory: Directory, orphan: Orphan) -> bool:
    """Whether an index or auxiliary file of a missing segment has the content that was published for it."""
    base_offset, suffix = parse_segment_file(orphan.name) or (-1, "")
    recorded = {segment.base_offset: segment.crc32c_of(suffix) for segment in files.task.segments}
    content = read_file(directory, orphan.name)
    return content is not None and crc32c(content) == recorded.get(base_offset)


class OrphanReason(enum.StrEnum):
    NO_SEGMENT = "no-segment"  # its log is not there, and the catalog does not expect it
    STRAY_SNAPSHOT = "stray-snapshot"  # a producer snapshot where neither a segment begins nor the log ends
    STAGED = "staged"  # its run was killed before it put the file in place
    DELETED = "deleted"  # a broker, or retention, renamed it and stopped before removing it


@dataclass(frozen=True, slots=True)
class Orphan:
    name: str
    reason: OrphanReason
    size: int


def find_orphans(
    files: Mapping[str, FileStatus], base_offsets: Collection[int], options: CompactionOptions
) -> Iterator[Orphan]:
    """The orphans among the regular files of a directory, in the order in which to remove them: a log is last, so that
    a stopped removal can be continued. `base_offsets` are of the partition's segments.
    """
    bases, now_ns = frozenset(base_offsets), options.clock_ms * NS_PER_MS
    end = max(bases, default=None)
    strays = [offset for name in files if (offset := parse_snapshot(name)) is not None and offset not in bases]
    # The last snapshot beyond all segments is at the log end offset.
    kept = max((offset for offset in strays if end is not None and offset >= end), default=None)

    def reason(name: str, status: FileStatus) -> OrphanReason | None:
        if is_staging(name):
            return OrphanReason.STAGED if now_ns - status.st_mtime_ns >= options.staged_delay_ns else None
        if name.endswith(DELETED_SUFFIX):
            parsed = parse_segment_file(name.removesuffix(DELETED_SUFFIX))
            is_kafkas = parsed is not None and parsed[1] in (LOG_SUFFIX, *AUXILIARY_SUFFIXES)
            # Renaming leaves a file's modification time as it is.
            is_old = now_ns - status.st_ctime_ns >= options.delete_delay_ns
            return OrphanReason.DELETED if is_kafkas and is_old else None
        parsed = parse_segment_file(name)
        if parsed is None or parsed[0] in bases or parsed[1] not in AUXILIARY_SUFFIXES:
            return None
        if parsed[1] == SNAPSHOT_SUFFIX:
            return None if parsed[0] == kept else OrphanReason.STRAY_SNAPSHOT
        return OrphanReason.NO_SEGMENT

    for name in sorted(files, key=lambda name: (name.endswith(LOG_SUFFIX + DELETED_SUFFIX), name)):
        why = reason(name, files[name])
        if why is not None:
            yield Orphan(name, why, files[name].st_size)
