"""Records the findings of an audit or a repair of tiered storage in the catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kidxlib.audit.tiered.finding import RemoteFindingRow
from kidxlib.audit.tiered.metadata import AsOf
from kidxlib.catalog import updates
from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS, RemoteFinding
from kidxlib.operations.tiered.tiered_request import Recording
from kidxlib.tables.protocol import Tables

#: Topic id, partition, start offset and segment id.
Key: TypeAlias = tuple[str, int, int, str]
_KEY: Final = ("topic_id", "partition", "start_offset", "segment_id")
_OF_FINDING: Final = tuple(RemoteFinding.__annotations__)


def record_segments(
    tables: Tables,
    recording: Recording,
    listed: pa.Table,
    findings: Iterable[RemoteFindingRow],
    as_of: AsOf,
    repairs: Mapping[Key, Sequence[Mapping[str, Any]]] | None = None,
) -> int:
    """Record the segments of a run in one commit. They replace all rows of the same run, so that it can be run again.

    Args:
        listed: rows of `ListedSegmentRow`.
        findings: a finding on a topic is recorded with the topic's first segment, or not at all if it has none.
        repairs: rows of `RemoteRepair`, by their segments.

    Returns:
        The number of rows.
    """
    listed = listed.sort_by([(name, "ascending") for name in ("topic", "topic_id", *_KEY[1:])])
    keys = keys_of(listed)
    of_segments = _by_segment(findings, keys)
    values = {
        **{name: listed[name] for name in listed.column_names},
        "findings": [of_segments.get(key, []) for key in keys],
        "repairs": [list((repairs or {}).get(key, ())) for key in keys],
    }
    of_run = {
        "audit_id": recording.audit_id,
        "source": recording.source,
        "level": recording.level,
        "metadata_ms": as_of.metadata_ms,
        "audited_at": recording.context.now,
    }
    schema = REMOTE_SEGMENTS.schema()
    columns = [
        pa.repeat(pa.scalar(of_run[field.name], field.type), len(keys))
        if field.name in of_run
        else _column(values[field.name], field.type)
        for field in schema
    ]
    audit = pa.table({"audit_id": [recording.audit_id]})
    found = {"audit": audit, "segment": pa.table(columns, schema=schema)}
    tables.change(REMOTE_SEGMENTS, found, updates.audited_remote, by=["audit_id"])
    return len(keys)


def keys_of(listed: pa.Table) -> list[Key]:
    """The keys of the segments in some rows of `ListedSegmentRow`."""
    return list(zip(*(listed[name].to_pylist() for name in _KEY), strict=True))


def _column(values: Any, kind: pa.DataType) -> Any:
    return pa.array(values, kind) if isinstance(values, list) else values.cast(kind)


def _by_segment(findings: Iterable[RemoteFindingRow], keys: Sequence[Key]) -> Mapping[Key, list[dict[str, Any]]]:
    """Findings by their segments.

    Args:
        keys: the keys of all segments, in order.
    """
    first: dict[str, Key] = {}
    for key in keys:
        first.setdefault(key[0], key)
    found: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)
    for each in findings:
        of = _key_of(each) or first.get(each.topic_id)
        if of is not None:
            found[of].append({name: getattr(each, name) for name in _OF_FINDING})
    return found


def _key_of(each: RemoteFindingRow) -> Key | None:
    """The segment that a finding is about; None where it is about the topic."""
    return None if each.segment_id is None else (each.topic_id, each.partition, each.start_offset, each.segment_id)
