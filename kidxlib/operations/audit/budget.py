"""Decides which partitions an audit with a budget of bytes reads: those whose last audit is the oldest. On the others,
it reports what it sees without reading logs, and findings of earlier audits that still hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.audit.finding import ALSO, DAMAGE, IN_USE, SegmentFinding, Verdict
from kidxlib.audit.gaps import FACTS, GAP, with_logs_aside
from kidxlib.audit.index_files.sparse_indexes import missing_offset_index
from kidxlib.audit.partition import PartitionAudit
from kidxlib.audit.partition_logs import missing_at_end
from kidxlib.audit.rows import row_of_partition
from kidxlib.audit.startup.last_stop import BELOW_CHECKPOINT_REASONS
from kidxlib.audit.startup.obstacles import obstacles_in_partition
from kidxlib.audit.summary import LOSING, StartFailure
from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.findings import FINDINGS, FileFinding
from kidxlib.catalog.matching import Flags, Positions, Values, numbers_in, positions_in, taken_at
from kidxlib.catalog.partitions import named_key, partition_keys, rows_of_keys
from kidxlib.catalog.rows import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format import segment_files
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.listed_segments import partition_numbers
from kidxlib.indexing.listing import list_offset_indexes
from kidxlib.indexing.plan import Plan, ScanTask
from kidxlib.operations.damage.acceptances import VERSION_NAMES, file_version_now
from kidxlib.operations.damage.known_damage import last_findings
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import as_text, files_in
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.tables.protocol import Tables, TablesToRead
from kidxlib.text.words import counted

#: Verdicts on logs that were read to their ends.
_READ_IN_FULL: Final = (Verdict.WHOLE.value, Verdict.SAFE.value, Verdict.TORN.value)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LastAudits:
    """When audits last read the logs of partitions by the catalog, and which logs have not changed since.

    Attributes:
        audited_at: the time of a partition's last audit; partitions that were never audited are not here.
        own: partitions that this same run has recorded already, before it was stopped and run again.
        unchanged: by partition, how many logs are as they were when the last audit read them in full.
        changed: partitions with a log that has changed, or that have lost a log other than the first.
    """

    audited_at: Mapping[PartitionKey, datetime]
    own: Collection[PartitionKey]
    unchanged: Mapping[PartitionKey, int]
    changed: Collection[PartitionKey]

    @classmethod
    def of(cls, tables: TablesToRead, plan: Plan, sources: Sequence[str], audit_id: str | None) -> Self:
        """The last audits of a plan's partitions in the catalog. `audit_id` is this run's."""
        key, on_logs = list(PARTITION_KEY), [Among("source", tuple(sources)), Among("file", (LOG_SUFFIX,))]
        audits = tables.counts(FINDINGS, [*key, "audit_id", "audited_at"], on_logs)
        is_own: Values = pc.equal(audits["audit_id"], pa.scalar(audit_id or ""))
        is_other: Values = pc.invert(is_own)
        others = audits.filter(is_other).sort_by([("audited_at", "ascending"), ("audit_id", "ascending")])
        last = others.group_by(key, use_threads=False).aggregate([("audit_id", "last"), ("audited_at", "last")])
        ids = sorted(set(map(str, last["audit_id_last"].to_pylist())))
        names = [*SEGMENT_KEY, *VERSION_NAMES, "audit_id", "verdict", "reason"]
        logs = tables.read(FINDINGS, names, [*on_logs, Among("audit_id", ids)])
        logs = logs.filter(pc.equal(logs["audit_id"], last["audit_id_last"].take(positions_in(logs, last, key))))
        unchanged, changed = _compared(plan, logs)
        times: Any = last["audited_at_last"].to_pylist()
        return cls(
            dict(zip(partition_keys(last), times, strict=True)),
            frozenset(partition_keys(audits.filter(is_own))),
            unchanged,
            changed,
        )


def _compared(plan: Plan, logs: pa.Table) -> tuple[Mapping[PartitionKey, int], Collection[PartitionKey]]:
    """`unchanged` and `changed` of `LastAudits`, by the findings of the last audit of each partition on its logs."""
    partitions = partition_numbers(plan.segments)
    at = positions_in(plan.keys(plan.segments), logs, SEGMENT_KEY)
    was_read = pc.and_(
        pc.is_in(logs["verdict"], value_set=pa.array(_READ_IN_FULL)),
        pc.not_equal(pc.coalesce(logs["reason"], pa.scalar("")), pa.scalar(IN_USE)),
    )
    same = _same_versions(plan.segments, LogVersion.names(), logs, VERSION_NAMES, at)
    same &= np.append(was_read.to_numpy().astype(np.bool_), False)[at]
    count = len(plan.partitions)
    unchanged = np.bincount(partitions[same], minlength=count)
    has_changed = unchanged < np.bincount(partitions, minlength=count)
    # Retention deletes logs from the start; a log that is missing elsewhere is lost.
    of_plan = positions_in(logs, plan.partition_keys(), PARTITION_KEY)
    first = np.append(plan.segments["base_offset"].to_numpy(), 0)[plan.bounds()[:-1]]
    is_there = np.isin(np.arange(logs.num_rows), at)
    lost = (of_plan >= 0) & ~is_there
    lost[lost] = logs["base_offset"].to_numpy()[lost] > first[of_plan[lost]]
    has_changed[of_plan[lost]] = True
    keys = [partition.key for partition in plan.partitions]
    return (
        dict(zip(keys, unchanged.tolist(), strict=True)),
        frozenset(keys[number] for number in np.flatnonzero(has_changed).tolist()),
    )


def _same_versions(
    rows: pa.Table, names: Sequence[str], others: pa.Table, other_names: Sequence[str], at: Positions
) -> Flags:
    """Which rows have the same size, modification time and inode as rows of another table, whose positions are in `at`;
    −1 for none. `names` and `other_names` are the three columns in the two tables. Unknown values do not match, but an
    object has no inode.
    """
    same: Flags = at >= 0
    for number, (name, other) in enumerate(zip(names, other_names, strict=True)):
        here, is_here = numbers_in(rows[name])
        there, is_there = numbers_in(others[other])
        there, is_there = np.append(there, 0)[at], np.append(is_there, False)[at]
        same &= (here == there) & (is_here == is_there)
        if number < 2:
            same &= is_here
    return same


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadPartition:
    """What an audit leaves out in a partition, and when its logs were last read; None for never."""

    segments: int
    log_bytes: int
    audited_at: datetime | None


@dataclass(frozen=True, slots=True)
class NotAudited:
    """What the budget leaves out, by partition."""

    partitions: Mapping[PartitionKey, UnreadPartition] = field(default_factory=dict)

    @property
    def log_bytes(self) -> int:
        return sum(partition.log_bytes for partition in self.partitions.values())

    @property
    def segments(self) -> int:
        return sum(partition.segments for partition in self.partitions.values())

    @property
    def never(self) -> int:
        """How many were never audited."""
        return sum(partition.audited_at is None for partition in self.partitions.values())

    @property
    def in_words(self) -> str:
        dates = [partition.audited_at for partition in self.partitions.values() if partition.audited_at is not None]
        oldest = f"; the oldest was last audited on {min(dates).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if dates else ""
        never = f"; {self.never:,} of them never" if self.never else ""
        size = decimal(self.log_bytes)
        return f"not audited this time: {counted(len(self.partitions), 'partition')}, {size}{never}{oldest}"

    @property
    def counts(self) -> dict[str, int]:
        return {
            "partitions_not_audited": len(self.partitions),
            "partitions_never_audited": self.never,
            "segments_not_audited": self.segments,
            "bytes_not_audited": self.log_bytes,
        }

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                **named_key(key),
                "segments": left_out.segments,
                "log_bytes": left_out.log_bytes,
                "audited_at": None if left_out.audited_at is None else left_out.audited_at.astimezone(UTC).isoformat(),
            }
            for key, left_out in sorted(self.partitions.items())
        ]


def beyond_budget(tasks: Sequence[ScanTask], last: LastAudits, max_bytes: int) -> NotAudited:
    """The partitions that a budget of bytes leaves out. Those that were never audited come first, then those of the
    oldest audits; of one audit those with changes first. The first one that no longer fits ends it, so that none is
    passed by for ever; one that is larger than the budget is read alone. A partition without bytes costs nothing.
    """
    log_bytes, segments = Counter[PartitionKey](), Counter[PartitionKey]()
    for task in tasks:
        log_bytes[task.segment.partition_key] += task.log_bytes
        segments[task.segment.partition_key] += 1
    read = sum(log_bytes[key] for key in last.own)
    order = sorted(
        (key for key, size in log_bytes.items() if size and key not in last.own),
        key=lambda key: (last.audited_at.get(key, _NEVER), key not in last.changed, key),
    )
    for number, key in enumerate(order):
        if read and read + log_bytes[key] > max_bytes:
            return NotAudited(
                {
                    each: UnreadPartition(
                        segments=segments[each], log_bytes=log_bytes[each], audited_at=last.audited_at.get(each)
                    )
                    for each in order[number:]
                }
            )
        read += log_bytes[key]
    return NotAudited()


@dataclass(frozen=True, slots=True)
class FoundBeyondBudget:
    """The findings on partitions beyond the budget, whose logs are not read.

    Attributes:
        facts: `FACTS` of their segments: the catalog's if a log has not changed; otherwise the end is unknown.
        rows: findings that need no reading, and findings of the last audits that still hold.
        earlier: how many of these rows are findings of the last audits.
        failures: what keeps a broker from starting.
        losing: what a broker would lose at its next start by the last audits.
    """

    facts: pa.Table = field(default_factory=SEGMENTS.schema(FACTS).empty_table)
    rows: Sequence[FileFinding] = ()
    earlier: int = 0
    failures: Sequence[StartFailure] = ()
    losing: Mapping[PartitionKey, StartFailure] = field(default_factory=dict)

    def all_failures(self, accepted: Collection[PartitionKey]) -> list[StartFailure]:
        """All start failures and losses beyond the budget that make the audit fail, besides files. In `accepted`
        partitions damage is accepted together with its consequence.
        """
        return [*self.failures, *(loss for key, loss in sorted(self.losing.items()) if key not in accepted)]


def look_beyond_budget(
    tables: Tables, plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], sources: Sequence[str], fail_on: Verdict
) -> FoundBeyondBudget:
    """Look at partitions beyond the budget, without reading their logs. Verdicts of earlier audits count from `fail_on`
    on.
    """
    if not audits:
        return FoundBeyondBudget()
    known = _KnownBeyondBudget.of(tables, plan, audits, sources)
    facts = known.facts
    earlier, losing = _earlier(tables, audits, sources, fail_on)
    now = [*_ends(facts, audits), *_without_index(known, audits)]
    paths = {row.path for row in now}
    earlier = [row for row in earlier if row.path not in paths]
    # The end of a log is compared with the checkpoints each time: checkpoints change.
    mended = [row for row in earlier if row.reason in BELOW_CHECKPOINT_REASONS and ALSO not in (row.detail or "")]
    ended = known.ended if mended else ()
    mended = [row for row in mended if row.partition_key in ended]
    earlier = [row for row in earlier if row not in mended]
    damaged = {row.partition_key for row in (*now, *earlier) if row.file == segment_files.LOG_SUFFIX}
    for key in {row.partition_key for row in mended} - damaged:
        losing.pop(key, None)
    return FoundBeyondBudget(facts, [*now, *earlier], len(earlier), [*_failures(audits.values())], losing)


@dataclass(frozen=True, slots=True)
class _KnownBeyondBudget:
    """The catalog's rows of the segments that are left out.

    Attributes:
        segments: keys and sizes of the segments as they were listed.
        topic_ids: the topic id that each segment's partition has now.
        rows: the catalog's row of each segment; all null if the log has changed.
    """

    segments: pa.Table
    topic_ids: Sequence[str | None]
    rows: pa.Table

    @classmethod
    def of(
        cls, tables: Tables, plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], sources: Sequence[str]
    ) -> Self:
        is_unread = np.array([partition.key in audits for partition in plan.partitions], np.bool_)
        listed = plan.segments.filter(pa.array(is_unread[partition_numbers(plan.segments)]))
        keys = plan.keys(listed)
        names = {*FACTS, *LogVersion.names(), "offset_index_bytes", "index_directory"}
        topics = sorted({topic for _, topic, _ in audits})
        known = tables.read(SEGMENTS, sorted(names), [Among("source", tuple(sources)), Among("topic", topics), PRESENT])
        at = positions_in(keys, known, SEGMENT_KEY).copy()
        at[~_same_versions(listed, LogVersion.names(), known, LogVersion.names(), at)] = -1
        ids = [partition.topic_id for partition in plan.partitions]
        return cls(
            keys.append_column("log_bytes", listed["log_bytes"]),
            [ids[number] for number in partition_numbers(listed).tolist()],
            taken_at(known, at),
        )

    @property
    def facts(self) -> pa.Table:
        columns: dict[str, Any] = {name: self.segments[name] for name in (*SEGMENT_KEY, "log_bytes")}
        columns["topic_id"] = pa.array(self.topic_ids, pa.string())
        columns["status"] = pc.coalesce(self.rows["status"], pa.scalar(Status.UNREADABLE.value))
        columns |= {name: self.rows[name] for name in ("next_offset", "records")}
        schema = SEGMENTS.schema(FACTS)
        return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)

    @property
    def ended(self) -> frozenset[PartitionKey]:
        """The partitions whose last log has a known end."""
        ends: Any = self.rows["next_offset"].to_pylist()
        last_end = dict(zip(partition_keys(self.segments), ends, strict=True))
        return frozenset(key for key, end in last_end.items() if end is not None)

    def indexed(self) -> Iterator[tuple[PartitionKey, str, int, int]]:
        """The segments with an index: the partition, the index's directory, base offset and bytes of the log."""
        is_indexed = self.rows["offset_index_bytes"].is_valid()
        segments = self.segments.filter(is_indexed)
        directories: Any = self.rows["index_directory"].filter(is_indexed).to_pylist()
        for row, directory in zip(segments.to_pylist(), directories, strict=True):
            yield (row["source"], row["topic"], row["partition"]), directory, row["base_offset"], row["log_bytes"]


