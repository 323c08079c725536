"""What results change in the catalog, against the same said of one row at a time, as Python objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog import updates
from kidxlib.catalog.change import Change, Found
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.results import COMPACTED, FINISHED, SCANNED, PublishedSegmentRow
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import LATER_NAMES, SEGMENTS, FinishedFacts, IndexFacts, LogVersion
from kidxlib.recovery.outcome import Status
from tests.conftest import one_in
from tests.support.catalog import filled

Rows = list[dict[str, Any]]
#: Rows have many columns: each example takes some ten milliseconds.
FEW: Final = one_in(10)
NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
_COUNT: Final = st.none() | st.integers(0, 2)


def keys(width: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Values of a segment's key, and one more where the table's is longer."""
    values = [st.just("s"), st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)]
    return st.tuples(*values[:width])


def rows_of(
    schema: pa.Schema | pa.StructType, key: Sequence[str], some: st.SearchStrategy[dict[str, Any]]
) -> st.SearchStrategy[Rows]:
    """Rows with unique keys."""

    def row(parts: tuple[tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
        return filled(schema, {**dict(zip(key, parts[0], strict=True)), **parts[1]})

    made = st.tuples(keys(len(key)), some).map(row)
    return st.lists(made, max_size=6, unique_by=lambda each: tuple(each[name] for name in key))


SEGMENT: Final = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ok", "truncated", "gone", "deleted"]),
        "batches": _COUNT,
        "max_timestamp_ms": st.sampled_from([None, -1, 0, 1_700_000_000_000, 2**62]),
        "log_mtime_ns": st.sampled_from([None, 0, 1_700_000_000_000_000_999]),
        "offset_index_bytes": _COUNT,
        "leader_epochs": st.none() | st.lists(st.just({"epoch": 1, "start_offset": 2, "position": 3}), max_size=1),
    }
)
KNOWN: Final = rows_of(
    SEGMENTS.schema(),
    SEGMENTS.key,
    st.builds(
        lambda scan, later: {**scan, **later},
        SEGMENT,
        st.fixed_dictionaries(
            {"producer_state": st.sampled_from([None, "snapshot"]), "build_id": st.sampled_from("12")}
        ),
    ),
)


def table_of(rows: Rows, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def kind(schema: pa.Schema, name: str) -> pa.Schema:
    """The schema of the rows of one kind, as they come from a staging directory."""
    return pa.schema(list(schema.field(name).type))


OF_INDEXES: Final = kind(COMPACTED, "compacted")
#: The same with the columns that are never null.
SCANNED_SEGMENT: Final = pa.schema([column.field for column in PublishedSegmentRow.columns()])


def applied(table: Table, known: Rows, change: Change, found: Found) -> tuple[Rows, int]:
    """The table after a change, in the order of its key; and what the change counts."""
    made = change(table_of(known, table.schema()), found)
    after = {key_of(table, row): row for row in table_of(known, table.schema()).to_pylist()}
    inserts, new, gone = (rows.to_pylist() for rows in (made.inserts, made.updates, made.deletes))
    assert not {key_of(table, row) for row in inserts} & after.keys()
    assert {key_of(table, row) for row in [*new, *gone]} <= after.keys()
    assert all(after[key_of(table, row)] != row for row in new), "an update that changes nothing"
    after |= {key_of(table, row): row for row in [*inserts, *new]}
    for row in gone:
        del after[key_of(table, row)]
    return [after[key] for key in sorted(after)], made.counted


def key_of(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)


def by_key(table: Table, rows: Rows) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {key_of(table, row): row for row in table_of(rows, table.schema()).to_pylist()}


def in_order(rows: Mapping[tuple[Any, ...], dict[str, Any]]) -> Rows:
    return [rows[key] for key in sorted(rows)]


def shown(milliseconds: int | None) -> datetime | None:
    """A timestamp of Kafka's as SQL shows it."""
    if milliseconds in (None, -1) or milliseconds > 253_402_300_799_999:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC)


