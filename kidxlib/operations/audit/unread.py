"""What is to be said of partitions whose logs an audit leaves out: what needs no reading, and what earlier audits found
that is still so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import ALSO, DAMAGE, Finding, SegmentFinding, Verdict
from kidxlib.audit.gaps import FACTS, GAP
from kidxlib.audit.index_files.offset_index import rebuilt_from
from kidxlib.audit.logs.missing import MISSING, missing_at_end
from kidxlib.audit.plan import PartitionAudit
from kidxlib.audit.rows import row_of_partition
from kidxlib.audit.startup.last_stop import BELOW_CHECKPOINTS, below_checkpoints
from kidxlib.audit.startup.partition_files import failures_in_directory
from kidxlib.audit.summary import LOSING, StartFailure
from kidxlib.build.listed import partitions_of
from kidxlib.build.listing import offset_indexes
from kidxlib.build.plan import Plan
from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.findings import FINDINGS, FileFinding
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.segment_key import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format import segment_files
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.accept.damage import version_now
from kidxlib.operations.audit.budget import same_versions
from kidxlib.operations.damage.acceptance_rule import VERSION_NAMES
from kidxlib.operations.damage.last_findings import last_findings
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import as_text, files_in
from kidxlib.tables.protocol import Tables


@dataclass(frozen=True, slots=True)
class Unread:
    """What is to be said of partitions whose logs are left out.

    Attributes:
        facts: `FACTS` of their segments: as the catalog has them where a log is as it was, else of an unknown end.
        rows: of `FileFinding`, what is found without reading, and what the last audits found that is still so.
        earlier: how many of these are the last audits'.
        failures: what keeps a broker from starting.
        losing: what the last audits say that a broker would lose at its next start, by partition.
    """

    facts: pa.Table = field(default_factory=SEGMENTS.schema(FACTS).empty_table)
    rows: Sequence[FileFinding] = ()
    earlier: int = 0
    failures: Sequence[StartFailure] = ()
    losing: Mapping[PartitionKey, StartFailure] = field(default_factory=dict)

    def all_failures(self, accepted: Collection[PartitionKey]) -> list[StartFailure]:
        """All that fails the audit besides files.

        Args:
            accepted: partitions in which damage is accepted, with what a broker makes of it.
        """
        return [*self.failures, *(each for key, each in sorted(self.losing.items()) if key not in accepted)]


def look_at_unread(
    tables: Tables, plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], sources: Sequence[str], fail_on: Verdict
) -> Unread:
    """Look at partitions without reading their logs.

    Args:
        audits: of the partitions.
        fail_on: the mildest verdict of earlier audits that counts.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    if not audits:
        return Unread()
    known = _Known.of(tables, plan, audits, sources)
    facts = known.facts
    earlier, losing = _earlier(tables, audits, sources, fail_on)
    now = [*_ends(facts, audits), *_without_index(known, audits)]
    paths = {row.path for row in now}
    earlier = [row for row in earlier if row.path not in paths]
    # Where a log ends is compared with the checkpoints each time: they may say something else by now.
    mended = [row for row in earlier if row.reason in BELOW_CHECKPOINTS and ALSO not in (row.detail or "")]
    ended = known.ended if mended else ()
    mended = [row for row in mended if row.partition_key in ended]
    earlier = [row for row in earlier if row not in mended]
    damaged = {row.partition_key for row in (*now, *earlier) if row.file == segment_files.LOG_SUFFIX}
    for key in {row.partition_key for row in mended} - damaged:
        losing.pop(key, None)
    return Unread(facts, [*now, *earlier], len(earlier), [*_failures(audits.values())], losing)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalog knows of the segments that are left out.

    Attributes:
        segments: their keys and sizes, as they were listed.
        topic_ids: of their partitions, as they are now.
        rows: the catalog's beside each, of nulls where a log is not as it was.
    """

    segments: pa.Table
    topic_ids: Sequence[str | None]
    rows: pa.Table

    @classmethod
    def of(
        cls, tables: Tables, plan: Plan, audits: Mapping[PartitionKey, PartitionAudit], sources: Sequence[str]
    ) -> Self:
        is_unread = np.array([partition.key in audits for partition in plan.partitions], np.bool_)
        listed = plan.segments.filter(pa.array(is_unread[partitions_of(plan.segments)]))
        keys = plan.keys(listed)
        names = {*FACTS, *LogVersion.names(), "offset_index_bytes", "index_directory"}
        topics = sorted({topic for _, topic, _ in audits})
        known = tables.read(SEGMENTS, sorted(names), [Among("source", tuple(sources)), Among("topic", topics), PRESENT])
        at = positions_in(keys, known, SEGMENT_KEY).copy()
        at[~same_versions(listed, LogVersion.names(), known, LogVersion.names(), at)] = -1
        places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
        ids = [partition.topic_id for partition in plan.partitions]
        return cls(
            keys.append_column("log_bytes", listed["log_bytes"]),
            [ids[number] for number in partitions_of(listed).tolist()],
            known.take(places),
        )

    @property
    def facts(self) -> pa.Table:
        """`FACTS` of the segments."""
        columns: dict[str, Any] = {name: self.segments[name] for name in (*SEGMENT_KEY, "log_bytes")}
        columns["topic_id"] = pa.array(self.topic_ids, pa.string())
        columns["status"] = pc.coalesce(self.rows["status"], pa.scalar(Status.UNREADABLE.value))
        columns |= {name: self.rows[name] for name in ("next_offset", "records")}
        schema = SEGMENTS.schema(FACTS)
        return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)

    @property
    def ended(self) -> frozenset[PartitionKey]:
        """The partitions of which it is known where the last log ends."""
        ends = {
            (row["source"], row["topic"], row["partition"]): row["next_offset"]
            for row in self.facts.select([*PARTITION_KEY, "next_offset"]).to_pylist()
        }
        return frozenset(key for key, end in ends.items() if end is not None)

    def indexed(self) -> Iterator[tuple[PartitionKey, str, int, int]]:
        """The segments that have an index: the partition, the index's directory, base offset and bytes of the log."""
        is_indexed = self.rows["offset_index_bytes"].is_valid()
        segments = self.segments.filter(is_indexed)
        directories: Any = self.rows["index_directory"].filter(is_indexed).to_pylist()
        for row, directory in zip(segments.to_pylist(), directories, strict=True):
            yield (row["source"], row["topic"], row["partition"]), directory, row["base_offset"], row["log_bytes"]


