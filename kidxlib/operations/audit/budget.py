"""Which partitions an audit reads that has a budget of bytes: those whose last audit is the oldest come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.filesize import decimal

from kidxlib.audit.finding import IN_USE, Verdict
from kidxlib.build.listed import numbers_in, partitions_of
from kidxlib.build.plan import Plan
from kidxlib.build.tasks import ScanTask
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.matching import Flags, Positions, Values, positions_in
from kidxlib.catalog.segment_key import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.damage.acceptance_rule import VERSION_NAMES
from kidxlib.tables.protocol import TablesToRead
from kidxlib.text.counted import counted

#: Verdicts on logs that were read to their ends.
_READ_IN_FULL: Final = (Verdict.WHOLE.value, Verdict.SAFE.value, Verdict.TORN.value)
_OF_LOGS: Final = Among("file", (LOG_SUFFIX,))
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LastAudits:
    """When audits last read the logs of partitions, as a catalog has it, and which logs are as they were then.

    Attributes:
        audited_at: by partition; one that is not there was never audited, as far as the catalog knows.
        own: partitions that this very run has recorded already: it was stopped, and is run again.
        unchanged: how many logs are as they were when the last audit read them in full, by partition.
        changed: partitions with logs that are not, or that have lost one that is not the first.
    """

    audited_at: Mapping[PartitionKey, datetime]
    own: Collection[PartitionKey]
    unchanged: Mapping[PartitionKey, int]
    changed: Collection[PartitionKey]

    @classmethod
    def of(cls, tables: TablesToRead, plan: Plan, sources: Sequence[str], audit_id: str | None) -> Self:
        """What the catalog says of the partitions of a plan.

        Args:
            audit_id: of this run.

        Raises:
            CatalogError: it cannot be read.
        """
        key, of_logs = list(PARTITION_KEY), [Among("source", tuple(sources)), _OF_LOGS]
        audits = tables.counts(FINDINGS, [*key, "audit_id", "audited_at"], of_logs)
        is_own: Values = pc.equal(audits["audit_id"], pa.scalar(audit_id or ""))
        is_other: Values = pc.invert(is_own)
        others = audits.filter(is_other).sort_by([("audited_at", "ascending"), ("audit_id", "ascending")])
        last = others.group_by(key, use_threads=False).aggregate([("audit_id", "last"), ("audited_at", "last")])
        ids = sorted(set(map(str, last["audit_id_last"].to_pylist())))
        names = [*SEGMENT_KEY, *VERSION_NAMES, "audit_id", "verdict", "reason"]
        logs = tables.read(FINDINGS, names, [*of_logs, Among("audit_id", ids)])
        logs = logs.filter(pc.equal(logs["audit_id"], last["audit_id_last"].take(positions_in(logs, last, key))))
        unchanged, changed = _compared(plan, logs)
        times: Any = last["audited_at_last"].to_pylist()
        return cls(
            dict(zip(_keys(last), times, strict=True)),
            frozenset(_keys(audits.filter(is_own))),
            unchanged,
            changed,
        )


def _keys(rows: pa.Table) -> list[PartitionKey]:
    columns: Any = [rows[name].to_pylist() for name in PARTITION_KEY]
    return list(zip(*columns, strict=True))


def _compared(plan: Plan, logs: pa.Table) -> tuple[Mapping[PartitionKey, int], Collection[PartitionKey]]:
    """`unchanged` and `changed` of `LastAudits`.

    Args:
        logs: findings of the last audit of each partition.
    """
    partitions = partitions_of(plan.segments)
    at = positions_in(plan.keys(plan.segments), logs, SEGMENT_KEY)
    was_read = pc.and_(
        pc.is_in(logs["verdict"], value_set=pa.array(_READ_IN_FULL)),
        pc.not_equal(pc.coalesce(logs["reason"], pa.scalar("")), pa.scalar(IN_USE)),
    )
    same = same_versions(plan.segments, LogVersion.names(), logs, VERSION_NAMES, at)
    same &= np.append(was_read.to_numpy().astype(np.bool_), False)[at]
    count = len(plan.partitions)
    unchanged = np.bincount(partitions[same], minlength=count)
    has_changed = unchanged < np.bincount(partitions, minlength=count)
    # Retention takes logs away from the start; one that lacks elsewhere is lost.
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


def same_versions(
    rows: pa.Table, names: Sequence[str], others: pa.Table, other_names: Sequence[str], at: Positions
) -> Flags:
    """Which rows have the size, modification time and inode of another table's rows. What is not known is not the same;
    an object has no inode.

    Args:
        names, other_names: of the three columns.
        at: of each row, the position of the other; −1 for none.
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
    """A partition that an audit leaves out.

    Attributes:
        segments, log_bytes: what it would have read.
        audited_at: when its logs were last read; None for never.
    """

    segments: int
    log_bytes: int
    audited_at: datetime | None


@dataclass(frozen=True, slots=True)
class NotAudited:
    """What the budget leaves out, by partition."""

    partitions: Mapping[PartitionKey, UnreadPartition] = field(default_factory=dict)

    @property
    def log_bytes(self) -> int:
        return sum(each.log_bytes for each in self.partitions.values())

    @property
    def segments(self) -> int:
        return sum(each.segments for each in self.partitions.values())

    @property
    def never(self) -> int:
        """How many were never audited."""
        return sum(each.audited_at is None for each in self.partitions.values())

    @property
    def in_words(self) -> str:
        """What was left out, and how old its last audit is."""
        dates = [each.audited_at for each in self.partitions.values() if each.audited_at is not None]
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
                **dict(zip(PARTITION_KEY, key, strict=True)),
                "segments": each.segments,
                "log_bytes": each.log_bytes,
                "audited_at": None if each.audited_at is None else each.audited_at.astimezone(UTC).isoformat(),
            }
            for key, each in sorted(self.partitions.items())
        ]


def beyond_budget(tasks: Sequence[ScanTask], last: LastAudits, max_bytes: int) -> NotAudited:
    """The partitions that a budget leaves out. Those that were never audited come first, then those of the oldest
    audits; of one audit those with changes first. The first one that no longer fits ends it, so that none is passed by
    for ever; one that is larger than the budget is read alone. What has no bytes costs none.

    Args:
        tasks: all segments.
        max_bytes: of logs.
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
