"""Remote segments that audits record, against the bucket's files and the metadata."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kidxlib.audit.tiered.listing import JudgedAsOf
from kidxlib.audit.tiered.remote_finding import RemoteFindingRow, RemoteSegmentKey, broken_remote
from kidxlib.catalog.findings import REMOTE_SEGMENTS, ListedSegmentRow
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.tiered.bucket_audit import record_bucket_audit
from kidxlib.operations.tiered.tiered_request import TieredRecordRequest
from kidxlib.run.context import RunContext
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.audits import verified_tiered
from tests.support.remote_rows import catalog_at, remote_rows
from tests.support.tiered_sites import SAMPLE, RemoteSegment, Site, damages

_PLACES: Final = [("payments", 0), ("readings", 0), ("readings", 1)]
_DAMAGES: Final = damages("readings", "payments")
_ORPHAN: Final = "kidx-" * 4 + "nA"
_STARTED, _DELETED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
#: Columns that say what the metadata says.
_OF_METADATA: Final = REMOTE_SEGMENTS.column_names[2:17]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """The sample, older than its metadata by the times of its files, too."""
    site = SAMPLE.copy(tmp_path)
    older_ns = (site.last_ms() - 1) * 1_000_000
    for path in site.bucket.rglob("*-*.*"):
        os.utime(path, ns=(0, older_ns))
    return site


def _audited(site: Site, catalog: Path, *options: object, code: int) -> dict[str, Any]:
    where = (f"it={site.bucket}", "--tiered-metadata", site.log_dir, "--catalog", catalog)
    return verified_tiered(*where, *options, code=code)


def _objects(segment: RemoteSegment) -> list[tuple[str, str, int, int]]:
    found = sorted(segment.objects().items(), key=lambda item: item[1].name)
    return [(suffix, path.name, path.stat().st_size, path.stat().st_mtime_ns // 1_000_000) for suffix, path in found]


def _listed(row: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    assert all(each["etag"] is None for each in row["objects"]), "a file has none"
    return [(each["suffix"], each["name"], each["bytes"], each["written_ms"]) for each in row["objects"]]


def test_each_segment_is_a_row(site: Site, tmp_path: Path) -> None:
    """What the metadata says, and the files that are there; a second audit is another run."""
    catalog = catalog_at(tmp_path / "catalog")
    found = _audited(site, catalog, code=0)
    rows, segments = remote_rows(catalog), [each for place in _PLACES for each in site.segments(*place)]
    assert len(rows) == len(segments) == found["segments"]["COPY_SEGMENT_FINISHED"]["segments"]
    assert (found["catalog"], found["source"]) == (str(catalog), "it")
    by_id = {row["segment_id"]: row for row in rows}
    for segment in segments:
        row = by_id[segment.id]
        assert {name: row[name] for name in _OF_METADATA} == {name: segment.row[name] for name in _OF_METADATA}
        assert _listed(row) == _objects(segment)
        assert (row["findings"], row["repairs"], row["level"]) == ([], [], "listing")
        assert (row["audit_id"], row["metadata_ms"]) == (found["audit_id"], found["as_of_ms"])
    _audited(site, catalog, "--now", "2030-01-01T00:00Z", code=0)
    assert len({row["audit_id"] for row in remote_rows(catalog)}) == 2


def test_what_the_metadata_does_not_know_and_what_is_deleted(site: Site, tmp_path: Path) -> None:
    """An orphan has a row without what only the metadata says; what is deleted has one if it has left something."""
    catalog = catalog_at(tmp_path / "catalog")
    first, second, third = site.segments("readings")[:3]
    third.copy_objects(_ORPHAN, 7)
    for segment in (first, second):
        segment.update(_STARTED, _DELETED, at_ms=site.last_ms())
    second.remove()
    _audited(site, catalog, code=0)
    by_id = {row["segment_id"]: row for row in remote_rows(catalog)}
    assert second.id not in by_id
    assert by_id[first.id]["state"] == _DELETED.name
    assert [each["reason"] for each in by_id[first.id]["findings"]] == ["left-after-delete"]
    orphan = by_id[_ORPHAN]
    assert [each["reason"] for each in orphan["findings"]] == ["orphan"]
    assert (orphan["start_offset"], orphan["is_read"]) == (7, False)
    assert {orphan[name] for name in ("state", "end_offset", "log_bytes", "leader_epochs")} == {None}
    assert LOG_SUFFIX in {each["suffix"] for each in orphan["objects"]}


@pytest.mark.parametrize("name", _DAMAGES)
def test_findings_are_with_their_segments(name: str, site: Site, tmp_path: Path) -> None:
    """All that the report names, and no other."""
    catalog = catalog_at(tmp_path / "catalog")
    damage = _DAMAGES[name]
    damage.plant(site)
    found = _audited(site, catalog, "--level", damage.level, "--fail-on", "safe", code=3)
    names = ("file", "verdict", "reason", "position", "detail", "consequence")
    said = [(each["segment_id"], each["start_offset"], *(each[name] for name in names)) for each in found["findings"]]
    recorded = [
        (row["segment_id"], row["start_offset"], *(each[name] for name in names))
        for row in remote_rows(catalog)
        for each in row["findings"]
    ]
    assert sorted(map(repr, recorded)) == sorted(map(repr, said)) != []


def test_what_is_said_of_a_topic_stands_with_its_first_segment(tmp_path: Path) -> None:
    """Whatever its first partition has. Of a topic without segments it stands nowhere."""
    tables, at = DeltaTables(str(catalog_at(tmp_path / "catalog"))), datetime(2026, 11, 26, tzinfo=UTC)
    rows = [_row("a", 1, 0), _row("a", 1, 5), _row("b", 0, 0), _row("a", 3, 0)]
    listed = pa.Table.from_pylist(rows, REMOTE_SEGMENTS.schema(ListedSegmentRow.names()))
    finding = broken_remote("metadata", "metadata-expires-first", "detail", "consequence")
    key = RemoteSegmentKey(start_offset=0, segment_id=None)
    found = [RemoteFindingRow.found(TopicIdPartition(topic * 22, topic, -1), key, finding) for topic in "abc"]
    context = RunContext(catalog=tables.path, database=None, now=at, event_log_dir=None)
    recorded_as, as_of = TieredRecordRequest(context, "id", "it", "listing"), JudgedAsOf(metadata_ms=1, stuck_ms=1)
    assert record_bucket_audit(tables, recorded_as, listed, found, as_of) == 4
    with_findings = [row for row in remote_rows(Path(tables.path)) if row["findings"]]
    assert [(row["topic"], row["partition"], row["start_offset"]) for row in with_findings] == [
        ("a", 1, 0),
        ("b", 0, 0),
    ]


def _row(topic: str, partition: int, start_offset: int) -> dict[str, Any]:
    values = {"topic": topic, "partition": partition, "topic_id": topic * 22, "start_offset": start_offset}
    return ListedSegmentRow.of({**values, "segment_id": "s" * 22, "is_read": True, "objects": []}).values()


def test_delta_readers_see_it(tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path / "catalog")
    _audited(SAMPLE, catalog, code=0)
    table = DeltaTable(catalog / REMOTE_SEGMENTS.name)
    assert table.to_pyarrow_table().num_rows == len(remote_rows(catalog)) > 0