def _without_index(known: _KnownBeyondBudget, audits: Mapping[PartitionKey, PartitionAudit]) -> Iterator[FileFinding]:
    """The findings on indexes that a build has written and that are gone."""
    there: dict[PartitionKey, set[int]] = {}
    for key, directory, base_offset, log_bytes in known.indexed():
        audit = audits[key]
        if directory != str(audit.index_directory):
            continue  # its index is looked for elsewhere
        if key not in there:
            there[key] = list_offset_indexes(audit.index_directory)
        log = audit.directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        if base_offset not in there[key] and log.exists():
            yield row_of_partition(key[0], audit, SegmentFinding(base_offset, missing_offset_index(log_bytes)))


def _ends(facts: pa.Table, audits: Mapping[PartitionKey, PartitionAudit]) -> Iterator[FileFinding]:
    """The findings on last logs that end below the broker's checkpoints, and on missing logs after them whose indexes
    are there.
    """
    last = facts.group_by(list(PARTITION_KEY), use_threads=False).aggregate(
        [
            ("base_offset", "last"),
            ("next_offset", "last", pc.ScalarAggregateOptions(skip_nulls=False)),
            ("log_bytes", "last", pc.ScalarAggregateOptions(skip_nulls=False)),
        ]
    )
    for row in last.to_pylist():
        key = row["source"], row["topic"], row["partition"]
        audit, base_offset, end = audits[key], row["base_offset_last"], row["next_offset_last"]
        findings = list(missing_at_end(base_offset, end, list_offset_indexes(audit.index_directory)))
        if end is not None and audit.is_brokers:
            below = audit.last_stop.finding_below_checkpoints(end, None)
            if below is not None:
                aside = LogsAside(audit.log_dirs)
                below = with_logs_aside(below, aside, audit.directory, end, segment_files.OFFSET_MAX)
                findings.append((base_offset, below))
        # Checkpoints and indexes were read after the listing: a running broker may have written in between.
        if findings and _is_last(audit, base_offset, row["log_bytes_last"]):
            yield from (row_of_partition(key[0], audit, SegmentFinding(*finding)) for finding in findings)


