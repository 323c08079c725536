"""Segments that lack facts are read for them in the order of the listing, up to a number of bytes, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kidxlib.build.changes import Changes, all_new, compare
from kidxlib.build.comparison.known_segments import KNOWN
from kidxlib.build.directories import Target
from kidxlib.build.discover import find_segments
from kidxlib.build.plan import AuxiliaryFiles, Plan
from kidxlib.build.source import Source
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.recovery.outcome import Status
from tests.docs.log_dirs import put
from tests.support.known_rows import known_row
from tests.support.logs.batches import FILLER, Batch

#: Of the logs' batches, at base offsets 0, 100 and so on.
_BODIES = (100, 5000, 200, 300)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    for number, size in enumerate(_BODIES):
        put(tmp_path / "orders-0", 100 * number, [Batch(body=FILLER[:size])])
    target = Target(index_dir=tmp_path / "index", by_source=False)
    return find_segments([Source("a", tmp_path)], re.compile(".*"), target, lambda _: OptionsOfTopic(RecoverOptions()))


def to_read(changes: Changes) -> dict[int, bool]:
    """By base offset, whether all facts are wanted of segments that are read."""
    rows = changes.to_read.select(["base_offset", "all_facts"]).to_pylist()
    return {row["base_offset"]: row["all_facts"] for row in rows}


def changes(plan: Plan, known: list[dict[str, Any]], fill_bytes: int | None) -> Changes:
    # A quarantined segment is unchanged without index files.
    rows = pa.Table.from_pylist([{**row, "status": Status.QUARANTINED} for row in known], KNOWN)
    return compare(
        plan,
        rows,
        AuxiliaryFiles(snapshots=False, epochs=False),
        publish_truncated=True,
        explicit_interval=False,
        rebuild=False,
        fill_bytes=fill_bytes,
    )


def test_up_to_a_number_of_bytes(plan: Plan) -> None:
    """A log that is larger than that does not keep others from being read."""
    known = [known_row(task) for task in plan.build_tasks(publish_truncated=True)]
    assert to_read(changes(plan, known, None)) == {}
    assert to_read(changes(plan, known, 0)) == {}
    assert to_read(changes(plan, known, 161)) == {0: True}
    assert to_read(changes(plan, known, 161 + 261 + 360)) == {0: True, 200: True}
    assert to_read(changes(plan, known, 10_000)) == {0: True, 100: True, 200: True, 300: True}
    assert changes(plan, known, 161).unknown_facts == dict.fromkeys(
        ("log_crc32c", "smallest_timestamp_ms", "log_crc64nvme"), 3
    )


def test_what_is_known_is_not_read_again(plan: Plan) -> None:
    """Where all bytes were read a fact that is null all the same is one that cannot be known."""
    known = [known_row(task) for task in plan.build_tasks(publish_truncated=True)]
    known[0]["log_crc64nvme"] = -1
    assert to_read(changes(plan, known, 10_000)) == {100: True, 200: True, 300: True}


def test_new_segments_are_read_anyhow(plan: Plan) -> None:
    """Their bytes count, too."""
    known = [known_row(task) for task in plan.build_tasks(publish_truncated=True)][1:]
    assert to_read(changes(plan, known, 161)) == {0: True}
    assert to_read(changes(plan, known, None)) == {0: False}
    assert to_read(all_new(plan, 161)) == {0: True, 100: False, 200: False, 300: False}
    assert to_read(all_new(plan)) == dict.fromkeys((0, 100, 200, 300), False)