def _without_index(known: _Known, audits: Mapping[PartitionKey, PartitionAudit]) -> Iterator[FileFinding]:
    """The findings on indexes that a build has made, and that are not there any more."""
    there: dict[PartitionKey, set[int]] = {}
    for key, directory, base_offset, log_bytes in known.indexed():
        audit = audits[key]
        if directory != str(audit.index_directory):
            continue  # it is looked for elsewhere
        if key not in there:
            there[key] = offset_indexes(audit.index_directory)
        log = audit.directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        if base_offset not in there[key] and log.exists():
            missing = Finding(
                file=segment_files.OFFSET_INDEX_SUFFIX,
                verdict=Verdict.BROKEN,
                reason=MISSING,
                consequence=rebuilt_from(log_bytes),
            )
            yield row_of_partition(key[0], audit, SegmentFinding(base_offset, missing))


def _ends(facts: pa.Table, audits: Mapping[PartitionKey, PartitionAudit]) -> Iterator[FileFinding]:
    """The findings on last logs that end below what the broker's checkpoints say, and on logs that are missing after
    them though their indexes are there.
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
        found = list(missing_at_end(base_offset, end, offset_indexes(audit.index_directory)))
        if end is not None and audit.is_brokers:
            below = below_checkpoints(end, None, audit.last_stop)
            found += [] if below is None else [(base_offset, below)]
        # Checkpoints and indexes were looked at after the listing: a broker that runs may have written meanwhile.
        if found and _is_last(audit, base_offset, row["log_bytes_last"]):
            yield from (row_of_partition(key[0], audit, SegmentFinding(*each)) for each in found)


def _is_last(audit: PartitionAudit, base_offset: int, log_bytes: int) -> bool:
    """Whether a log is still the last of its partition, one that is to be deleted included, and as long as it was."""
    try:
        names = [name.removesuffix(segment_files.DELETED_SUFFIX) for name in files_in(audit.directory)]
        logs = [offset for name in names if (offset := segment_files.parse_segment_log(name)) is not None]
        log = audit.directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        return max(logs, default=None) == base_offset and log.stat().st_size == log_bytes
    except OSError:
        return False


def _failures(audits: Collection[PartitionAudit]) -> Iterator[StartFailure]:
    """What a broker meets in log dirs and directories of partitions before it reads logs."""
    for audit in audits:
        if audit.is_brokers:
            directory = as_text(audit.directory)
            yield from (StartFailure(directory, failure) for failure in audit.last_stop.failures)
            yield from (StartFailure(directory, str(each)) for each in failures_in_directory(audit.directory))


_FOUND: Final = FINDINGS.schema(FileFinding.names())


def _earlier(
    tables: Tables, audits: Mapping[PartitionKey, PartitionAudit], sources: Sequence[str], fail_on: Verdict
) -> tuple[list[FileFinding], dict[PartitionKey, StartFailure]]:
    """What the last audits found of files that are as they were then, and what they say that a broker would lose."""
    severity = min(fail_on.severity, *(verdict.severity for verdict in DAMAGE))
    verdicts = tuple(verdict.value for verdict in Verdict if verdict.severity >= severity)
    wanted = pa.table([list(column) for column in zip(*audits, strict=True)], schema=SEGMENTS.schema(PARTITION_KEY))

    def still(where: Among) -> list[FileFinding]:
        found = last_findings(tables, sources, where, _FOUND.names)
        is_file: Values = pc.not_equal(found["file"], pa.scalar(GAP))  # gaps are looked for each time
        found = found.filter(is_file)
        found = found.filter(pa.array(positions_in(found, wanted, PARTITION_KEY) >= 0))
        return [each for each in FileFinding.of_arrow(found) if _is_as_it_was(each)]

    losing: dict[PartitionKey, StartFailure] = {}
    for each in still(Among("action", LOSING)):
        said = f"{each.action}: {each.consequence} (by the last audit of the partition)"
        losing.setdefault(each.partition_key, StartFailure(each.path, said))
    return still(Among("verdict", verdicts)), losing


def _is_as_it_was(finding: FileFinding) -> bool:
    """Whether a file is what the audit saw. Of a safe index file it is not recorded what that was."""
    version = tuple(getattr(finding, name) for name in VERSION_NAMES)
    if finding.verdict == Verdict.SAFE and version == (None, None, None):
        return True
    return version == version_now(finding.path)
