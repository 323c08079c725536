"""Side files of partitions made smaller and fewer: cut, coarsened, and those that nothing needs removed.

Each change is looked for in the files as they are now, and is what it would be were nothing written. A file is replaced
whole, as by a build, after it is on disk. So a run that is stopped anywhere is run again, and ends as it would have.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import google_crc32c

from kidxlib.build import GROUP_BYTES, GROUP_FILES, IndexFile
from kidxlib.coarsen import Indexes, ScanCost, from_denser, from_headers, scan_cost
from kidxlib.compaction_policy import CompactionPolicy
from kidxlib.errors import PublishError
from kidxlib.formats import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_segment_log,
    segment_file,
)
from kidxlib.offset_index import OffsetIndex
from kidxlib.orphans import Delays, Orphan, OrphanReason, find_orphans
from kidxlib.plan import PartitionKey
from kidxlib.publish import FileStatus, Folder, Owner, Published, Publisher, Retirer, read_end, read_file
from kidxlib.recover import ABSENT, RecoverOptions, Status
from kidxlib.storage import FileVersion, LogBytes, LogChangedError, opened_log
from kidxlib.time_index import TimeIndex
from kidxlib.times import NS_PER_MS
from kidxlib.trim import Trimmed, ends_in_zeros, trim_offset_index, trim_time_index


class Action(enum.StrEnum):
    """What is to be done with files."""

    TRIM = "trim"
    COARSEN = "coarsen"
    DENSIFY = "densify"  # the way back, to a smaller interval
    REMOVE = "remove"


class Outcome(enum.StrEnum):
    """What became of them."""

    PLANNED = "planned"  # nothing was written
    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the new interval gives the same bytes, or a run before this one did not record them
    REMOVED = "removed"
    KEPT = "kept"


class Mode(enum.Enum):
    """How far to go."""

    LOOK = enum.auto()  # which files would change, and not how
    PLAN = enum.auto()
    APPLY = enum.auto()


#: Why files stay that were to change, besides what keeps a recovery with that interval from an end (`ScanEnd.reason`)
#: and what is wrong with an index (`audit.Finding.reason`).
LOG_CHANGED: Final = "log-changed"  # since it was built
UNREADABLE: Final = "unreadable"
UNFINISHED: Final = "unfinished"  # the build did not come to its transactions
NOT_LOCKED: Final = "not-locked"  # it came into a log dir where there was nothing to do before: run again
NOT_OURS: Final = "not-ours"  # in a log dir, and the catalog does not know it: a broker removes it when it starts


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSegment:
    """What the catalog says of a segment; see its columns of the same names.

    Attributes:
        version: of the log; None where it could not be looked at.
        finished: its partition was finished since it was read.
    """

    base_offset: int
    status: Status
    active: bool
    version: FileVersion | None
    valid_bytes: int | None
    max_timestamp_ms: int | None
    options: RecoverOptions
    offsets_increase: bool
    finished: bool
    offset_index_crc32c: int | None
    time_index_crc32c: int | None
    transaction_index_crc32c: int | None

    @property
    def largest_timestamp_ms(self) -> int:
        """What its age is counted from (`LogSegment.largestTimestamp`)."""
        if self.max_timestamp_ms is not None and self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return 0 if self.version is None else self.version.mtime_ns // NS_PER_MS

    def crc32c_of(self, suffix: str) -> int | None:
        """Of a side file as it was published; None where it was not."""
        return {
            OFFSET_INDEX_SUFFIX: self.offset_index_crc32c,
            TIME_INDEX_SUFFIX: self.time_index_crc32c,
            TRANSACTION_INDEX_SUFFIX: self.transaction_index_crc32c,
        }.get(suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """A partition.

    Attributes:
        segments_folder: where its logs are; None where that is not known.
        index_folder: where its indexes are; may be the same.
        segments: those that the catalog has, gone ones too, by base offset.
    """

    key: PartitionKey
    segments_folder: Folder | None
    index_folder: Folder
    segments: tuple[RecordedSegment, ...]

    @property
    def folders(self) -> tuple[Folder, ...]:
        """Where its side files may stand."""
        if self.segments_folder is None or str(self.segments_folder) == str(self.index_folder):
            return (self.index_folder,)
        return self.segments_folder, self.index_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """What is to be done.

    Attributes:
        policy: which segments get which interval.
        trim: cut files that end in zeros.
        orphans: remove files that nothing needs.
        now_ms: by which segments are old enough for a rule.
        clock_ms: the machine's, by which files are old enough to be removed.
        locked: the log dirs in which files may be written.
    """

    policy: CompactionPolicy
    trim: bool
    orphans: bool
    now_ms: int
    clock_ms: int
    delays: Delays
    locked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
    """A file; `log_dir` is the Kafka log dir where it stands beside logs, None where it does not."""

    path: str
    log_dir: str | None


@dataclass(frozen=True, slots=True)
class Coarsened:
    """Both indexes of a segment at two intervals.

    Attributes:
        version: of the log.
        cost_before: None where the `.index` is not what the catalog says.
        cost_after, offset_index, time_index: the new ones; None where they stay, or were not made as yet.
    """

    version: FileVersion
    interval_before: int
    interval_after: int
    cost_before: ScanCost | None = None
    cost_after: ScanCost | None = None
    offset_index: IndexFile | None = None
    time_index: IndexFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one file, or of both indexes of a segment.

    Attributes:
        base_offset: None of a file that is not a segment's.
        place: of the file; of both indexes that of the `.index`.
        reason: why it goes, or stays; None else.
        bytes_before: of the file, or of both.
        bytes_after: likewise; None where that was not asked for.
        coarsened: None of what is not coarsened.
    """

    key: PartitionKey
    base_offset: int | None
    action: Action
    outcome: Outcome
    place: Place
    reason: str | None = None
    bytes_before: int
    bytes_after: int | None
    coarsened: Coarsened | None = None