@FEW
@given(known=KNOWN, found=rows_of(SCANNED_SEGMENT, SEGMENTS.key, SEGMENT))
def test_scanned(known: Rows, found: Rows) -> None:
    expected, counted = by_key(SEGMENTS, known), 0
    for row in found:
        before = expected.get(key_of(SEGMENTS, row))
        facts = {name: row[name] for name in SEGMENTS.column_names if name in row}
        if row["status"] == Status.GONE or (before and all(before[name] == value for name, value in facts.items())):
            continue
        counted += 1
        mtime = row["log_mtime_ns"]
        expected[key_of(SEGMENTS, row)] = {
            **facts,
            **dict.fromkeys(LATER_NAMES),
            "build_id": "new",
            "max_timestamp": shown(row["max_timestamp_ms"]),
            "log_mtime": None if mtime is None else datetime.fromtimestamp(mtime // 10**9, UTC),
        }
    change = partial(updates.scanned, build_id="new")
    after, made = applied(SEGMENTS, known, change, {"segment": table_of(found, kind(SCANNED, "segment"))})
    assert (after, made) == (in_order(expected), counted)


EVENTS: Final = rows_of(
    PRODUCER_EVENTS.schema(), PRODUCER_EVENTS.key, st.fixed_dictionaries({"producer_id": st.integers(0, 1)})
)
ABORTED: Final = rows_of(ABORTED_TRANSACTIONS.schema(), ABORTED_TRANSACTIONS.key, st.just({}))


@FEW
@given(
    known=EVENTS,
    found=EVENTS,
    scanned=rows_of(SCANNED_SEGMENT, SEGMENTS.key, SEGMENT),
)
def test_events(known: Rows, found: Rows, scanned: Rows) -> None:
    """Of a segment that was read all events are replaced, also where none was found; of others none."""
    scope = {key_of(SEGMENTS, row) for row in scanned}
    found = [row for row in found if key_of(SEGMENTS, row) in scope]
    before = by_key(PRODUCER_EVENTS, known)
    kept = {key: row for key, row in before.items() if key_of(SEGMENTS, row) not in scope}
    expected = kept | by_key(PRODUCER_EVENTS, found)
    tables = {
        "segment": table_of(scanned, kind(SCANNED, "segment")),
        "event": table_of(found, kind(SCANNED, "event")),
    }
    after, counted = applied(PRODUCER_EVENTS, known, updates.events, tables)
    changed = {key for key in before | expected if before.get(key) != expected.get(key)}
    assert (after, counted) == (in_order(expected), len(changed))


FOLDED: Final = st.fixed_dictionaries({"unfolded": st.lists(st.integers(0, 2), unique=True)})


@FEW
@given(
    known=ABORTED,
    found=ABORTED,
    finished=rows_of(kind(FINISHED, "partition"), PARTITIONS.key, FOLDED),
)
def test_aborted(known: Rows, found: Rows, finished: Rows) -> None:
    """Of a partition that was finished all are replaced, those of segments that are missing by now among them, wherever
    these were; but for those of segments that were not folded again.
    """
    unfolded = {key_of(PARTITIONS, row): row["unfolded"] for row in finished}
    found = [row for row in found if row["base_offset"] not in unfolded.get(key_of(PARTITIONS, row), range(2**62))]
    before = by_key(ABORTED_TRANSACTIONS, known)
    kept = {key: row for key, row in before.items() if key[:3] not in unfolded or key[3] in unfolded[key[:3]]}
    expected = kept | by_key(ABORTED_TRANSACTIONS, found)
    tables = {
        "partition": table_of(finished, kind(FINISHED, "partition")),
        "aborted": table_of(found, kind(FINISHED, "aborted")),
    }
    after, _ = applied(ABORTED_TRANSACTIONS, known, updates.aborted, tables)
    assert after == in_order(expected)


FINISH: Final = st.fixed_dictionaries(
    {
        "status": st.sampled_from([None, "quarantined"]),
        "reason": st.none() | st.just("r"),
        "producer_state": st.just("snapshot"),
    }
)


@FEW
@given(known=KNOWN, found=rows_of(kind(FINISHED, "segment"), SEGMENTS.key, FINISH))
def test_finished(known: Rows, found: Rows) -> None:
    expected, counted = by_key(SEGMENTS, known), 0
    for row in found:
        if (before := expected.get(key_of(SEGMENTS, row))) is None:
            continue
        after = {**before, **{name: row[name] for name in FinishedFacts.names()}}
        if row["status"] is not None:
            after |= {name: row[name] for name in ("status", "reason", "reason_position", "reason_detail")}
            after |= {name: None for name in before if name.startswith(("offset_index_", "time_index_"))}
        named = (*FinishedFacts.names(), *(("status",) if row["status"] is not None else ()))
        if any(after[name] != before[name] for name in named):
            counted += before["build_id"] != "1"
            expected[key_of(SEGMENTS, row)] = {**after, "build_id": "1"}
    change = partial(updates.finished, build_id="1")
    after_all, made = applied(SEGMENTS, known, change, {"segment": table_of(found, kind(FINISHED, "segment"))})
    assert (after_all, made) == (in_order(expected), counted)


@FEW
@given(
    known=KNOWN,
    changed=rows_of(
        kind(COMPACTED, "compacted"), SEGMENTS.key, st.fixed_dictionaries({"log_mtime_ns": st.sampled_from([None, 0])})
    ),
)
def test_coarsened_and_deleted(known: Rows, changed: Rows) -> None:
    found = [{**row, "interval_bytes": 99, "action": "coarsen"} for row in changed]
    before = by_key(SEGMENTS, known)
    at = {key_of(SEGMENTS, row): row for row in found}
    same = {
        key
        for key, row in at.items()
        if key in before and all(before[key][name] == row[name] for name in LogVersion.names())
    }
    expected = {
        key: {**row, **{name: at[key][name] for name in IndexFacts.names()}, "interval_source": "compaction"}
        if key in same
        else row
        for key, row in before.items()
    }
    after, counted = applied(SEGMENTS, known, updates.coarsened, {"compacted": table_of(found, OF_INDEXES)})
    assert (after, counted) == (in_order(expected), len(same))

    gone = {key for key in at if key in before and before[key]["status"] != Status.DELETED}
    deleted = {"status": Status.DELETED.value, "active": False, "deleted_at": NOW}
    expected = {key: {**row, **deleted} if key in gone else row for key, row in before.items()}
    of_keys = {"segment": table_of(found, OF_INDEXES).select(SEGMENTS.key)}
    after, counted = applied(SEGMENTS, known, partial(updates.deleted, now=NOW), of_keys)
    assert (after, counted) == (in_order(expected), len(gone))


@FEW
@given(before=KNOWN, now=KNOWN, found=rows_of(SCANNED_SEGMENT, SEGMENTS.key, SEGMENT))
def test_what_another_run_has_found_later_stays(before: Rows, now: Rows, found: Rows) -> None:
    """A run finds the row of a segment changed since it compared its listing: the later state of the log counts."""
    was, is_ = by_key(SEGMENTS, before), by_key(SEGMENTS, now)

    def overtaken(row: dict[str, Any]) -> bool:
        there = is_.get(key_of(SEGMENTS, row))
        if there is None or there["build_id"] == "mine":
            return False
        earlier = was.get(key_of(SEGMENTS, row))
        by_another = earlier is None or earlier["build_id"] != there["build_id"]
        mtimes = there["log_mtime_ns"], row["log_mtime_ns"]
        return by_another and None not in mtimes and mtimes[0] > mtimes[1]

    tables = {"segment": table_of(found, kind(SCANNED, "segment"))}
    schema = SEGMENTS.schema()
    left = updates.not_overtaken(tables, table_of(before, schema), table_of(now, schema), "mine")
    expected = [key_of(SEGMENTS, row) for row in found if not overtaken(row)]
    assert [key_of(SEGMENTS, row) for row in left["segment"].to_pylist()] == expected
