"""What a repair of tiered storage has found and done, recorded in the catalog: how the bucket stands after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kidxlib.audit.finding import Verdict
from kidxlib.audit.tiered.finding import RemoteFindingRow
from kidxlib.audit.tiered.metadata import AsOf
from kidxlib.operations.audit.tiered.record import Key, keys_of, record_segments
from kidxlib.operations.audit.tiered.request import Recording
from kidxlib.operations.build.tiered.put import Mended, Outcome
from kidxlib.tables.protocol import Tables


def record_repair(
    tables: Tables,
    recording: Recording,
    listed: pa.Table,
    findings: Sequence[RemoteFindingRow],
    objects: Sequence[Mended],
    as_of: AsOf,
) -> None:
    """Record the segments of a bucket, and what became of their objects.

    Args:
        listed: rows of `ListedSegmentRow`, of before.
        findings: that no repair has mended.
        objects: that are missing or broken, or were taken for that.

    Raises:
        CatalogError: as `Tables.change`.
    """
    repairs: defaultdict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    put: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)
    for each in objects:
        row = each.row
        repair = {"suffix": row.file, "reason": row.reason, "outcome": each.outcome.value, "why": each.why}
        repairs[_key(each)].append({**repair, "bytes": row.made_bytes})
        if each.outcome is Outcome.PUT:
            put[_key(each)].append({"suffix": row.file, "name": row.name, "bytes": row.made_bytes})
    found = [*findings, *_found_by_reading(findings, objects)]
    record_segments(tables, recording, _with_objects(listed, put), found, as_of, repairs)


def _found_by_reading(findings: Sequence[RemoteFindingRow], objects: Sequence[Mended]) -> Iterator[RemoteFindingRow]:
    """What only the log has shown to be wrong, and is not mended."""
    known = {(each.topic_id, each.partition, each.start_offset, each.segment_id, each.file) for each in findings}
    for each in objects:
        row = each.row
        if row.reason is None or each.outcome.is_mended or (*_key(each), row.file) in known:
            continue
        yield RemoteFindingRow(
            topic=row.topic,
            partition=row.partition,
            topic_id=row.topic_id,
            start_offset=row.start_offset,
            segment_id=row.segment_id,
            file=row.file,
            verdict=Verdict.BROKEN.value,
            reason=row.reason,
            position=None,
            detail=row.detail,
            consequence=row.consequence,
            object=row.object,
        )


def _with_objects(listed: pa.Table, put: Mapping[Key, Sequence[Mapping[str, Any]]]) -> pa.Table:
    """What was listed, with objects that were put since: when, and their ETags, nobody has asked."""
    if not put:
        return listed
    column = listed["objects"]
    objects: list[Any] = column.to_pylist()
    for number, key in enumerate(keys_of(listed)):
        if new := put.get(key):
            replaced = {each["name"] for each in new}
            objects[number] = [*(each for each in objects[number] if each["name"] not in replaced), *new]
    return listed.set_column(listed.schema.get_field_index("objects"), "objects", pa.array(objects, column.type))


def _key(each: Mended) -> Key:
    return each.row.topic_id, each.row.partition, each.row.start_offset, each.row.segment_id
