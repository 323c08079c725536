"""Tables that go with a run hold what Delta tables would. Changes that are held back read and end as if each had been
committed at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among, Condition
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.memory_tables import HeldChanges, MemoryTables
from kidxlib.tables.protocol import FirstAndLast, Tables
from tests.conftest import one_in
from tests.kidxlib.tables.test_delta_tables import record, scanned, segment
from tests.support.catalog import filled_rows


@pytest.mark.parametrize("in_files", [False, True])
def test_they_hold_what_delta_tables_hold(in_files: bool, tmp_path: Path, rng: random.Random) -> None:
    """After each of some commits that add, replace and leave rows as they are."""
    memory = MemoryTables("here", tmp_path if in_files else None)
    delta = DeltaTables(str(tmp_path / "catalog"))
    for number in range(6):
        found = [segment(rng.randrange(3), offset, batches=rng.randrange(2)) for offset in rng.sample(range(8), 4)]
        assert len({record(tables, scanned(*found), f"build {number}") for tables in (memory, delta)}) == 1
        gone = pa.Table.from_pylist([{name: found[0][name] for name in SEGMENTS.key}], SEGMENTS.schema(SEGMENTS.key))
        change = partial(updates.deleted, now=datetime(2026, 11, 24, number, tzinfo=UTC))
        assert len({t.change_rows(SEGMENTS, {"segment": gone}, change, by=SEGMENTS.key) for t in (memory, delta)}) == 1
        assert _rows_of(memory) == _rows_of(delta)
        where = [Among("partition", (1,)), Among("status", ("deleted",), negated=True)]
        names = ["base_offset", "batches"]
        assert sorted(map(str, memory.read(SEGMENTS, names, where).to_pylist())) == sorted(
            map(str, delta.read(SEGMENTS, names, where).to_pylist())
        )


def test_a_table_is_there_once_it_is_made() -> None:
    tables = MemoryTables("here")
    assert tables.version(BUILDS) is None and tables.catalog_version(BUILDS) is None
    assert tables.read(BUILDS).num_rows == 0
    tables.make(BUILDS)
    assert tables.version(BUILDS) == 0
    tables.append(BUILDS, BUILDS.schema().empty_table())
    assert tables.version(BUILDS) == 1


def _rows_of(tables: Tables) -> list[str]:
    return sorted(map(str, tables.read(SEGMENTS).to_pylist()))


Step = Callable[[Tables], int]

_NUMBERS: Final = st.lists(st.integers(0, 3), max_size=4, unique=True)


def _rows(numbers: list[int], directory: str) -> pa.Table:
    of_all = {"source": "s", "topic": "t", "directory": directory}
    return filled_rows(PARTITIONS, ({**of_all, "partition": number} for number in numbers))


def _write(numbers: list[int], directory: str, tables: Tables) -> int:
    found = {"row": _rows(numbers, directory)}
    return tables.change_rows(PARTITIONS, found, partial(updates.written, table=PARTITIONS), by=PARTITIONS.key)


def _remove(numbers: list[int], tables: Tables) -> int:
    found = {"key": _rows(numbers, "").select(PARTITIONS.key)}
    return tables.change_rows(PARTITIONS, found, partial(updates.removed, table=PARTITIONS), by=PARTITIONS.key)


_WRITE: Final = st.builds(
    lambda numbers, directory: partial(_write, numbers, directory), _NUMBERS, st.sampled_from("ab")
)
_STEP: Final = _WRITE | st.builds(lambda numbers: partial(_remove, numbers), _NUMBERS)


def _all(tables: Tables, **asked: Any) -> list[dict[str, Any]]:
    rows = tables.read(PARTITIONS, ["partition", "directory"], **asked)
    return rows.sort_by("partition").to_pylist()


def _groups(tables: Tables, where: Sequence[Condition]) -> list[list[dict[str, Any]]]:
    counts = tables.counts(PARTITIONS, ["directory"], where).sort_by("directory")
    ends = tables.first_and_last(PARTITIONS, ["topic"], FirstAndLast("partition", "directory"), where)
    return [counts.to_pylist(), ends.to_pylist()]


@one_in(10)  # each takes some ten milliseconds
@given(before=_STEP, steps=st.lists(_STEP, max_size=5), others=st.lists(_STEP, max_size=2))
def test_they_end_as_if_committed_one_by_one(before: Step, steps: list[Step], others: list[Step]) -> None:
    """Also where others have committed meanwhile: then it is as if all that changed anything came after these."""
    at_once, held_in = _in_turn([before]), _in_turn([before])
    held = HeldChanges(held_in, PARTITIONS)
    was, made = _all(held_in), []
    for step in steps:
        version = at_once.version(PARTITIONS)
        assert step(held) == step(at_once)
        if at_once.version(PARTITIONS) != version:
            made.append(step)
        assert _all(held) == _all(at_once)
        for directory in "ab":
            where = [Among("directory", (directory,))]
            assert _all(held, where=where) == _all(at_once, where=where)
            assert _groups(held, where) == _groups(at_once, where)
        assert _groups(held, ()) == _groups(at_once, ())
    assert _all(held_in) == was, "nothing is committed yet"
    for step in others:
        step(held_in)
    version = held_in.version(PARTITIONS)
    following = 0 if version is None else version + 1
    held.commit()
    assert _all(held_in) == _all(_in_turn([before, *others, *made]))
    assert held_in.version(PARTITIONS) in (version, following), "one commit, or none"
    held.commit()
    assert _all(held) == _all(held_in)


@one_in(10)
@given(steps=st.lists(st.tuples(_WRITE, st.lists(_STEP, max_size=2)), max_size=5))
def test_what_is_held_is_read_in_place_of_what_others_commit_meanwhile(
    steps: list[tuple[partial[int], list[Step]]],
) -> None:
    """No key comes twice, as it would where two builds that make a catalog have found the same segments."""
    held_in = MemoryTables("-")
    held = HeldChanges(held_in, PARTITIONS)
    of_others: list[Step] = []
    made: list[Step] = []
    written: dict[int, str] = {}  # what is held, by partition
    for step, others in steps:
        for other in others:
            other(held_in)
            of_others.append(other)
        before = {row["partition"]: row["directory"] for row in _all(held_in)} | written
        numbers, directory = step.args
        changed = {number: directory for number in numbers if before.get(number) != directory}
        assert step(held) == len(changed)
        if changed:
            made.append(step)
        written |= changed
        seen = before | written
        assert _all(held) == [{"partition": number, "directory": seen[number]} for number in sorted(seen)]
        in_memory = MemoryTables("-")
        in_memory.append(PARTITIONS, held.read(PARTITIONS))
        assert _groups(held, ()) == _groups(in_memory, ())
    held.commit()
    assert _all(held_in) == _all(_in_turn([*of_others, *made]))


def _in_turn(steps: list[Step]) -> MemoryTables:
    """Tables in which these were committed at once."""
    tables = MemoryTables("-")
    for step in steps:
        step(tables)
    return tables


def test_other_tables_and_older_versions_are_read_as_they_are() -> None:
    tables = MemoryTables("-")
    held = HeldChanges(tables, SEGMENTS)
    _write([1], "a", held)
    assert _all(held) == _all(tables) != []
    assert held.version(PARTITIONS) == tables.version(PARTITIONS) is not None
