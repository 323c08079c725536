"""Compares a copy with its original, file by file. `_CopyFindings` makes the findings on a partition of how its
files compare; `compare_copy`, below, compares all partitions and the log dirs' own files.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kidxlib.audit.gaps import FACTS, GapEvidence, gaps_in
from kidxlib.catalog.results import COMPARED_COPY, FilePairRow, LogPairRow
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, StagedRows, Work, reads_little
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_kraft_snapshot,
    parse_segment_file,
    parse_segment_log,
    parse_snapshot,
    segment_file,
)
from kidxlib.format.topic_partition import METADATA_TOPIC, TopicPartition
from kidxlib.index.transaction import first_abort
from kidxlib.indexing.bins import bins_of
from kidxlib.log.metadata_replica import QUORUM_STATE
from kidxlib.operations.compare.comparison import (
    Comparison,
    ComparisonFinding,
    FindingKind,
    PartitionComparison,
    comparison_verdict,
    run_comparison,
)
from kidxlib.operations.compare.file_pairs import FilePairs, FileVerdict, LogPair, compare_files, compare_log_pair
from kidxlib.operations.compare.place import (
    ComparedPlace,
    DirectoryPair,
    ListedDirectory,
    MetadataOfPlaces,
    checkpoint_only_findings,
    early_end_findings,
    log_dir_file_findings,
    log_start_findings,
    other_origin_findings,
    pair_directories,
)
from kidxlib.operations.compare.replica import ReplicaFindings, compare_replica_directories
from kidxlib.recovery.outcome import Status
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.text.words import counted

#: A KRaft node that starts makes the index files of all segments of its metadata log anew (`KafkaRaftLog.createLog`:
#: the recovery point is 0, and no shutdown is clean).
_CLUSTER_METADATA: Final = f"{METADATA_TOPIC}-0"
#: So many zeros in a row are taken for a hole, and not for bytes that happen to be zero.
_ZEROS: Final = 512
#: The name of the source that both sides together are, where gaps between logs are looked for.
_BOTH: Final = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPartition(DirectoryPair):
    """
    Attributes:
        logs: in the order of base offsets.
        files: files beside the logs that differ.
    """

    logs: Sequence[LogPairRow]
    files: Sequence[FilePairRow]


@dataclass(frozen=True, slots=True)
class _Extent:
    """The bytes of a log that both sides have, without zeros at its end.

    Attributes:
        differs: the logs have other bytes, and not only ends of their own.
    """

    one: int
    other: int
    differs: bool

    @classmethod
    def of(cls, row: LogPairRow) -> _Extent:
        one, other = row.one_bytes or 0, row.other_bytes or 0
        ends_one = one if not row.one_zeros else row.one_valid_bytes or 0
        ends_other = other if not row.other_zeros else row.other_valid_bytes or 0
        if row.first_difference is None:
            return cls(ends_one, ends_other, False)
        if _ZEROS <= (row.other_zeros_there or 0) == other - row.first_difference:
            return cls(ends_one, row.first_difference, False)
        if _ZEROS <= (row.one_zeros_there or 0) == one - row.first_difference:
            return cls(row.first_difference, ends_other, False)
        return cls(ends_one, ends_other, True)


def _logs_end(logs: Sequence[LogPairRow], side: str) -> int | None:
    """The log end offset of a side (`one` or `other`); None if it has no log, or its last segment was not read."""
    rows = [row for row in logs if getattr(row, f"{side}_bytes") is not None]
    if not rows or rows[-1].problem is not None:
        return None
    end: int | None = getattr(rows[-1], f"{side}_end_offset")
    return rows[-1].base_offset if end is None else max(end, rows[-1].base_offset)


def _same_to_offset(logs: Sequence[LogPairRow]) -> int | None:
    """The offset up to which both sides are the same; None if they share nothing."""
    same_to = None
    for row in logs:
        if row.one_bytes is None or row.other_bytes is None or row.problem is not None:
            break
        same_to = row.same_end_offset if row.same_end_offset is not None else same_to
        extent = _Extent.of(row)
        if extent.differs or extent.one != extent.other:
            break
    return same_to


def _same_end(row: LogPairRow) -> int:
    """The offset up to which both sides have the same batches of a segment."""
    return row.base_offset if row.same_end_offset is None else row.same_end_offset


class _CopyFindings:
    def __init__(self, compared: ComparedPartition) -> None:
        self._compared = compared
        self._name = compared.one.name
        self._logs = compared.logs
        self._one = [row for row in self._logs if row.one_bytes is not None]
        self._other = [row for row in self._logs if row.other_bytes is not None]
        self._one_last_base = self._one[-1].base_offset if self._one else -1
        self._other_last_base = self._other[-1].base_offset if self._other else -1
        self._one_end, self._other_end = _logs_end(self._logs, "one"), _logs_end(self._logs, "other")
        self._other_is_empty = not any(row.other_valid_bytes or row.problem for row in self._other)
        self._behind: list[LogPairRow] = []
        self._elsewhere = next(self._cut_elsewhere(), None)

    @property
    def is_cut_elsewhere(self) -> bool:
        """Whether B has offsets in other logs than A, as if a cleaner merged segments between two copies."""
        return self._elsewhere is not None

    def findings(self, by_offset: ReplicaFindings | None) -> list[ComparisonFinding]:
        """All findings. `by_offset` has those on the batches where B's segments are cut elsewhere."""
        of_logs = self._log_findings() if by_offset is None else self._batch_findings(by_offset)
        return [*self._origin_findings(), *of_logs, *self._file_findings()]

    def _cut_elsewhere(self) -> Iterator[tuple[LogPairRow, LogPairRow]]:
        """The logs of A with offsets that B has in a log of another name, paired with that log."""
        for row in self._one:
            extent = _Extent.of(row)
            if row.other_bytes is not None and (extent.differs or extent.one <= extent.other):
                continue
            first, end = _same_end(row), row.one_end_offset or row.base_offset
            for candidate in self._other:
                if candidate is not row and candidate.base_offset < end and (candidate.other_end_offset or 0) > first:
                    yield row, candidate

    def _batch_findings(self, by_offset: ReplicaFindings) -> Iterator[ComparisonFinding]:
        """The findings on logs that are cut elsewhere: their batches are compared, whatever the logs' names."""
        assert self._elsewhere is not None
        row, elsewhere = self._elsewhere
        on_batches = by_offset.findings()
        offsets = _offsets(
            max(_same_end(row), elsewhere.base_offset), min(row.one_end_offset or 0, elsewhere.other_end_offset or 0)
        )
        name, name_elsewhere = (segment_file(log.base_offset, LOG_SUFFIX) for log in (row, elsewhere))
        where = f"A has {offsets} in {name}, B in {name_elsewhere}"
        is_same = all(finding.kind in (FindingKind.BEHIND, FindingKind.ONLY_IN_B) for finding in on_batches)
        same = "the same batches by offset" if is_same else "see the other lines for the batches"
        yield self._finding(
            FindingKind.OTHER_SEGMENTS,
            detail=f"segments are cut elsewhere, by a cleaner or on another replica: {where}; {same}",
        )
        yield from on_batches
        for log in self._logs:
            yield from self._growth_findings(log)

    @property
    def _ends_earlier(self) -> bool:
        return self._one_end is not None and self._other_end is not None and self._one_end > self._other_end

    def _origin_findings(self) -> Iterator[ComparisonFinding]:
        one, other = self._compared.one, self._compared.other
        if (other_topic := self._compared.other_topic) is not None:
            yield self._finding(FindingKind.OTHER_ORIGIN, detail=other_topic)
        same = [row for row in self._logs if row.is_same_file]
        if other.link is not None and one.link is None:
            yield self._finding(
                FindingKind.NO_COPY, detail=f"{other.path} is a symlink to {other.link}; copy what it names"
            )
        elif same:
            yield self._finding(
                FindingKind.NO_COPY,
                detail=f"{counted(len(same), 'log')} of B and of A are one file (hard links): what damages one damages "
                "both; copy the bytes",
            )

    def _log_findings(self) -> Iterator[ComparisonFinding]:
        lacked: list[LogPairRow] = []
        for row in self._logs:
            if lacked and (row.other_bytes is not None or row.one_bytes is None):
                yield self._lacks_finding(lacked)
                lacked = []
            if row.problem is not None:
                yield self._finding(FindingKind.NOT_COMPARABLE, row, detail=row.problem)
            elif row.other_bytes is None:
                if row.base_offset > self._other_last_base >= 0 and not self._other_is_empty:
                    self._behind.append(row)
                elif row.one_bytes == 0 and self._other:
                    yield self._finding(FindingKind.FILE_MISSING, row, detail="B has no such log, which is empty in A")
                else:
                    lacked.append(row)
            elif row.one_bytes is None:
                yield self._only_in_other_finding(row)
            else:
                yield from self._pair_findings(row)
        if lacked:
            yield self._lacks_finding(lacked)
        if self._behind:
            yield self._behind_finding()

    def _pair_findings(self, row: LogPairRow) -> Iterator[ComparisonFinding]:
        extent = _Extent.of(row)
        yield from self._growth_findings(row)
        if extent.differs:
            yield self._differs_finding(row)
        elif extent.one > extent.other:
            yield from self._damage_findings(row, "A", row.one_damaged, row.one_repeated)
            if self._other_is_empty or row.base_offset != self._other_last_base:
                yield self._lacks_finding([row])
            else:
                self._behind.append(row)
        elif extent.other > extent.one:
            damage = list(self._damage_findings(row, "B", row.other_damaged, row.other_repeated))
            yield from damage or [self._longer_finding(row, extent)]

    def _growth_findings(self, row: LogPairRow) -> Iterator[ComparisonFinding]:
        grew = [f"{side} grew by {by:,} bytes" for side, by in (("A", row.one_grew), ("B", row.other_grew)) if by]
        if grew:
            detail = f"{' and '.join(grew)} meanwhile, which were not compared"
            yield self._finding(FindingKind.NOT_COMPARED, row, detail=detail)

    def _differs_finding(self, row: LogPairRow) -> ComparisonFinding:
        shared, count = min(row.one_bytes or 0, row.other_bytes or 0), row.differing_bytes or 0
        first = _same_end(row)
        batch = f", in the batch of {_offsets(first, row.batch_end_offset)}" if row.batch_end_offset else ""
        differ = f"{counted(count, 'byte')} of {shared:,} {'differs' if count == 1 else 'differ'}"
        said = [f"{differ}, the first at byte {row.first_difference or 0:,}{batch}"]
        for side, zeros, others in (
            ("B", row.other_zeros_there, row.one_zeros_there),
            ("A", row.one_zeros_there, row.other_zeros_there),
        ):
            if zeros is not None and zeros >= _ZEROS > (others or 0):
                said.append(f"there {side} has {zeros:,} zeros")
        said.append(_which_is_damaged(row))
        said.append(f"same up to offset {first} of {self._one_end}")
        return self._finding(
            FindingKind.DIFFERS,
            row,
            detail="; ".join(said),
            first_offset=first,
            last_offset=None if row.one_end_offset is None else row.one_end_offset - 1,
            bytes=row.differing_bytes,
        )

    def _damage_findings(
        self, row: LogPairRow, side: str, damaged: int | None, repeated: int | None
    ) -> Iterator[ComparisonFinding]:
        if repeated is not None:
            detail = f"{side} repeats offsets of earlier batches at byte {repeated:,}"
            yield self._finding(FindingKind.DIFFERS, row, detail=detail)
        elif damaged is not None:
            detail = f"{side} is damaged at byte {damaged:,}, behind all that the other side has"
            yield self._finding(FindingKind.NOT_COMPARABLE, row, detail=detail)

    def _lacks_finding(self, rows: Sequence[LogPairRow]) -> ComparisonFinding:
        first = _same_end(rows[0])
        end = max((row.one_end_offset or row.base_offset for row in rows), default=first)
        whole = [row for row in rows if row.other_bytes is None]
        logs = [segment_file(row.base_offset, LOG_SUFFIX) for row in rows[:3]]
        names = ", ".join(logs) + (" …" if len(rows) > 3 else "")
        what = f"B has no {names}" if whole else f"in B {names} ends at byte {_Extent.of(rows[0]).other:,}"
        return self._finding(
            FindingKind.LACKS,
            detail=f"{_offsets(first, end)}, {_amount(rows)}; {what}{self._aside(first, end)}",
            first_offset=first,
            last_offset=end - 1,
            records=_records(rows),
            bytes=_bytes(rows),
        )

    def _aside(self, first: int, end: int) -> str:
        """A hint at logs set aside in B that have these offsets."""
        remedy = LogsAside().remedy(self._compared.other.path, first, end)
        return "" if remedy is None else f"; {remedy}"

    def _behind_finding(self) -> ComparisonFinding:
        first, rows = self._behind[0], self._behind
        end = self._other_end if first.other_bytes is None else first.same_end_offset
        at = first.base_offset if end is None else end
        until = self._one_end or at
        torn = ""
        if first.other_bytes is not None:
            cut = _Extent.of(first).other - (first.same_bytes or 0)
            torn = f"; B ends amid a batch, of which it has {cut:,} bytes" if cut else ""
            if first.other_zeros_there and first.first_difference is not None:
                torn += f"; B has zeros from byte {first.first_difference:,} on: preallocated, or lost"
        return self._finding(
            FindingKind.BEHIND,
            detail=f"B ends at offset {at} of {until}: {counted(until - at, 'offset')}, {_amount(rows)}{torn}"
            f"{self._aside(at, until)}",
            first_offset=at,
            last_offset=until - 1,
            records=_records(rows),
            bytes=_bytes(rows),
            segments=sum(row.base_offset >= at and _Extent.of(row).one > 0 for row in rows),
        )

    def _only_in_other_finding(self, row: LogPairRow) -> ComparisonFinding:
        end = row.other_end_offset or row.base_offset
        within = [log for log in self._one if log.base_offset < row.base_offset < (log.one_end_offset or 0)]
        if within:
            detail = f"A has its offsets in {segment_file(within[-1].base_offset, LOG_SUFFIX)}: other segments"
            return self._finding(FindingKind.DIFFERS, row, detail=f"{detail}; --as replica compares batches")
        where = "beyond the end of A" if row.base_offset > self._one_last_base else "which A lacks"
        detail = f"{_offsets(row.base_offset, end)}, {where}" if end > row.base_offset else f"empty, {where}"
        return self._finding(
            FindingKind.ONLY_IN_B,
            row,
            detail=detail,
            first_offset=row.base_offset,
            last_offset=end - 1,
            records=row.other_beyond_records,
            bytes=row.other_bytes,
        )

    def _longer_finding(self, row: LogPairRow, extent: _Extent) -> ComparisonFinding:
        first, more = _same_end(row), extent.other - extent.one
        end = row.other_end_offset or first
        later = [log.base_offset for log in self._one if first <= log.base_offset < end]
        if later:
            detail = f"B goes on with {_offsets(first, end)}, which A has from {segment_file(later[0], LOG_SUFFIX)} on"
            return self._finding(
                FindingKind.DIFFERS, row, detail=detail, first_offset=first, last_offset=end - 1, bytes=more
            )
        if end <= first:
            detail = f"{more:,} bytes more that are no whole batch"
        else:
            where = "beyond the end of A" if row.base_offset == self._one_last_base else "which A lacks"
            detail = f"{_offsets(first, end)}, {where}"
        return self._finding(
            FindingKind.ONLY_IN_B, row, detail=detail, first_offset=first, last_offset=end - 1, bytes=more
        )

    def _file_findings(self) -> Iterator[ComparisonFinding]:
        for name, missing in self._missing_files().items():
            suffix = f"{counted(len(missing), 'file')} {name}" if len(missing) > 1 else missing[0]
            yield self._finding(FindingKind.FILE_MISSING, detail=f"B has no {suffix}")
        for name in self._files_only_in_other():
            yield ComparisonFinding(
                kind=FindingKind.ONLY_IN_B, directory=self._name, file=name, detail="A has no such file"
            )
        for row in self._compared.files:
            kind = self._kind_of_file(row)
            if kind is not None:
                yield ComparisonFinding(kind=kind, directory=self._name, file=row.name, detail=row.detail)

    def _missing_files(self) -> Mapping[str, list[str]]:
        """The files beside the logs that only A has, by suffix. The findings on logs that B lacks cover these logs'
        files.
        """
        of_other = {row.base_offset for row in self._other}
        lacked = {row.base_offset for row in self._logs} - of_other
        missing: dict[str, list[str]] = {}
        for name in sorted(set(_beside_logs(self._compared.one)) - set(self._compared.other.files)):
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[0] in lacked:
                continue
            suffix = name if parsed is None else parsed[1]
            if self._is_snapshot_beyond(name) or (suffix == TRANSACTION_INDEX_SUFFIX and self._aborts_beyond(name)):
                continue  # B ends before it
            missing.setdefault(suffix, []).append(name)
        return missing

    def _files_only_in_other(self) -> Iterator[str]:
        """Files beside the logs that B alone has, as a `.swap` that a broker would put in a log's place; not those of
        logs that B alone has, nor snapshots that were written beyond the end of A.
        """
        alone = {row.base_offset for row in self._other} - {row.base_offset for row in self._one}
        for name in sorted(set(_beside_logs(self._compared.other)) - set(self._compared.one.files)):
            parsed, offset = parse_segment_file(name), _snapshot_offset(name)
            is_of_log = parsed is not None and parsed[0] in alone
            if not is_of_log and (offset is None or self._one_end is None or offset <= self._one_end):
                yield name

    def _kind_of_file(self, row: FilePairRow) -> FindingKind | None:
        """The kind of finding on a file that differs; None if another finding covers it."""
        parsed, verdict = parse_segment_file(row.name), FileVerdict(row.verdict)
        if verdict is FileVerdict.UNREADABLE:
            return FindingKind.NOT_COMPARABLE
        if row.name == QUORUM_STATE:
            return FindingKind.REWRITTEN
        if row.name == PARTITION_METADATA and self._compared.other_topic is not None:
            return None
        if parsed is not None and parsed[1] in INDEX_SUFFIXES:
            return self._kind_of_index(row, verdict, *parsed)
        if row.name == LEADER_EPOCH_CHECKPOINT and row.same_to_offset is not None:
            if verdict is FileVerdict.LONGER and row.same_to_offset >= (self._one_end or 0):
                return FindingKind.ONLY_IN_B
            if verdict is not FileVerdict.LONGER and row.same_to_offset >= (self._other_end or 0):
                return FindingKind.FILE_BEHIND
        return FindingKind.FILE_DIFFERS

    def _kind_of_index(
        self, row: FilePairRow, verdict: FileVerdict, base_offset: int, suffix: str
    ) -> FindingKind | None:
        """The kind of finding on an index file that differs; None if the log's finding covers it."""
        if self._name == _CLUSTER_METADATA:
            return FindingKind.REWRITTEN
        if verdict is FileVerdict.DIFFERS:
            return FindingKind.FILE_DIFFERS
        if verdict is FileVerdict.SHORTER and self._ends_earlier and base_offset == self._other_last_base:
            is_of_end = suffix != TRANSACTION_INDEX_SUFFIX or (row.same_to_offset or 0) >= (self._other_end or 0)
            return FindingKind.FILE_BEHIND if is_of_end else FindingKind.FILE_DIFFERS
        extents = [_Extent.of(log) for log in self._logs if log.base_offset == base_offset]
        log_is_shorter = any(extent.one > extent.other for extent in extents)
        log_is_longer = any(extent.other > extent.one for extent in extents)
        if log_is_shorter if verdict is FileVerdict.SHORTER else log_is_longer:
            return None
        is_same_log = not (log_is_shorter or log_is_longer)
        return FindingKind.REWRITTEN if base_offset == self._one_last_base and is_same_log else FindingKind.FILE_DIFFERS

    def _is_snapshot_beyond(self, name: str) -> bool:
        """Whether the file is a snapshot that A wrote after B was copied."""
        offset = _snapshot_offset(name)
        if offset is None or self._other_end is None:
            return False
        return offset > self._other_end or (self._ends_earlier and offset == self._other_end)

    def _aborts_beyond(self, name: str) -> bool:
        """Whether all aborts in a transaction index of A lie beyond the end of B: a broker makes the file with the
        first of them.
        """
        try:
            first = first_abort(self._compared.one.path / name)
        except OSError:
            return False
        return self._ends_earlier and first is not None and first >= (self._other_end or 0)

    def _finding(
        self,
        kind: FindingKind,
        row: LogPairRow | None = None,
        *,
        detail: str,
        first_offset: int | None = None,
        last_offset: int | None = None,
        records: int | None = None,
        bytes: int | None = None,
        segments: int | None = None,
    ) -> ComparisonFinding:
        return ComparisonFinding(
            kind=kind,
            directory=self._name,
            file=None if row is None else segment_file(row.base_offset, LOG_SUFFIX),
            first_offset=first_offset,
            last_offset=last_offset,
            records=records,
            bytes=bytes,
            segments=segments,
            detail=detail,
        )


