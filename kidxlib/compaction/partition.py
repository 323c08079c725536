"""Makes index files of partitions smaller and fewer: trims and coarsens them, and removes those that nothing needs.

Each change is computed from the files as they are now, and is the same as in a dry run. A new file is on
disk before it replaces the old one as a whole, as in a build. So a stopped run can be run again, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kidxlib.build.segments import GROUP_BYTES, GROUP_FILES
from kidxlib.compaction.change import Change, ChangeOutcome
from kidxlib.compaction.coarsen_files import coarsen_segment
from kidxlib.compaction.orphan_files import remove_orphan
from kidxlib.compaction.orphans import find_orphans
from kidxlib.compaction.partition_files import FilesToCompact
from kidxlib.compaction.task import CompactionOptions, CompactionTask, Mode
from kidxlib.compaction.trim_files import trim_segment
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.storage.publisher import Publisher
from kidxlib.storage.remover import Remover
from kidxlib.text.times import NS_PER_MS


def compact(
    tasks: Iterable[CompactionTask], options: CompactionOptions, mode: Mode, use_mmap: bool
) -> Iterator[Change]:
    """Find what to change in partitions, and with `Mode.APPLY` change it.

    A change is returned after its files are durable.

    Args:
        use_mmap: False reads every log in chunks: see `kidxlib.build.segments.build`.

    Raises:
        PublishError: a directory cannot be written. Run again to continue.
    """
    with Publisher() as publisher, Remover() as remover:
        waiting: list[Change] = []
        for task in tasks:
            for change in _changes(FilesToCompact(task, options, mode, use_mmap, publisher, remover)):
                waiting.append(change)
                if mode is not Mode.APPLY or publisher.staged_bytes >= GROUP_BYTES or len(waiting) >= GROUP_FILES:
                    yield from _settled(waiting, publisher, remover)
        yield from _settled(waiting, publisher, remover)


def _settled(waiting: list[Change], publisher: Publisher, remover: Remover) -> Iterator[Change]:
    publisher.commit()
    if any(change.outcome is ChangeOutcome.REMOVED for change in waiting):
        remover.flush()
    yield from waiting
    waiting.clear()


def _changes(files: FilesToCompact) -> Iterator[Change]:
    present = {segment.base_offset for segment in files.task.segments if segment.status not in ABSENT}
    segments_directory = files.task.segments_directory
    found = [] if segments_directory is None else [parse_segment_log(name) for name in files.listed[segments_directory]]
    logs = {base_offset for base_offset in found if base_offset is not None}
    last = max(logs or present, default=-1)
    for segment in files.task.segments:
        if segment.status in ABSENT or segment.active or segment.base_offset >= last:
            continue
        coarsened = coarsen_segment(files, segment)
        if coarsened is not None:
            yield coarsened
        if files.options.trim and segment.status is Status.OK:
            is_replaced = coarsened is not None and coarsened.outcome is not ChangeOutcome.KEPT
            yield from trim_segment(files, segment, files.task.directories[: -1 if is_replaced else None])
    if files.options.orphans:
        clock_ns, delays = files.options.clock_ms * NS_PER_MS, files.options.delays
        for directory in files.task.directories:
            for orphan in find_orphans(files.listed[directory], present | logs, clock_ns, delays):
                yield remove_orphan(files, directory, orphan)
