"""Indexes segments: a task reads each segment of its work unit, publishes the indexes, and returns one row of facts.

A row is returned after its index files are durable, so a row in the catalog always has its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kidxlib.build.finish.held_index import held_name
from kidxlib.build.results import BuiltSegment
from kidxlib.build.scan import recover_task, why_not_read
from kidxlib.build.tasks import BuildTask
from kidxlib.errors import LogChangedError
from kidxlib.format import layouts as formats
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.index.file import IndexFile
from kidxlib.recovery.log_facts.record_facts import with_all_facts
from kidxlib.recovery.outcome import Status
from kidxlib.storage.directory import read_file
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.publisher import Owner, Published, Publisher

#: Files published together, and rows held back until they are: one flush for all of them.
GROUP_FILES: Final = 300
GROUP_BYTES: Final = 32 * 1024 * 1024


def build(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[BuiltSegment]:
    """Index segments one after the other and publish `<base offset>.index` and `.timeindex` in their index directories.

    In place, the `.index` of a segment with producers waits under another name until `kidxlib.build.finish.partition`
    has its transaction index.

    Args:
        tasks: the segments; a damaged or vanished segment never stops the others.
        use_mmap: False reads every log in chunks. Mapping is faster, but a bad sector or a file that shrinks then kills
            the process, so a second attempt should not map. Active segments are never mapped.

    Raises:
        PublishError: an index directory cannot be written.
    """
    with Publisher() as publisher:
        waiting: list[BuiltSegment] = []
        for task in tasks:
            waiting.append(_build_one(task, publisher, use_mmap and not task.segment.active))
            if publisher.staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                publisher.commit()
                yield from waiting
                waiting.clear()
        publisher.commit()
        yield from waiting


def _build_one(task: BuildTask, publisher: Publisher, use_mmap: bool) -> BuiltSegment:
    version, reads = task.segment.version, None
    try:
        with opened_log(task.segment.path) as opened:
            version, reads = opened.version, opened.reads
            log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
            recovered = recover_task(log, task)
            if task.all_facts:
                recovered = replace(recovered, facts=with_all_facts(log, recovered.facts))
            owner = Owner.of(opened.status) if task.in_place and opened.status is not None else None
            opened.ensure_unchanged()
    except (LogChangedError, OSError) as error:
        end = why_not_read(task.segment.path, error)
        return BuiltSegment(task=task, version=version, end=end, recovered=None, published=Published.NONE, reads=reads)
    status = recovered.end.status
    if status is Status.QUARANTINED or (status is Status.TRUNCATED and not task.publish_truncated):
        outcome = Published.NONE if status is Status.QUARANTINED else Published.KEPT
        return BuiltSegment(
            task=task, version=version, end=recovered.end, recovered=recovered, published=outcome, reads=reads
        )

    # The offset index last: a broker that finds one rebuilds nothing, not even a time index that is missing.
    time_index, time_published = _publish(task, TIME_INDEX_SUFFIX, recovered.time_index, publisher, owner)
    hold = task.in_place and len(recovered.producer_events) > 0
    offset_index, offset_published = _publish(
        task, OFFSET_INDEX_SUFFIX, recovered.offset_index, publisher, owner, hold=hold
    )
    return BuiltSegment(
        task=task,
        version=version,
        end=recovered.end,
        recovered=recovered,
        published=Published.WRITTEN if Published.WRITTEN in (time_published, offset_published) else Published.UNCHANGED,
        offset_index=None if offset_index is None else IndexFile.of(offset_index, formats.OFFSET_INDEX_ENTRY),
        time_index=None if time_index is None else IndexFile.of(time_index, formats.TIME_INDEX_ENTRY),
        reads=reads,
    )


def _publish(
    task: BuildTask, suffix: str, content: bytes, publisher: Publisher, owner: Owner | None, *, hold: bool = False
) -> tuple[bytes | None, Published]:
    """What stands there afterwards, and what was done.

    Args:
        hold: let it wait under another name, unless it stands there already.
    """
    base_offset = task.segment.base_offset
    name = segment_file(base_offset, suffix)
    if task.only is not None and name not in task.only:
        return read_file(task.index_directory, name), Published.UNCHANGED
    if hold and read_file(task.index_directory, name, len(content) + 1) != content:
        name = held_name(base_offset)
    return content, publisher.stage(task.index_directory, name, content, owner)
