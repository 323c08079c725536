"""Work on the processes of this machine: what units give is there once, whatever becomes of a worker."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.rows import Column, kinds_of
from kidxlib.engine.local import LocalEngine, Workers, until_stopped
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import ItemRows, RowsInItem, SharedRows, Work
from kidxlib.errors import KidxError
from tests.faults.disks import mounted

_COLUMN: Final = Column("number", pa.int64(), "", nullable=False)
_MOMENT_SECONDS: Final = 0.5
SCHEMA: Final = kinds_of(one=[_COLUMN], many=[_COLUMN])


def _count(items: Iterable[int]) -> Iterator[ItemRows]:
    """One row of one kind an item, and as many of the other as its number says."""
    for item in items:
        many = pa.StructArray.from_arrays(
            [pa.array(range(item), pa.int64())], fields=[_COLUMN.field.with_nullable(True)]
        )
        batch = pa.RecordBatch.from_arrays([pa.nulls(item, SCHEMA.field("one").type), many], schema=SCHEMA)
        yield ItemRows(1, item, [batch], [{"one": {"number": item}}])


def _die_of_a_mapped_file(items: Iterable[int], use_mmap: bool) -> Iterator[ItemRows]:
    for item in items:
        if use_mmap and item == 3:
            os.kill(os.getpid(), signal.SIGBUS)
        yield from _count([item])


def _die_when_asking(_: int, use_mmap: bool) -> int:
    """Where files may be mapped, be killed while asking again and again whether the command was interrupted."""
    if use_mmap:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        deque(until_stopped(itertools.repeat(0)), maxlen=0)
    return os.getpid()


def _die_first(number: int, use_mmap: bool) -> int:
    if use_mmap and number == 0:
        os._exit(1)
    return number


def _die(_: bytes, use_mmap: bool) -> None:
    os._exit(1)


def _is_pandas_there(items: Iterable[int]) -> Iterator[ItemRows]:
    """Whether it was imported where Arrow has made an array of a list."""
    for _ in items:
        pa.array([1, 2])
        yield ItemRows(rows=[{"one": {"number": int("pandas" in sys.modules)}}])


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """For tests that do not mind whether they are started."""
    with Workers(2) as workers:
        yield workers


def _run(workers: Workers, directory: Path, do: Any) -> tuple[Engine, list[int], list[int]]:
    engine = LocalEngine(workers, directory)
    staged = engine.run(Work("here", [[5, 1], [3], [], [0, 100_000]], do, SCHEMA, maps=do is _die_of_a_mapped_file))
    found = staged.found("one", "many")
    assert sum(batch.num_rows for batch in staged.batches("many")) == found["many"].num_rows
    one, many = (sorted(map(int, found[kind]["number"].to_numpy())) for kind in ("one", "many"))
    return engine, one, many


@pytest.mark.parametrize("do", [_count, _die_of_a_mapped_file])
def test_each_unit_is_there_once(do: Any, workers: Workers, tmp_path: Path) -> None:
    engine, one, many = _run(workers, tmp_path, do)
    assert one == [0, 1, 3, 5, 100_000]
    assert many == sorted(number for item in one for number in range(item))
    assert (engine.done().segments, engine.done().log_bytes) == (5, 100_009)


def test_a_worker_that_is_killed_while_it_asks_for_the_end_holds_nobody_up() -> None:
    """A lock around the answer would stay locked, for the command and for those that come next."""
    taken: list[int] = []
    with Workers(2) as workers:
        workers.run(_die_when_asking, range(2), taken.append)
    assert len(taken) == 2


def test_a_worker_that_dies_while_others_start_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is there gets a unit, dies of it, and is gone before the next one has started."""
    taken: list[int] = []
    with Workers(3) as workers:
        workers.run(_die_first, [1], taken.append)
        start = SpawnProcess.start

        def start_late(process: SpawnProcess) -> None:
            start(process)
            for other in multiprocessing.active_children():
                if other is not process:
                    other.join(_MOMENT_SECONDS)

        monkeypatch.setattr(SpawnProcess, "start", start_late)
        workers.run(_die_first, range(5), taken.append)
    assert sorted(taken) == [0, 1, 1, 2, 3, 4]


def test_workers_that_die_again_and_again_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they die as they start, while they are given more than a pipe holds."""
    units = [bytes(1 << 20), bytes(1 << 20)]
    with Workers(2) as workers, pytest.raises(KidxError, match="again and again"):
        workers.run(_die, units, lambda _: None)
    monkeypatch.setattr("kidxlib.engine.local._serve", "no function")
    with Workers(2) as workers, pytest.raises(KidxError, match="again and again"):
        workers.run(_die, units, lambda _: None)


def test_workers_import_no_pandas(workers: Workers, tmp_path: Path) -> None:
    staged = LocalEngine(workers, tmp_path).run(Work("pandas", [[0]], _is_pandas_there, SCHEMA))
    assert staged.rows("one")["number"].to_pylist() == [0]


def _where(items: Iterable[SharedRows], use_mmap: bool) -> Iterator[ItemRows]:
    """The numbers that were shared, by the process that does it; and whether it may map files."""
    for item in items:
        numbers = [number for batch in item.batches() for number in batch["number"].to_pylist()]
        rows = [{"one": {"number": os.getpid()}}, {"one": {"number": int(use_mmap)}}]
        yield ItemRows(rows=[*rows, *({"many": {"number": number}} for number in numbers)])


@pytest.mark.parametrize("here", [False, True])
def test_a_little_is_done_by_the_command_itself(here: bool, tmp_path: Path) -> None:
    """It maps nothing there. What was shared with workers is what they read."""
    numbers = pa.table({"number": pa.array(range(70_000), pa.int64())})
    with Workers(1) as workers:
        engine = LocalEngine(workers, tmp_path)
        units: list[list[SharedRows]] = [[engine.share(numbers)], [RowsInItem(numbers)]]
        staged = engine.run(Work("here", units, _where, SCHEMA, is_small=here, maps=True))
        found = staged.found("one", "many")
        staged.remove()
    one = set(found["one"]["number"].to_pylist())
    assert (os.getpid() in one, 0 in one) == (here, here)
    assert sorted(map(int, found["many"]["number"].to_numpy())) == sorted(2 * list(range(70_000)))
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("here", [False, True])
def test_rows_come_in_the_order_of_their_units(here: bool, tmp_path: Path) -> None:
    """Of more than ten, whose files have names with two digits; and of one kind each time."""
    with Workers(2) as workers:
        engine = LocalEngine(workers, tmp_path)
        units = [[number, number + 100] for number in range(12)]
        staged = engine.run(Work("here", units, _count, SCHEMA, is_small=here))
        one, many = (
            [number for batch in staged.batches(kind) for number in batch["number"].to_pylist()]
            for kind in ("one", "many")
        )
    assert one == [number for unit in units for number in unit]
    assert many == [number for of_item in one for number in range(of_item)]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=64k") as disk,
        Workers(2) as workers,  # of its own: they end, with what others of them still write, before the disk goes
        pytest.raises(KidxError, match=f"^{disk}.*No space left on device"),
    ):
        _run(workers, disk, _count)


def test_of_no_work_there_are_no_rows(tmp_path: Path) -> None:
    with Workers(1) as workers:
        staged = LocalEngine(workers, tmp_path).run(Work("here", [], _count, SCHEMA))
    assert staged.rows("one", ["number"]).num_rows == 0
