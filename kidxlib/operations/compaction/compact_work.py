"""The work of compaction's workers: they compact partitions by the catalog's rows of their segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from kidxlib.catalog.index_bytes import packed_batches
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import COMPACTED, CompactedFile
from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.catalog.segments import IndexFacts, LogVersion
from kidxlib.compaction.compact_partition import compact
from kidxlib.compaction.task import Change, CompactionOptions, CompactionTask, Mode
from kidxlib.engine.work import ItemRows, SharedRows
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import index_directory, segments_directory
from kidxlib.recovery.outcome import ABSENT
from kidxlib.storage.location import location


@dataclass(frozen=True, slots=True)
class PartitionsToCompact:
    """
    Attributes:
        rows: keys and the columns of `SegmentToCompact`; those of a partition follow one another, segments in order.
        log_bytes: size of the logs that exist.
    """

    rows: SharedRows
    log_bytes: int


def compact_partitions(
    shares: Iterable[PartitionsToCompact],
    use_mmap: bool,
    *,
    sources: Mapping[str, str],
    options: CompactionOptions,
    mode: Mode,
) -> Iterator[ItemRows]:
    """Rows of `COMPACTED`. If it is repeated, `Mode.APPLY` gives the same files and rows, except for `outcome`.
    `sources` has the paths of sources by name.
    """
    for share in shares:
        for change in compact(_tasks(share.rows.batches(), sources), options, mode, use_mmap):
            yield ItemRows(batches=packed_batches(change.packed, COMPACTED), rows=[{"compacted": _row(change)}])


def _tasks(batches: Iterator[pa.RecordBatch], sources: Mapping[str, str]) -> Iterator[CompactionTask]:
    segments = (
        ((key["source"], key["topic"], key["partition"]), segment)
        for batch in batches
        for key, segment in zip(batch.select(PARTITIONS.key).to_pylist(), SegmentToCompact.of_arrow(batch), strict=True)
    )
    for key, group in groupby(segments, key=itemgetter(0)):
        source, topic, number = key
        partition, of_partition = TopicPartition(topic, number), [segment for _, segment in group]
        # Rows of segments that are gone still say where the files were.
        present = [segment for segment in of_partition if segment.status not in ABSENT] or of_partition
        directory = index_directory(partition, [segment.index_directory for segment in present])
        if directory is None:
            continue  # the rows do not say where the index files are
        path = sources.get(source)
        logs = {segment.base_offset: segment.log_path for segment in present}
        yield CompactionTask(
            key=key,
            segments_directory=None if path is None else segments_directory(location(path), partition, logs),
            index_directory=directory,
            segments=tuple(of_partition),
        )


def _row(change: Change) -> dict[str, Any]:
    file, coarsened = _file(change).values(), change.coarsened
    if coarsened is None:
        return file
    indexes = IndexFacts.of_files(coarsened.interval_after, coarsened.offset_index, coarsened.time_index)
    return {**file, **indexes.values(), **LogVersion.of_file(coarsened.version).values()}


def _file(change: Change) -> CompactedFile:
    source, topic, partition = change.key
    coarsened = change.coarsened
    before, after = (coarsened.cost_before, coarsened.cost_after) if coarsened is not None else (None, None)
    return CompactedFile(
        source=source,
        topic=topic,
        partition=partition,
        base_offset=change.base_offset,
        action=change.action.value,
        outcome=change.outcome.value,
        reason=change.reason,
        path=change.place.path,
        log_dir=change.place.log_dir,
        bytes_before=change.bytes_before,
        bytes_after=change.bytes_after,
        interval_before=None if coarsened is None else coarsened.interval_before,
        mean_scan_bytes_before=None if before is None else before.mean,
        max_scan_bytes_before=None if before is None else before.most,
        mean_scan_bytes_after=None if after is None else after.mean,
        max_scan_bytes_after=None if after is None else after.most,
    )
