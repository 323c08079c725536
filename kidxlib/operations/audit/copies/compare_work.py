"""Segments whose copies a worker looks at: one HEAD each, many on their way at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from kidxlib.audit.copies import PROBLEMS, CopyVerdict, KnownLog, judge_copy
from kidxlib.catalog.results.audit import CopiesRow, CopyRow
from kidxlib.catalog.segment_views import SegmentToCompare
from kidxlib.engine.work import ItemRows
from kidxlib.errors import NoAnswerError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.audit.copies.to_compare import CopiesToCompare
from kidxlib.storage.store.client import AT_ONCE, connect
from kidxlib.storage.store.heads import Asked, ask_for_head
from kidxlib.storage.store.s3 import ObjectPath


def compare_copies(shares: Iterable[CopiesToCompare], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `COMPARED`.

    Args:
        use_mmap: no log is read.

    Raises:
        CatalogError: the catalog cannot be read.
        UsageError: it is another one on this worker.
        NoAnswerError: the store does not answer.
    """
    client = connect()  # before there are threads: it takes half a second, and one is enough for all
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for share in shares:
            segments = share.read()
            objects = [_object_of(share.copy, segment) for segment in segments]
            yield _compared(share, segments, objects, list(threads.map(partial(_ask, client), objects)))


def _ask(client: Any, path: ObjectPath) -> Asked:
    try:
        return ask_for_head(client, path)
    except OSError as error:
        raise NoAnswerError(f"{path}: {error}") from error


def _object_of(copy: ObjectPath, segment: SegmentToCompare) -> ObjectPath:
    directory = TopicPartition(segment.topic, segment.partition).directory
    return copy / directory / segment_file(segment.base_offset, LOG_SUFFIX)


def _compared(
    share: CopiesToCompare, segments: list[SegmentToCompare], objects: list[ObjectPath], answers: list[Asked]
) -> ItemRows:
    counts: dict[CopyVerdict, Counter[str]] = {}
    rows: list[dict[str, Any]] = []
    for segment, path, asked in zip(segments, objects, answers, strict=True):
        known = KnownLog(segment.log_bytes, segment.log_crc32c, segment.log_crc64nvme)
        verdict, detail = judge_copy(known, asked)
        of_one = {"segments": 1, "log_bytes": segment.log_bytes or 0}
        counts.setdefault(verdict, Counter()).update(of_one)
        if verdict is CopyVerdict.AS_UPLOADED:
            continue
        row = CopyRow(
            source=share.partitions[0][0],
            topic=segment.topic,
            partition=segment.partition,
            base_offset=segment.base_offset,
            verdict=verdict.value,
            object=str(path),
            detail=detail,
        )
        rows.append({"problem" if verdict in PROBLEMS else "unknown": row.values()})
    rows += [{"count": CopiesRow(verdict=verdict.value, **of_all).values()} for verdict, of_all in counts.items()]
    return ItemRows(segments=len(segments), rows=rows)