def _is_last(audit: PartitionAudit, base_offset: int, log_bytes: int) -> bool:
    """Whether a log is still as long as it was and the last of its partition, renamed logs (.deleted) included."""
    try:
        names = [name.removesuffix(segment_files.DELETED_SUFFIX) for name in files_in(audit.directory)]
        logs = [offset for name in names if (offset := segment_files.parse_segment_log(name)) is not None]
        log = audit.directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        return max(logs, default=None) == base_offset and log.stat().st_size == log_bytes
    except OSError:
        return False


def _failures(audits: Collection[PartitionAudit]) -> Iterator[StartFailure]:
    """The start failures that a broker meets in partitions' directories before it reads logs."""
    for audit in audits:
        if audit.is_brokers:
            directory = as_text(audit.directory)
            yield from (StartFailure(directory, str(failure)) for failure in obstacles_in_partition(audit.directory))


def _earlier(
    tables: Tables, audits: Mapping[PartitionKey, PartitionAudit], sources: Sequence[str], fail_on: Verdict
) -> tuple[list[FileFinding], dict[PartitionKey, StartFailure]]:
    """The findings of the last audits on files that have not changed, and the losses at a start that they foretell."""
    severity = min(fail_on.severity, *(verdict.severity for verdict in DAMAGE))
    verdicts = tuple(verdict.value for verdict in Verdict if verdict.severity >= severity)
    wanted = rows_of_keys(audits)

    def still(where: Among) -> list[FileFinding]:
        findings = last_findings(tables, sources, [where], FileFinding.names())
        is_file: Values = pc.not_equal(findings["file"], pa.scalar(GAP))  # gaps are computed anew each time
        findings = findings.filter(is_file)
        findings = findings.filter(pa.array(positions_in(findings, wanted, PARTITION_KEY) >= 0))
        return [finding for finding in FileFinding.of_arrow(findings) if _is_as_it_was(finding)]

    losing: dict[PartitionKey, StartFailure] = {}
    for finding in still(Among("action", LOSING)):
        why = f"{finding.action}: {finding.consequence} (by the last audit of the partition)"
        losing.setdefault(finding.partition_key, StartFailure(finding.path, why))
    return still(Among("verdict", verdicts)), losing


def _is_as_it_was(finding: FileFinding) -> bool:
    """Whether a file is as the audit saw it. For a safe index file, its state then is not recorded."""
    version = tuple(getattr(finding, name) for name in VERSION_NAMES)
    if finding.verdict == Verdict.SAFE and version == (None, None, None):
        return True
    return version == file_version_now(finding.path)