def compact(tasks: Iterable[CompactionTask], options: CompactionOptions, mode: Mode, may_map: bool) -> Iterator[Change]:
    """Look for what is to change in partitions, and with `Mode.APPLY` change it.

    A change is given out after its files are durable.

    Args:
        may_map: False reads every log in chunks: see `kidxlib.build.build`.

    Raises:
        PublishError: a folder cannot be written. Run again to go on.
    """
    with Publisher() as publisher, Retirer() as retirer:
        waiting: list[Change] = []
        for task in tasks:
            for change in _Partition(task, options, mode, may_map, publisher, retirer).changes():
                waiting.append(change)
                if mode is not Mode.APPLY or publisher.staged_bytes >= GROUP_BYTES or len(waiting) >= GROUP_FILES:
                    yield from _settled(waiting, publisher, retirer)
        yield from _settled(waiting, publisher, retirer)


def _settled(waiting: list[Change], publisher: Publisher, retirer: Retirer) -> Iterator[Change]:
    publisher.commit()
    if any(change.outcome is Outcome.REMOVED for change in waiting):
        retirer.flush()
    yield from waiting
    waiting.clear()


@dataclass(slots=True)
class _Partition:
    task: CompactionTask
    options: CompactionOptions
    mode: Mode
    may_map: bool
    publisher: Publisher
    retirer: Retirer
    _files: dict[Folder, dict[str, FileStatus]] = field(default_factory=dict)

    def changes(self) -> Iterator[Change]:
        for folder in self.task.folders:
            self._files[folder] = self._listed(folder)
        present = {segment.base_offset for segment in self.task.segments if segment.status not in ABSENT}
        segments_folder = self.task.segments_folder
        found = [] if segments_folder is None else [parse_segment_log(name) for name in self._files[segments_folder]]
        logs = {base_offset for base_offset in found if base_offset is not None}
        last = max(logs or present, default=-1)
        for segment in self.task.segments:
            if segment.status in ABSENT or segment.active or segment.base_offset >= last:
                continue
            coarsened = self._coarsen(segment)
            if coarsened is not None:
                yield coarsened
            if self.options.trim and segment.status is Status.OK:
                is_replaced = coarsened is not None and coarsened.outcome is not Outcome.KEPT
                yield from self._trim(segment, self.task.folders[: -1 if is_replaced else None])
        if self.options.orphans:
            clock_ns, delays = self.options.clock_ms * NS_PER_MS, self.options.delays
            for folder in self.task.folders:
                for orphan in find_orphans(self._files[folder], present | logs, clock_ns, delays):
                    yield self._remove(folder, orphan)

    def _listed(self, folder: Folder) -> dict[str, FileStatus]:
        """The regular files of a folder; none where a link leads to it: nothing there is touched."""
        try:
            return self.retirer.files(folder)
        except PublishError:
            return {}

    # ---- coarsen ----

    def _coarsen(self, segment: RecordedSegment) -> Change | None:
        if segment.version is None or segment.offset_index_crc32c is None or segment.valid_bytes is None:
            return None  # nothing was published of it
        interval = self.options.policy.interval_for(
            self.task.key[1], segment.version.size, segment.largest_timestamp_ms, self.options.now_ms
        )
        if interval is None or interval == segment.options.interval_bytes:
            return None
        folder = self.task.index_folder
        names = [segment_file(segment.base_offset, suffix) for suffix in (TIME_INDEX_SUFFIX, OFFSET_INDEX_SUFFIX)]
        sizes = [self._files[folder][name].st_size for name in names if name in self._files[folder]]
        change = Change(
            key=self.task.key,
            base_offset=segment.base_offset,
            action=Action.COARSEN if interval > segment.options.interval_bytes else Action.DENSIFY,
            outcome=Outcome.PLANNED,
            place=self._place(folder, names[-1]),
            bytes_before=sum(sizes),
            bytes_after=None,
            coarsened=Coarsened(segment.version, segment.options.interval_bytes, interval),
        )
        if not segment.finished:
            return replace(change, outcome=Outcome.KEPT, reason=UNFINISHED)
        if not self._may_write(change.place):
            return replace(change, outcome=Outcome.KEPT, reason=NOT_LOCKED)
        if self.mode is Mode.LOOK:
            return change
        present = self._as_recorded(segment)
        denser = present if segment.options.interval_bytes < interval and segment.offsets_increase else None
        try:
            with self._opened(segment, few_pages=denser is not None) as (log, owner):
                indexes = self._indexes(log, segment, interval, denser)
        except (OSError, LogChangedError) as error:
            return replace(change, outcome=Outcome.KEPT, reason=_why_not_read(error))
        if isinstance(indexes, str):
            return replace(change, outcome=Outcome.KEPT, reason=indexes)
        outcome = Outcome.UNCHANGED if indexes == present else Outcome.PLANNED
        if self.mode is Mode.APPLY:  # the offset index last, as in a build
            contents = zip(names, (indexes.time_index, indexes.offset_index), strict=True)
            published = {
                self.publisher.stage(folder, name, content, self._owner_in(folder, owner)) for name, content in contents
            }
            outcome = Outcome.WRITTEN if Published.WRITTEN in published else Outcome.UNCHANGED
        coarsened = Coarsened(
            segment.version,
            segment.options.interval_bytes,
            interval,
            None if present is None else scan_cost(present.offset_index, segment.valid_bytes),
            scan_cost(indexes.offset_index, segment.valid_bytes),
            IndexFile.of(indexes.offset_index, OFFSET_INDEX_ENTRY),
            IndexFile.of(indexes.time_index, TIME_INDEX_ENTRY),
        )
        return replace(change, outcome=outcome, bytes_after=indexes.size, coarsened=coarsened)

    def _indexes(self, log: LogBytes, segment: RecordedSegment, interval: int, denser: Indexes | None) -> Indexes | str:
        """The new indexes, or why there are none: Kafka fails on the segment at this interval."""
        options = replace(segment.options, interval_bytes=interval)
        if denser is not None:
            found = from_denser(log, segment.base_offset, options, denser)
            if found is not None:
                return found
        recovered = from_headers(log, segment.base_offset, options)
        if recovered.end.status is Status.QUARANTINED:
            assert recovered.end.reason is not None
            return recovered.end.reason
        return Indexes(recovered.offset_index, recovered.time_index)

    def _as_recorded(self, segment: RecordedSegment) -> Indexes | None:
        """The segment's indexes; None where they are not, byte for byte, what the catalog says."""
        contents = []
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            content = read_file(self.task.index_folder, segment_file(segment.base_offset, suffix))
            if content is None or google_crc32c.value(content) != segment.crc32c_of(suffix):
                return None
            contents.append(content)
        return Indexes(*contents)

    # ---- trim ----

    def _trim(self, segment: RecordedSegment, folders: Sequence[Folder]) -> Iterator[Change]:
        for folder in folders:
            padded = {
                suffix: name
                for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
                if (name := segment_file(segment.base_offset, suffix)) in self._files[folder]
                and ends_in_zeros(read_end(folder, name, TimeIndex.entry_bytes) or b"", suffix)
            }
            if not padded:
                continue
            owner = None
            try:
                with self._opened(segment) as (log, owner):
                    trimmed = list(self._trimmed(segment, log, folder, padded))
            except (OSError, LogChangedError) as error:
                trimmed = [Trimmed(suffix, None, _why_not_read(error)) for suffix in padded]
            for each in trimmed:
                name = padded[each.suffix]
                place = self._place(folder, name)
                before = self._files[folder][name].st_size
                content, reason, outcome = each.content, each.reason, Outcome.PLANNED
                if content is not None and len(content) == before:
                    continue  # the entry of 1970 is all that it has
                if content is not None and not self._may_write(place):
                    content, reason = None, NOT_LOCKED
                if content is None:
                    outcome = Outcome.KEPT
                elif self.mode is Mode.APPLY:
                    self.publisher.stage(folder, name, content, self._owner_in(folder, owner))
                    outcome = Outcome.WRITTEN
                yield Change(
                    key=self.task.key,
                    base_offset=segment.base_offset,
                    action=Action.TRIM,
                    outcome=outcome,
                    place=place,
                    reason=reason,
                    bytes_before=before,
                    bytes_after=before if content is None else len(content),
                )

    def _trimmed(
        self, segment: RecordedSegment, log: LogBytes, folder: Folder, padded: dict[str, str]
    ) -> Iterator[Trimmed]:
        base_offset = segment.base_offset
        recovered = from_headers(log, base_offset, segment.options)
        contents = {
            suffix: read_file(folder, segment_file(base_offset, suffix))
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        }
        right = contents[OFFSET_INDEX_SUFFIX]
        if OFFSET_INDEX_SUFFIX in padded and right is not None:
            trimmed = trim_offset_index(log, recovered, base_offset, right)
            right = trimmed.content
            yield trimmed
        if TIME_INDEX_SUFFIX in padded and (content := contents[TIME_INDEX_SUFFIX]) is not None:
            offset_index = OffsetIndex.from_bytes(recovered.offset_index if right is None else right, base_offset)
            yield trim_time_index(log, recovered, offset_index, content)

    # ---- orphans ----

    def _remove(self, folder: Folder, orphan: Orphan) -> Change:
        place = self._place(folder, orphan.name)
        parsed = parse_segment_file(orphan.name)
        outcome, reason = Outcome.PLANNED, orphan.reason.value
        is_side_file = orphan.reason in (OrphanReason.NO_SEGMENT, OrphanReason.STRAY_SNAPSHOT)
        if place.log_dir is not None and is_side_file and not self._is_ours(folder, orphan):
            outcome, reason = Outcome.KEPT, NOT_OURS
        elif not self._may_write(place):
            outcome, reason = Outcome.KEPT, NOT_LOCKED
        elif self.mode is Mode.APPLY:
            self.retirer.remove(folder, orphan.name)
            outcome = Outcome.REMOVED
        return Change(
            key=self.task.key,
            base_offset=None if parsed is None else parsed[0],
            action=Action.REMOVE,
            outcome=outcome,
            place=place,
            reason=reason,
            bytes_before=orphan.size,
            bytes_after=orphan.size if outcome is Outcome.KEPT else 0,
        )

    def _is_ours(self, folder: Folder, orphan: Orphan) -> bool:
        """Whether a side file of a segment that is gone holds what was published for it."""
        base_offset, suffix = parse_segment_file(orphan.name) or (-1, "")
        recorded = {segment.base_offset: segment.crc32c_of(suffix) for segment in self.task.segments}
        content = read_file(folder, orphan.name)
        return content is not None and google_crc32c.value(content) == recorded.get(base_offset)

    # ---- what they share ----

    @contextmanager
    def _opened(self, segment: RecordedSegment, *, few_pages: bool = False) -> Iterator[tuple[LogBytes, Owner | None]]:
        """A segment's log up to the end of its last valid batch, as it was when it was built, and its file's owner.

        Args:
            few_pages: see `map_log`.

        Raises:
            OSError: it cannot be read.
            LogChangedError: it is not as it was, or is not by the end.
        """
        folder, valid_bytes = self.task.segments_folder, segment.valid_bytes
        if folder is None or valid_bytes is None:
            raise FileNotFoundError
        path = os.path.join(str(folder), segment_file(segment.base_offset, LOG_SUFFIX))
        with opened_log(path) as opened:
            if opened.version != segment.version:
                raise LogChangedError(f"{folder}: the log has changed since it was built")
            log = opened.log(valid_bytes, may_map=self.may_map, few_pages=few_pages)
            yield log, None if opened.status is None else Owner.of(opened.status)
            opened.refuse_changed()

    def _place(self, folder: Folder, name: str) -> Place:
        return Place(os.path.join(str(folder), name), folder.root if self._is_beside_logs(folder) else None)

    def _may_write(self, place: Place) -> bool:
        return self.mode is not Mode.APPLY or place.log_dir is None or place.log_dir in self.options.locked

    def _owner_in(self, folder: Folder, owner: Owner | None) -> Owner | None:
        return owner if self._is_beside_logs(folder) else None

    def _is_beside_logs(self, folder: Folder) -> bool:
        return self.task.segments_folder is not None and str(folder) == str(self.task.segments_folder)


def _why_not_read(error: OSError | LogChangedError) -> str:
    return LOG_CHANGED if isinstance(error, LogChangedError) else UNREADABLE
