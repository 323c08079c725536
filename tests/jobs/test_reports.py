"""Every table that a command shows, on terminals of several widths: no topic and no number is shortened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import pytest

from kidxlib.audit.finding import Verdict
from kidxlib.audit.rows import COUNTED, AuditSummary
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.audit.tiered.finding import (
    METADATA,
    NEWER,
    OBJECTS,
    OTHERS,
    Level,
    RemoteFindingRow,
    RemoteSegmentKey,
    broken,
)
from kidxlib.audit.tiered.metadata import AsOf
from kidxlib.commands.compact import tell_files
from kidxlib.commands.tables import tell_tables
from kidxlib.indexing.source import source_at
from kidxlib.indexing.summary import Counts
from kidxlib.log.remote.layout import LOCAL
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.compaction.compact import CompactionReport, TopicSavings
from kidxlib.operations.maintenance.maintain import MaintainedTable, TableState
from kidxlib.operations.retention import make_plan as retention_report
from kidxlib.operations.retention import make_plan as retention_report_summary
from kidxlib.operations.retention.make_plan import TopicSummary
from kidxlib.operations.tiered.audit_tiered import TieredFound, outcome_of
from kidxlib.operations.tiered.find import Counts as TieredCounts
from kidxlib.operations.tiered.numbers import Amount, CopyLag, Deleted, Numbers, TopicSizes, WhatIf
from kidxlib.operations.tiered.remote_metadata import MetadataReader
from kidxlib.operations.tiered.repair import Mended, Outcome, Repaired
from kidxlib.operations.tiered.repair import show as show_repair
from kidxlib.operations.tiered.repair_request import RepairRequest
from kidxlib.operations.tiered.repair_work import RemadeRow
from kidxlib.operations.tiered.tiered_request import TieredRequest
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal import outcome as result
from kidxlib.terminal.audit import tell_summary
from kidxlib.terminal.build import print_counts
from tests.support.terminal import shown, without_controls

#: As long as Kafka takes them, and as large as nobody's are.
TOPICS: Final = ("orders", "payments.eu-west-1.events.v2", "t" * 249)
LARGE: Final = 987_654_321_098_765
WIDTHS: Final = (40, 80, 100, 160, 1000)


def filled(kind: type[Any], number: int, **named: object) -> Any:
    """One of these with a number in each field that takes one."""
    return kind(**{field.name: number + at for at, field in enumerate(fields(kind))} | named)


def _build() -> None:
    counts = Counts()
    for at, topic in enumerate(TOPICS):
        counts.topic(topic).add(
            segments=LARGE + at, log_bytes=LARGE, batches=at, entries=7, status="ok", published="written"
        )
    print_counts("build", counts)


def _audit() -> None:
    summary = AuditSummary()
    for verdict in Verdict:
        summary.files[".index", verdict.value] = summary.files[".log", verdict.value] = LARGE
    for at, action in enumerate(StartupAction):
        summary.add_action(action.value, LARGE, **{name: LARGE + at for name in COUNTED})
    outcome = result.Outcome()
    tell_summary(outcome, "audit", summary, ["/var/index"])
    outcome.show(as_json=False)


def _plan() -> None:
    topics = [filled(TopicSummary, LARGE, policy="default", topic=topic, oldest_ms=None) for topic in TOPICS]
    none: dict[str, object] = {"findings": [], "compacted": [], "unknown": {}, "assumed": {}}
    some = filled(
        retention_report_summary.RetentionReport, 0, topics=topics, problems=(0, []), disagreements=(0, []), **none
    )
    outcome = result.Outcome()
    retention_report.tell_plan(outcome, "plan", some, what_if=True)
    outcome.show(as_json=False)


def _compaction() -> None:
    topics = [filled(TopicSavings, LARGE, topic=topic, action="coarsen") for topic in TOPICS]
    report = filled(CompactionReport, 0, topics=topics, changed=(0, []), kept=(0, []))
    outcome = result.Outcome()
    tell_files(outcome, report, applied=False)
    outcome.show(as_json=False)


def _tables() -> None:
    state = filled(TableState, LARGE)
    tables = [filled(MaintainedTable, LARGE, table=topic, before=state, after=state) for topic in TOPICS]
    outcome = result.Outcome()
    tell_tables(outcome, tables, applied=True)
    outcome.show(as_json=False)


def _tiered_request() -> TieredRequest:
    return TieredRequest(
        layout=LOCAL,
        bucket=source_at(".").path,
        places=(),
        metadata=(),
        level=Level.LISTING,
        stuck_ms=0,
        as_of_ms=None,
        topics=re.compile(".*"),
        interval_bytes=None,
        fail_on=Verdict.BROKEN,
        known_topics=KnownTopics(),
        what_if={"retention.ms": 0},
    )


def _tiered() -> None:
    request = _tiered_request()
    metadata = MetadataReader([], request.topics).read()
    key = RemoteSegmentKey(start_offset=0, segment_id=None)
    finding = broken(METADATA, "metadata-expires-first", "detail", "consequence")
    findings = [RemoteFindingRow.found(TopicIdPartition("id", topic, -1), key, finding) for topic in TOPICS]
    names = (*SegmentState.__members__, OBJECTS, NEWER, OTHERS)
    counts = TieredCounts(dict.fromkeys(names, (LARGE, LARGE + 1)), {}, read=LARGE)
    as_of = AsOf(metadata_ms=0, stuck_ms=0)
    amount = Amount(LARGE, LARGE + 1)
    lag = filled(CopyLag, LARGE, partition=TopicIdPartition("id", TOPICS[0], 0))
    numbers = Numbers(
        as_of_ms=0,
        topics=[filled(TopicSizes, LARGE, topic=topic, topic_id="id", lags=[lag]) for topic in TOPICS],
        what_if=[
            WhatIf(topic=topic, topic_id="id", due=Deleted(), then=Deleted(amount, amount), unknown=["retention.ms"])
            for topic in TOPICS
        ],
    )
    found = TieredFound.of(findings, counts, numbers, metadata, as_of, Requests())
    outcome_of(request, found).show(as_json=False)


def _repair() -> None:
    audit = _tiered_request()
    request = RepairRequest(audit=audit, mirror=source_at(".").path, apply=True)
    rows = [filled(RemadeRow, LARGE, topic=topic, name="a", reason="missing", segment_id="id") for topic in TOPICS]
    objects = [Mended(row, outcome, "why") for row in rows for outcome in Outcome]
    metadata = MetadataReader([], audit.topics).read()
    repaired = Repaired.of(objects=objects, left=[], safe=LARGE, made=rows, metadata=metadata, requests=Requests())
    show_repair(request, repaired)


REPORTS: Final[dict[str, Callable[[], None]]] = {
    "build": _build,
    "audit": _audit,
    "plan": _plan,
    "compaction": _compaction,
    "tables": _tables,
    "tiered": _tiered,
    "repair": _repair,
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_report_says_all_at_any_width(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands there in a terminal of a thousand columns stands in all others too, whole and as often."""

    def words(columns: int) -> Counter[str]:
        written = without_controls(shown(columns, REPORTS[name], monkeypatch))
        return Counter(re.findall(r"\d[\d,]{3,}|t{249}|[a-z]+\.[a-z0-9.-]{9,}", written))

    found, expected = words(width), words(max(WIDTHS))
    assert found == expected and any(word.startswith(f"{LARGE // 1000:,},") for word in found), found
    assert name in ("audit", "repair") or set(TOPICS[1:]) <= set(found)


@pytest.mark.parametrize("name", REPORTS)
def test_no_two_columns_are_called_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal of a thousand columns each name stands in one line."""
    heads = [line for line in shown(1000, REPORTS[name], monkeypatch).splitlines() if without_controls(line)[:1] == "┃"]
    for head in heads:
        names = [cell.strip() for cell in without_controls(head).strip("┃").split("┃")]
        assert len(set(names)) == len(names) > 1, names
    assert heads