def _beside_logs(directory: ListedDirectory) -> list[str]:
    """The files that a copy must have besides logs; not those that a broker will remove."""
    return [name for name in directory.files if not name.endswith((LOG_SUFFIX, ".deleted", ".cleaned"))]


def _snapshot_offset(name: str) -> int | None:
    """The offset in the name of a producer snapshot or of a KRaft snapshot."""
    kraft = parse_kraft_snapshot(name)
    return parse_snapshot(name) if kraft is None else kraft.end_offset


def _records(rows: Sequence[LogPairRow]) -> int | None:
    records = [row.one_beyond_records for row in rows]
    return None if None in records else sum(count or 0 for count in records)


def _bytes(rows: Sequence[LogPairRow]) -> int:
    extents = [_Extent.of(row) for row in rows]
    return sum(extent.one - extent.other for extent in extents)


def _amount(rows: Sequence[LogPairRow]) -> str:
    records = _records(rows)
    of_records = "an unknown number of records" if records is None else counted(records, "record")
    return f"{of_records}, {counted(_bytes(rows), 'byte')}"


def _offsets(first: int, end: int) -> str:
    return f"offsets {first}–{end - 1}" if end - 1 > first else f"offset {first}"


def _which_is_damaged(row: LogPairRow) -> str:
    """Which side is damaged, by checksums, by bytes that are no batch, and by offsets that go back."""
    one = _damaged_at(row.one_damaged, row.one_repeated, row.one_valid_bytes, row.one_bytes, row.one_zeros)
    other = _damaged_at(row.other_damaged, row.other_repeated, row.other_valid_bytes, row.other_bytes, row.other_zeros)
    if one is not None and other is not None:
        return f"both are damaged, A at byte {one:,}, B at byte {other:,}"
    if one is None and other is None:
        return "no checksum tells which is right"
    side, at = ("A", one) if one is not None else ("B", other)
    return f"{side} is damaged at byte {at:,}"


