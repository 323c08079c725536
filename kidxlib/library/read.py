"""The records of a log dir, a partition or a segment as a consumer gets them: a stream of Arrow record batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kidxlib.errors import UsageError
from kidxlib.indexing.directories import existing_index_dir
from kidxlib.indexing.remote_logs import RemoteOptions
from kidxlib.indexing.source import parse_topics
from kidxlib.jit.processor import cores
from kidxlib.reading.batches import batch_rows_of, count_of
from kidxlib.reading.damage import OnDamage, TakeDamage, fail_on, warn_of
from kidxlib.reading.gaps_between_logs import LogRead, gaps_of, known_end_of
from kidxlib.reading.plan import ReadPlan, plan_reads, warn_of_left_out
from kidxlib.reading.request import Offsets, Paths, Times, ensure_isolation_means_something, read_request, read_schema
from kidxlib.reading.rows import rows_of
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.unread_offsets import lines_of_left_out
from kidxlib.records.arrow.schema import CONSUMED
from kidxlib.run.context import existing_catalog_tables

_log: Final = logging.getLogger(__name__)

#: More threads take more memory, and are seldom busy, as a single thread walks over the batches for them.
_THREADS_MAX: Final = 4


def read(
    path: Paths,
    *,
    topics: str = ".*",
    offsets: Offsets | None = None,
    times: Times | None = None,
    isolation: str = "read_uncommitted",
    mode: str = "records",
    columns: Iterable[str] | None = None,
    include_headers: bool = False,
    index_dir: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | None = None,
    to_log_end: bool | None = None,
    on_damage: OnDamage = "fail",
    threads: int | None = None,
    layout: str | None = None,
    tiered_metadata: Sequence[str | os.PathLike[str]] = (),
) -> pa.RecordBatchReader:
    """The records of a log dir, one partition or one segment as a consumer gets them, by topic, partition and offset:
    without markers of transactions, from the log start offset to the high watermark. docs/read.md has more.

    Args:
        path: a log dir, a partition's directory, a segment's log, a bucket of tiered storage, or several directories.
        topics: a regular expression for the full names of topics. Topics that brokers keep for themselves are read only
            if it spells their names, or if the path or `offsets` names their partitions.
        offsets: from the first on to below the second, None for no limit; or such a range for each partition by the
            name of its directory, and then no other partition is read.
        times: a range of timestamps in the same form, in ms since the epoch, or in ISO 8601 with a zone.
        isolation: `read_committed` leaves out aborted records, and all from the last stable offset on; logs of the
            partitions are scanned first.
        mode: `batches` gives a row for each batch; docs/read.md has its columns.
        columns: only these, in this order; None for all but `headers`, or all with `include_headers`.
        index_dir: the tree with the index files; None if they are beside the logs, or where the catalog has them.
        catalog: a catalog that has the logs, a directory or in S3, by kidx[catalog]. Its facts of logs that have not
            changed tell which times need not be read, and which logs need not be scanned for transactions.
        to_log_end: read beyond the high watermark, too. None to end there, with a warning by `logging`; but all is read
            if this is the only replica and no broker is at work on it.
        on_damage: `fail` ends with an error; `skip` warns by `logging` and goes on; a function is called with each
            `Damage`, and reading goes on.
        threads: besides the calling one; None for as many as there are cores, 4 at most.
        layout, tiered_metadata: for a bucket: `local` or `aiven`, log dirs with its metadata (docs/tiered-source.md).

    Returns:
        A reader of record batches of at most 65,536 records, or 16 MiB of them. Its columns are those of Spark's Kafka
        source, in that order; `columns` selects some:
        - `key`, `value`: binary; null is null, and a null value is a tombstone.
        - `topic`: string. `partition`: int32. `offset`: int64. `timestamp`: timestamp in ms, UTC; −1 ms is none.
        - `timestampType`: int32; −1 none, 0 CreateTime, 1 LogAppendTime.
        - `headers`: list of structs of `key` (string) and `value` (binary); null if there are none.

    Raises:
        UsageError, CheckpointError, CatalogError: an argument is wrong, there is no segment or no catalog, or the
            catalog or a checkpoint file cannot be read.
        DamagedLogError, LogChangedError, OSError: (while the reader is read, after all records before) a log is
            damaged, was replaced, cut or rewritten since it was listed, or cannot be read. One that grows is no error.
    """
    schema = read_schema(mode, columns, include_headers=include_headers)
    where = _Where(index_dir, catalog, layout, tuple(os.fspath(log_dir) for log_dir in tiered_metadata))
    asked = _Asked(path, topics, offsets, times, isolation, where, to_log_end, on_damage, threads)
    return pa.RecordBatchReader.from_batches(schema, (asked.batches if mode == "batches" else asked.records)(schema))


def count(
    path: Paths,
    *,
    topics: str = ".*",
    offsets: Offsets | None = None,
    times: Times | None = None,
    isolation: str = "read_uncommitted",
    index_dir: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | None = None,
    to_log_end: bool | None = None,
    on_damage: OnDamage = "fail",
    threads: int | None = None,
    layout: str | None = None,
    tiered_metadata: Sequence[str | os.PathLike[str]] = (),
) -> int:
    """How many records `read` gives, from the headers of batches alone. Checksums are not checked. Whole batches are
    read at the ends of ranges of offsets, if headers do not have the number (compressed ones of magic 0 and 1), and if
    `times` are asked for.

    Args:
        path, topics, offsets, times, isolation, index_dir, to_log_end, on_damage, threads, layout, tiered_metadata: as
            for `read`.
        catalog: as for `read`; logs that have not changed since, and of which all is asked for, are not opened.

    Raises:
        UsageError, CheckpointError, CatalogError, DamagedLogError, LogChangedError, OSError: as `read`.
    """
    where = _Where(index_dir, catalog, layout, tuple(os.fspath(log_dir) for log_dir in tiered_metadata))
    asked = _Asked(path, topics, offsets, times, isolation, where, to_log_end, on_damage, threads)
    reads = asked.plan().reads
    if times is None:
        logs: list[LogRead] = []
        counted = count_of(
            reads, asked.take_damage, goes_on=asked.goes_on, threads=asked.threads_to_use, on_end=logs.append
        )
        _warn_of_gaps(logs)
        return counted
    known = [end for read in reads if (end := known_end_of(read)) is not None]
    others = [read for read in reads if read.records is None]
    rows = asked.rows(others, pa.schema([CONSUMED.field("offset")]), known)
    return sum(read.records or 0 for read in reads) + sum(batch.num_rows for batch in rows)


@dataclass(frozen=True, slots=True)
class _Where:
    """The places of other files than logs, and the layout of a bucket; see `read`."""

    index_dir: str | os.PathLike[str] | None
    catalog: str | os.PathLike[str] | None
    layout: str | None
    tiered_metadata: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of `read`."""

    path: Paths
    topics: str
    offsets: Offsets | None
    times: Times | None
    isolation: str
    where: _Where
    to_log_end: bool | None
    on_damage: OnDamage
    threads: int | None

    def plan(self) -> ReadPlan:
        where = self.where
        request = read_request(
            self.path,
            topics=parse_topics(self.topics, "topics"),
            offsets=self.offsets,
            times=self.times,
            isolation=self.isolation,
            index_dir=None if where.index_dir is None else existing_index_dir("index_dir", os.fspath(where.index_dir)),
            to_log_end=self.to_log_end,
            remote=RemoteOptions(where.layout, where.tiered_metadata),
        )
        catalog = None if where.catalog is None else existing_catalog_tables("catalog", os.fspath(where.catalog))
        plan = plan_reads(request, goes_on=self.goes_on, threads=self.threads_to_use, catalog=catalog)
        _log.info("%s", plan)
        warn_of_left_out(plan)
        return plan

    def records(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return self.rows(self.plan().reads, schema)

    def rows(
        self, reads: Sequence[SegmentRead], schema: pa.Schema, known: Iterable[LogRead] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Rows of segments; gaps are told between their logs and those in `known`, which need not be read."""
        logs = list(known)
        rows = rows_of(
            reads, schema, self.take_damage, goes_on=self.goes_on, threads=self.threads_to_use, on_end=logs.append
        )
        return _with_gap_warnings(rows, logs)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        ensure_isolation_means_something("batches", self.isolation)
        reads, logs = self.plan().reads, list[LogRead]()
        rows = batch_rows_of(reads, schema, self.take_damage, goes_on=self.goes_on, on_end=logs.append)
        return _with_gap_warnings(rows, logs)

    @property
    def goes_on(self) -> bool:
        return self.on_damage != "fail"

    @property
    def take_damage(self) -> TakeDamage:
        if self.on_damage == "fail":
            return fail_on
        if self.on_damage == "skip":
            return warn_of
        if not callable(self.on_damage):
            raise UsageError(f"on_damage {self.on_damage!r}: expected 'fail', 'skip' or a function")
        return self.on_damage

    @property
    def threads_to_use(self) -> int:
        if self.threads is None:
            return min(cores(), _THREADS_MAX)
        if self.threads < 1:
            raise UsageError(f"threads {self.threads}: expected 1 or more")
        return self.threads


def _with_gap_warnings(rows: Iterator[pa.RecordBatch], logs: Sequence[LogRead]) -> Iterator[pa.RecordBatch]:
    """The rows, and then a warning of gaps between `logs`: those that were read to their ends, once all rows were
    taken.
    """
    yield from rows
    _warn_of_gaps(logs)


def _warn_of_gaps(logs: Sequence[LogRead]) -> None:
    for line in lines_of_left_out(gaps_of(logs)):
        _log.warning("%s", line)
