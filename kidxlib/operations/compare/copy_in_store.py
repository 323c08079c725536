"""Compares the copy of a log dir in an object store with the catalog's rows of the logs: whether each log is as it was
uploaded. Workers get segments in shares, and ask for each with one HEAD, many at a time. No byte of a log is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import PRESENT, Among, Condition, rows_where, scope_of
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.results import COMPARED, CopiesRow, CopyRow
from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.segments import SEGMENTS, SegmentToCompare
from kidxlib.engine.shares import cut_by_weight, share_rows_of
from kidxlib.engine.work import ItemRows, StagedRows, Work
from kidxlib.errors import NoAnswerError, UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.backend import Backend
from kidxlib.operations.compare.comparison import run_comparison
from kidxlib.run.context import RunContext
from kidxlib.run.sources import sources_in_catalog
from kidxlib.storage.store.client import AT_ONCE, HeadAnswer, ObjectHead, ask_for_head, connect, ensure_any_object
from kidxlib.storage.store.requests import Requests
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.tables.protocol import ROWS, TablesToRead
from kidxlib.terminal.console import begin_phase
from kidxlib.text.words import counted

_64_BITS: Final = 2**64


class CopyVerdict(StrEnum):
    AS_UPLOADED = "as-uploaded"
    DIFFERS = "differs"
    OTHER_SIZE = "other-size"
    MISSING = "missing"
    REFUSED = "refused"
    COMPOSITE = "composite"
    NO_CHECKSUM = "no-checksum"
    NO_FACT = "no-fact"


#: Verdicts that are problems, and verdicts that say neither that the copy is right nor that it is wrong.
PROBLEMS: Final = (CopyVerdict.DIFFERS, CopyVerdict.OTHER_SIZE, CopyVerdict.MISSING, CopyVerdict.REFUSED)
NOT_COMPARABLE: Final = (CopyVerdict.COMPOSITE, CopyVerdict.NO_CHECKSUM, CopyVerdict.NO_FACT)


def judge_copy_in_store(known: SegmentToCompare, asked: HeadAnswer) -> tuple[CopyVerdict, str]:
    """The verdict on a log's copy in an object store, and the reason. A copy is as uploaded if its size is the log's
    and a checksum of the whole object equals the log's; it differs if any checksum does not.
    """
    if asked.refused is not None:
        return CopyVerdict.REFUSED, asked.refused
    if asked.head is None:
        return CopyVerdict.MISSING, "no such object"
    head = asked.head
    if known.log_bytes is None:
        return CopyVerdict.NO_FACT, "the log could not be read when it was built"
    if head.size != known.log_bytes:
        return CopyVerdict.OTHER_SIZE, f"the log has {known.log_bytes:,} bytes, the object {head.size:,}"
    return _by_checksums(known, head)


def _by_checksums(known: SegmentToCompare, head: ObjectHead) -> tuple[CopyVerdict, str]:
    crc64nvme = None if known.log_crc64nvme is None else known.log_crc64nvme % _64_BITS
    checksums = [
        (name, in_catalog, in_store, digits)
        for name, in_catalog, in_store, digits in (
            ("CRC-32C", known.log_crc32c, head.crc32c, 8),
            ("CRC-64/NVME", crc64nvme, head.crc64nvme, 16),
        )
        if in_store is not None
    ]
    in_both = [checksum for checksum in checksums if checksum[1] is not None]
    for name, in_catalog, in_store, digits in in_both:
        if in_catalog != in_store:
            return (
                CopyVerdict.DIFFERS,
                f"{name} of the log is {in_catalog:0{digits}x}, of the object {in_store:0{digits}x}",
            )
    if in_both:
        return CopyVerdict.AS_UPLOADED, ""
    if checksums:
        names = " and ".join(name for name, *_ in checksums)
        return (
            CopyVerdict.NO_FACT,
            f"the object has {names}, and the catalog not; a build with --fill-facts computes it",
        )
    if head.composite:
        names = " and ".join(head.composite)
        return CopyVerdict.COMPOSITE, f"its {names} is of the checksums of its parts, and not comparable"
    others = f"; it has {' and '.join(head.others)}" if head.others else ""
    return CopyVerdict.NO_CHECKSUM, f"the object has neither CRC-32C nor CRC-64/NVME{others}"


#: The copies of so many segments are asked for sooner than workers start: a HEAD takes a millisecond of the processor.
_FEW_SEGMENTS: Final = 1000
#: A worker asks for so many segments before it says how far it is, and may be stopped.
_SHARE_SEGMENTS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """
    Attributes:
        copy: the prefix that stands for the log dir.
        source: its name; None for the only source of the catalog.
        inactive_only: leave out the last segment of each partition.
    """

    context: RunContext
    copy: ObjectPath
    source: str | None
    topics: re.Pattern[str]
    inactive_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareInStore:
    """Segments whose copies in the store a worker asks for: those of a few partitions, or a part of those of one.

    Attributes:
        version: of the table `segments`.
        where: which rows of the source are compared.
        partitions: keys.
        segments: the number of segments of these partitions.
        part, parts: which of how many parts of these segments, in their order.
        copy: the prefix of the whole copy.
    """

    tables: TablesToRead
    version: int | None
    where: Sequence[Condition]
    partitions: pa.Table
    segments: int
    part: int
    parts: int
    copy: ObjectPath

    def read(self) -> list[SegmentToCompare]:
        where = [*self.where, *scope_of({"wanted": self.partitions}, PARTITION_KEY)]
        rows = self.tables.read(SEGMENTS, ["source", *SegmentToCompare.names()], where, self.version)
        rows = rows.filter(pa.array(positions_in(rows, self.partitions, PARTITION_KEY) >= 0))
        if rows.num_rows != self.segments:
            raise UsageError(
                f"a worker finds {rows.num_rows:,} of {counted(self.segments, 'segment')} in the catalog; "
                "mount the same catalog at the same place for every worker"
            )
        rows = rows.sort_by([(name, "ascending") for name in ("topic", "partition", "base_offset")])
        begin, end = (self.segments * part // self.parts for part in (self.part, self.part + 1))
        return SegmentToCompare.of_arrow(rows.slice(begin, end - begin))


@dataclass(frozen=True, slots=True)
class ExpectedInStore:
    """The segments of a source that should have a copy.

    Attributes:
        counts: keys of partitions with the number of their segments, in order.
    """

    source: str
    tables: TablesToRead
    version: int | None
    where: Sequence[Condition]
    counts: pa.Table

    @classmethod
    def of(cls, request: CopyRequest, tables: TablesToRead, path: str) -> ExpectedInStore:
        """The segments in the catalog whose copies in the store a user asked about; `path` is the catalog's."""
        version = tables.version(SEGMENTS)
        present: list[Condition] = [PRESENT, *([Among("active", (False,))] if request.inactive_only else [])]
        counts = tables.counts(SEGMENTS, PARTITION_KEY, present, version)
        recorded = {str(source) for source in pc.unique(counts["source"]).to_pylist()}
        named = () if request.source is None else (request.source,)
        sources = sources_in_catalog(named, recorded)
        if len(sources) > 1:
            raise UsageError(
                f"no --source, and the catalog {path} has {', '.join(sources)}: name the one that was copied"
            )
        topics = [
            topic for topic in map(str, pc.unique(counts["topic"]).to_pylist()) if request.topics.fullmatch(topic)
        ]
        of_source = Among("source", sources)
        wanted = rows_where(counts, [of_source, Among("topic", topics)])
        if not wanted.num_rows:
            raise UsageError(
                f"{path}: no segment of a topic that matches {request.topics.pattern}; give another --topics"
            )
        wanted = wanted.sort_by([(name, "ascending") for name in PARTITION_KEY])
        return cls(sources[0], tables, version, [of_source, *present], wanted)

    @property
    def segments(self) -> int:
        return int(pc.sum(self.counts[ROWS.name]).as_py())

    def shares(self, copy: ObjectPath, cores: int) -> Iterator[ShareInStore]:
        """Shares of about equal size, in order."""
        size = share_rows_of(self.counts, cores, _SHARE_SEGMENTS)
        counts = self.counts[ROWS.name].to_numpy()
        for start, end in cut_by_weight(counts, size):
            segments = int(counts[start:end].sum())
            parts = -(-segments // size)  # more than one for a partition with more segments
            for part in range(parts):
                yield ShareInStore(
                    tables=self.tables,
                    version=self.version,
                    where=self.where,
                    partitions=self.counts.select(PARTITION_KEY).take(pa.array(range(start, end), pa.int64())),
                    segments=segments,
                    part=part,
                    parts=parts,
                    copy=copy,
                )


def _compare_copies(shares: Iterable[ShareInStore]) -> Iterator[ItemRows]:
    """Rows of `COMPARED`."""
    client = connect()  # before there are threads: it takes half a second, and all threads share one client
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for share in shares:
            segments = share.read()
            objects = [
                share.copy
                / TopicPartition(segment.topic, segment.partition).directory
                / segment_file(segment.base_offset, LOG_SUFFIX)
                for segment in segments
            ]
            yield _compared(share, segments, objects, list(threads.map(partial(_ask, client), objects)))


def _ask(client: Any, path: ObjectPath) -> HeadAnswer:
    try:
        return ask_for_head(client, path)
    except OSError as error:
        raise NoAnswerError(f"{path}: {error}") from error


def _compared(
    share: ShareInStore, segments: list[SegmentToCompare], objects: list[ObjectPath], answers: list[HeadAnswer]
) -> ItemRows:
    counts: dict[CopyVerdict, Counter[str]] = {}
    rows: list[dict[str, Any]] = []
    for segment, path, asked in zip(segments, objects, answers, strict=True):
        verdict, detail = judge_copy_in_store(segment, asked)
        counts.setdefault(verdict, Counter()).update(segments=1, log_bytes=segment.log_bytes or 0)
        if verdict is CopyVerdict.AS_UPLOADED:
            continue
        row = CopyRow(
            source=share.partitions["source"][0].as_py(),
            topic=segment.topic,
            partition=segment.partition,
            base_offset=segment.base_offset,
            verdict=verdict.value,
            object=str(path),
            detail=detail,
        )
        rows.append({"problem" if verdict in PROBLEMS else "unknown": row.values()})
    rows += [{"count": CopiesRow(verdict=verdict.value, **sums).values()} for verdict, sums in counts.items()]
    return ItemRows(segments=len(segments), rows=rows)


@dataclass(frozen=True, slots=True)
class ComparedInStore:
    """
    Attributes:
        staged: rows of `COMPARED`.
        counts: by verdict, without verdicts that no copy has.
        requests: to the store.
    """

    staged: StagedRows
    source: str
    counts: Mapping[CopyVerdict, CopiesRow]
    requests: Requests

    @classmethod
    def of(cls, staged: StagedRows, source: str, requests: Requests) -> ComparedInStore:
        rows = staged.rows("count").group_by("verdict")
        names = ("segments", "log_bytes")
        sums = rows.aggregate([(name, "sum") for name in names]).rename_columns(["verdict", *names])
        counts = {CopyVerdict(row.verdict): row for row in CopiesRow.of_arrow(sums)}
        return cls(staged, source, counts, requests)

    def segments(self, *verdicts: CopyVerdict) -> int:
        """The number of copies with one of these verdicts."""
        return sum(self.counts[verdict].segments for verdict in verdicts if verdict in self.counts)

    def log_bytes(self, verdict: CopyVerdict) -> int:
        return self.counts[verdict].log_bytes if verdict in self.counts else 0

    def rows(self, kind: str) -> Iterator[CopyRow]:
        """The copies of one kind (`problem` or `unknown`), in order."""
        for batch in self.staged.batches(kind):
            yield from CopyRow.of_arrow(batch)


def compare_with_store(request: CopyRequest, backend: Backend) -> ComparedInStore:
    """Ask the store for each segment's object, and compare what it says with the catalog. Nothing is written."""
    tables, path, engine = backend.catalog.tables.for_workers(), backend.catalog.path, backend.engine
    if tables is None:
        raise UsageError(
            f"{request.copy}: Spark alone reaches the catalog {path}, and executors cannot; "
            "name a catalog in a directory or at s3://"
        )
    begin_phase("reading the catalog")
    expected = ExpectedInStore.of(request, tables, path)
    try:
        ensure_any_object(connect(), request.copy)
    except OSError as error:
        raise UsageError(f"{request.copy}: {error}") from error
    units = [[share] for share in expected.shares(request.copy, engine.cores)]
    name, is_small = f"{request.context.run_id()}-copies", expected.segments <= _FEW_SEGMENTS
    staged = run_comparison(
        Work(name, units, _compare_copies, COMPARED, is_small=is_small),
        engine,
        "asking the store",
        so_far=lambda done: f"{done.segments:,} of {counted(expected.segments, 'segment')}",
        segments=expected.segments,
    )
    return ComparedInStore.of(staged, expected.source, request.context.requests(engine.requests()))