def _damaged_at(
    damaged: int | None, repeated: int | None, valid_bytes: int | None, bytes_: int | None, zeros: bool | None
) -> int | None:
    torn = valid_bytes if not zeros and (valid_bytes or 0) < (bytes_ or 0) else None
    return min((at for at in (damaged, repeated, torn) if at is not None), default=None)


def compare_copy(
    one: ComparedPlace, other: ComparedPlace, topics: re.Pattern[str], known: MetadataOfPlaces, engine: Engine
) -> Comparison:
    """Compare B with A. `topics` matches full names."""
    pairs, results, findings = pair_directories(one, other, topics)
    logs = [log for pair in pairs for log in _logs_of(pair)]
    files = [shared for pair in pairs if (shared := _files_of(pair)).names]
    staged = _work([*logs, *files], engine)
    findings += other_origin_findings(one, other, as_copy=True)
    compared = list(_compared(pairs, staged))
    lost = _gaps_of_both_sides(((partition.one, partition.logs) for partition in compared), known)
    by_offset = _by_offset(compared, one, other, known, engine)
    for partition in compared:
        batches = by_offset.get(partition.one.name)
        of_partition = _partition_findings(partition, batches, lost, one, other)
        findings += of_partition
        results.append(
            PartitionComparison(
                directory=partition.one.name,
                verdict=comparison_verdict(of_partition),
                a_end_offset=_logs_end(partition.logs, "one"),
                b_end_offset=_logs_end(partition.logs, "other"),
                same_to_offset=_same_to_offset(partition.logs) if batches is None else batches.same_to,
            )
        )
    if not (one.is_partition or other.is_partition):
        findings += log_dir_file_findings(one, other, topics)
        findings += checkpoint_only_findings(one, other, topics)
    both = [log for log in logs if log.one is not None and log.other is not None]
    return Comparison(
        findings=findings,
        partitions=sorted(results, key=lambda result: result.directory),
        logs=len(both),
        log_bytes=sum(log.log_bytes for log in both),
        files=sum(len(shared.names) for shared in files),
    )


