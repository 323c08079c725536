"""Index files made by one process: of one log, in memory (`recover_file`), and of a log dir, in a tree of their own, as
`kidx build` makes them (`recover_directory`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.finish_partition import UnfinishedSegment, fold_and_publish
from kidxlib.indexing.plan import AuxiliaryFiles, BuildTask, Plan, PlannedPartition, find_segments
from kidxlib.indexing.segments import build_segments
from kidxlib.indexing.source import IndexPlace, ensure_no_overlap, index_dir_to_write, parse_topics, source_at
from kidxlib.reading.request import requested_log
from kidxlib.recovery.facts import SegmentFacts
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.publisher import Published


def recover_file(
    path: str | os.PathLike[str], options: RecoverOptions | None = None, *, use_mmap: bool = False
) -> RecoveredSegment:
    """What Kafka's recovery makes of a segment's log: the bytes of its `.index` and `.timeindex`, facts of its batches,
    and where and why the scan ended. Nothing is written, and the log is only read.

    A damaged log is no error: `end` says what is wrong. Its aborted transactions, and so its `.txnindex`, depend on the
    segments before: `recover_directory` has them.

    Args:
        path: the `.log`, here or `s3://<bucket>/<key>`; its name has the base offset.
        options: a broker's options that the indexes depend on; None for Kafka's defaults.
        use_mmap: map the file, which is twice as fast. If another process makes a mapped file shorter, this process is
            killed (SIGBUS): not for a segment that a broker writes to.

    Raises:
        UsageError: the file is not named as a segment's log.
        LogChangedError: another process changed the log while it was read.
        OSError: the log cannot be read.
    """
    place, base_offset = requested_log(path)
    with opened_log(place) as opened:
        log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
        recovered = recover(log, base_offset, options or RecoverOptions())
        opened.ensure_unchanged()
    return recovered


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedSegment:
    """What `recover_directory` gives for one segment.

    Attributes:
        base_offset: the offset in its file names.
        log: the path of its `.log`.
        end: where and why the scan ended, or where Kafka fails on its producers or leader epochs.
        facts: the facts of its batches up to there; None if the log was not read to its end.
        published: what was done with its `.index` and `.timeindex`.
        aborted_transactions: how many are in its `.txnindex`.
    """

    base_offset: int
    log: str
    end: ScanEnd
    facts: SegmentFacts | None
    published: Published
    aborted_transactions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredPartition:
    """The result for one partition.

    Attributes:
        topic_partition: the topic and the number.
        directory: where its logs are.
        index_directory: where its index files are.
        segments: by base offset.
    """

    topic_partition: TopicPartition
    directory: str
    index_directory: str
    segments: tuple[IndexedSegment, ...]


@dataclass(frozen=True, slots=True)
class RecoveredDirectory:
    """The result for a log dir, or for one partition's directory.

    Attributes:
        partitions: by topic and number.
        notes: what a person should know of the listing, such as files that no broker leaves there.
    """

    partitions: tuple[RecoveredPartition, ...]
    notes: tuple[str, ...] = ()

    @property
    def damaged(self) -> tuple[IndexedSegment, ...]:
        """The segments of the directory that are not `ok`; their `end` says why."""
        segments = (segment for partition in self.partitions for segment in partition.segments)
        return tuple(segment for segment in segments if segment.end.status is not Status.OK)


def recover_directory(
    directory: str | os.PathLike[str],
    index_dir: str | os.PathLike[str],
    *,
    topics: str = ".*",
    options: RecoverOptions | None = None,
    snapshots: bool = False,
    epochs: bool = False,
    use_mmap: bool = False,
) -> RecoveredDirectory:
    """Write the `.index`, `.timeindex` and `.txnindex` files that Kafka's recovery makes of the logs in a directory
    into a tree of their own, `<index_dir>/<topic>-<partition>/`. Logs are only read. A file appears whole or not at
    all, and a file that already has the right bytes is not touched.

    One core works on one segment after the other. `kidx build` takes all cores, and writes beside the logs, too. A
    damaged segment is no error and does not stop the others: see `RecoveredDirectory.damaged`. The valid prefix of a
    truncated segment is indexed.

    Args:
        directory: a log dir or one partition's directory, here or in `s3://<bucket>/<prefix>`.
        index_dir: where the tree is made; not in the log dir, and not around it.
        topics: a regular expression for the full names of topics.
        options: a broker's options that the indexes depend on; None for Kafka's defaults.
        snapshots: write producer snapshots too.
        epochs: write `leader-epoch-checkpoint` files too.
        use_mmap: as for `recover_file`; the last segment of a partition is never mapped.

    Raises:
        UsageError: a directory is missing, cannot be listed or is not what it should be, or holds no segment of these
            topics; nothing was written.
        PublishError: the tree cannot be written.
    """
    source = source_at(os.fspath(directory))
    place = index_dir_to_write("index_dir", os.fspath(index_dir))
    ensure_no_overlap(place, None, (source,), option="index_dir")
    like = options or RecoverOptions()
    index_place = IndexPlace(index_dir=place, by_source=False)
    plan = find_segments((source,), parse_topics(topics, "topics"), index_place, lambda _: OptionsOfTopic(like))
    ensure_listable(plan)
    in_order = groupby(plan.build_tasks(publish_truncated=True), key=lambda task: task.segment.partition_key)
    tasks = {key: list(of_partition) for key, of_partition in in_order}
    recovered = tuple(
        _recovered(listed, tasks.get(listed.key, []), AuxiliaryFiles(snapshots, epochs), use_mmap)
        for listed in plan.partitions
    )
    return RecoveredDirectory(recovered, tuple(plan.warnings))


def ensure_listable(plan: Plan) -> None:
    """Refuse to recover or to audit a directory if one of its partitions cannot be listed."""
    for unlistable in plan.unlistable.values():
        raise UsageError(
            f"{unlistable.directory}: cannot be listed: {unlistable.reason}; leave its topic out, or make it readable"
        )


def _recovered(
    listed: PlannedPartition, tasks: Sequence[BuildTask], auxiliary_files: AuxiliaryFiles, use_mmap: bool
) -> RecoveredPartition:
    segments: dict[int, IndexedSegment] = {}

    def scanned() -> Iterator[UnfinishedSegment]:
        for built in build_segments(tasks, use_mmap):
            segment = built.task.segment
            segments[segment.base_offset] = IndexedSegment(
                base_offset=segment.base_offset,
                log=segment.path,
                end=built.end,
                facts=built.recovered.facts if built.recovered else None,
                published=built.published,
            )
            yield UnfinishedSegment.of(built)

    finished = fold_and_publish([(listed.partition_task(auxiliary_files), scanned())]) if tasks else ()
    for partition in finished:
        for finished_segment in partition.segments:
            segment, failure = segments[finished_segment.base_offset], finished_segment.failure
            segments[finished_segment.base_offset] = replace(
                segment,
                end=failure or segment.end,
                published=Published.NONE if failure else segment.published,
                aborted_transactions=len(finished_segment.aborted),
            )
    return RecoveredPartition(
        topic_partition=listed.directory.topic_partition,
        directory=str(listed.directory.path),
        index_directory=str(listed.index_directory),
        segments=tuple(segments.values()),
    )
