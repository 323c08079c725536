"""Records the findings of an audit or a repair of tiered storage in the catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kidxlib.audit.tiered.finding import RemoteFindingRow
from kidxlib.audit.tiered.listing import AsOf
from kidxlib.catalog import updates
from kidxlib.catalog.findings import REMOTE_SEGMENTS, RemoteFinding
from kidxlib.operations.tiered.tiered_request import RecordedAudit
from kidxlib.tables.protocol import Tables

#: Topic id, partition, start offset and segment id.
Key: TypeAlias = tuple[str, int, int, str]
_SEGMENT_KEY: Final = ("topic_id", "partition", "start_offset", "segment_id")
_FINDING_COLUMNS: Final = tuple(RemoteFinding.__annotations__)


def record_segments(
    tables: Tables,
    recorded_as: RecordedAudit,
    listed: pa.Table,
    findings: Iterable[RemoteFindingRow],
    as_of: AsOf,
    repairs: Mapping[Key, Sequence[Mapping[str, Any]]] | None = None,
) -> int:
    """Record the listed segments (rows of `ListedSegmentRow`) of a run in one commit, with their findings and repairs
    (rows of `RemoteRepair`); return how many. They replace all rows of the same run, so that it can be run again. A
    finding on a topic is recorded with the topic's first segment, or not at all if the topic has none.
    """
    listed = listed.sort_by([(name, "ascending") for name in ("topic", "topic_id", *_SEGMENT_KEY[1:])])
    keys = keys_of_remote_segments(listed)
    by_segment = _findings_by_segment(findings, keys)
    values = {
        **{name: listed[name] for name in listed.column_names},
        "findings": [by_segment.get(key, []) for key in keys],
        "repairs": [list((repairs or {}).get(key, ())) for key in keys],
    }
    of_run = {
        "audit_id": recorded_as.audit_id,
        "source": recorded_as.source,
        "level": recorded_as.level,
        "metadata_ms": as_of.metadata_ms,
        "audited_at": recorded_as.context.now,
    }
    schema = REMOTE_SEGMENTS.schema()
    columns = [
        pa.repeat(pa.scalar(of_run[field.name], field.type), len(keys))
        if field.name in of_run
        else _as_column(values[field.name], field.type)
        for field in schema
    ]
    audit = pa.table({"audit_id": [recorded_as.audit_id]})
    rows = {"audit": audit, "segment": pa.table(columns, schema=schema)}
    tables.change_rows(REMOTE_SEGMENTS, rows, updates.audited_remote, by=["audit_id"])
    return len(keys)


def keys_of_remote_segments(listed: pa.Table) -> list[Key]:
    """The keys of the segments in some rows of `ListedSegmentRow`."""
    return list(zip(*(listed[name].to_pylist() for name in _SEGMENT_KEY), strict=True))


def _as_column(values: Any, kind: pa.DataType) -> Any:
    return pa.array(values, kind) if isinstance(values, list) else values.cast(kind)


def _findings_by_segment(
    findings: Iterable[RemoteFindingRow], keys: Sequence[Key]
) -> Mapping[Key, list[dict[str, Any]]]:
    """Findings by their segments. `keys` are those of all segments, in order."""
    first_of_topic: dict[str, Key] = {}
    for key in keys:
        first_of_topic.setdefault(key[0], key)
    by_segment: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)
    for finding in findings:
        segment = _segment_key_of(finding) or first_of_topic.get(finding.topic_id)
        if segment is not None:
            by_segment[segment].append({name: getattr(finding, name) for name in _FINDING_COLUMNS})
    return by_segment


def _segment_key_of(finding: RemoteFindingRow) -> Key | None:
    """The segment that a finding is about; None if it is about the topic."""
    if finding.segment_id is None:
        return None
    return finding.topic_id, finding.partition, finding.start_offset, finding.segment_id