def _by_offset(
    compared: Sequence[ComparedPartition],
    one: ComparedPlace,
    other: ComparedPlace,
    known: MetadataOfPlaces,
    engine: Engine,
) -> Mapping[str, ReplicaFindings]:
    """How the batches compare of partitions that are cut elsewhere in B, by directory. The logs of these alone are
    read once more.
    """
    elsewhere = [partition for partition in compared if _CopyFindings(partition).is_cut_elsewhere]
    if not elsewhere:
        return {}
    by_offset = compare_replica_directories(elsewhere, one, other, known, engine, as_copy=True)
    return {partition.directory: partition for partition in by_offset}


def _partition_findings(
    partition: ComparedPartition,
    batches: ReplicaFindings | None,
    lost: Sequence[ComparisonFinding],
    one: ComparedPlace,
    other: ComparedPlace,
) -> list[ComparisonFinding]:
    findings = _CopyFindings(partition).findings(batches)
    findings += [gap for gap in lost if gap.directory == partition.one.name]
    findings += log_start_findings(partition.one.topic_partition, one, other)
    if not findings:
        end = _logs_end(partition.logs, "other") if partition.logs else 0
        findings += early_end_findings(partition.one.topic_partition, end, other)
    return findings


def _logs_of(pair: DirectoryPair) -> Iterator[LogPair]:
    for name in sorted({*pair.one.files, *pair.other.files}):
        base_offset = parse_segment_log(name)
        if base_offset is None:
            continue
        listed, copied = pair.one.files.get(name), pair.other.files.get(name)
        yield LogPair(
            directory=pair.one.name,
            base_offset=base_offset,
            one=None if listed is None else str(pair.one.path / name),
            other=None if copied is None else str(pair.other.path / name),
            one_bytes=0 if listed is None else listed.size or 0,
            other_bytes=0 if copied is None else copied.size or 0,
            is_same_file=listed is not None
            and copied is not None
            and listed.identity is not None
            and listed.identity == copied.identity,
        )


def _files_of(pair: DirectoryPair) -> FilePairs:
    names = sorted(set(_beside_logs(pair.one)) & set(pair.other.files))
    sizes = [side.files[name].size or 0 for side in (pair.one, pair.other) for name in names]
    return FilePairs(
        directory=pair.one.name, one=str(pair.one.path), other=str(pair.other.path), names=names, log_bytes=sum(sizes)
    )


def _work(items: Sequence[LogPair | FilePairs], engine: Engine) -> StagedRows:
    logs = [item for item in items if isinstance(item, LogPair)]
    log_bytes = sum(item.log_bytes for item in items)
    name, bins = f"compare-{uuid.uuid4().hex[:16]}", bins_of([item.log_bytes for item in items], engine.cores)
    units = [[items[number] for number in bin_] for bin_ in bins]
    return run_comparison(
        Work(name, units, _compare_items, COMPARED_COPY, is_small=reads_little(log_bytes, len(items)), maps=True),
        engine,
        "comparing",
        so_far=lambda done: f"{done.segments:,} of {counted(len(logs), 'segment')}",
        segments=len(logs),
        log_bytes=log_bytes,
    )


def _compare_items(items: Iterable[LogPair | FilePairs], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `COMPARED_COPY`."""
    for item in items:
        if isinstance(item, LogPair):
            row = compare_log_pair(item, use_mmap)
            yield ItemRows(segments=1, log_bytes=item.log_bytes, rows=[{"log": row.values()}])
        else:
            rows = [{"file": row.values()} for row in compare_files(item)]
            yield ItemRows(log_bytes=item.log_bytes, rows=rows)


def _compared(pairs: Sequence[DirectoryPair], staged: StagedRows) -> Iterator[ComparedPartition]:
    logs: dict[str, list[LogPairRow]] = defaultdict(list)
    files: dict[str, list[FilePairRow]] = defaultdict(list)
    for row in LogPairRow.of_arrow(staged.rows("log")):
        logs[row.directory].append(row)
    for file in FilePairRow.of_arrow(staged.rows("file")):
        files[file.directory].append(file)
    for pair in pairs:
        name = pair.one.name
        yield ComparedPartition(
            one=pair.one,
            other=pair.other,
            logs=sorted(logs[name], key=lambda row: row.base_offset),
            files=sorted(files[name], key=lambda row: row.name),
        )


def _gaps_of_both_sides(
    partitions: Iterable[tuple[ListedDirectory, Sequence[LogPairRow]]], known: MetadataOfPlaces
) -> list[ComparisonFinding]:
    """The findings on offsets between two segments that neither side has, and that no compaction explains. The logs of
    a partition are in the order of base offsets.
    """
    paths, rows = {}, []
    for directory, logs in partitions:
        if (partition := directory.topic_partition) is not None:
            paths[_BOTH, partition.topic, partition.partition] = directory.path
            rows += [_facts_of_both_sides(partition, directory.topic_id, row) for row in logs]
    table = pa.Table.from_pylist(rows, SEGMENTS.schema(FACTS))
    lost = gaps_in(table, lambda _, topic: known.policy(topic), GapEvidence(paths)).lost
    return [
        ComparisonFinding(
            kind=FindingKind.NEITHER,
            directory=TopicPartition(gap.topic, gap.partition).directory,
            first_offset=gap.first_offset,
            last_offset=gap.last_offset,
            detail=f"{gap.detail} of either side: {gap.consequence}",
        )
        for gap in lost
    ]


def _facts_of_both_sides(partition: TopicPartition, topic_id: str | None, row: LogPairRow) -> dict[str, object]:
    """A log of both sides as a row of segments, which ends where the longer one does."""
    ends = (row.one_end_offset or -1, row.one_beyond_records), (row.other_end_offset or -1, row.other_beyond_records)
    end, beyond = max(ends, key=lambda side: side[0])
    is_pair = row.one_bytes is not None and row.other_bytes is not None
    records = None if beyond is None or (is_pair and row.same_records is None) else beyond + (row.same_records or 0)
    is_whole = row.problem is None and row.one_damaged is None and row.other_damaged is None
    return {
        "source": _BOTH,
        "topic": partition.topic,
        "partition": partition.partition,
        "base_offset": row.base_offset,
        "topic_id": topic_id,
        "status": (Status.OK if is_whole else Status.TRUNCATED).value,
        "next_offset": None if row.problem is not None else max(end, row.base_offset),
        "records": records,
        "log_bytes": max(row.one_bytes or 0, row.other_bytes or 0),
    }
