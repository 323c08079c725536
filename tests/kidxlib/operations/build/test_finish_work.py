"""A partition that is folded from a kept state gets the rows and the files that all of its segments give."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PRODUCER_EVENTS, PartitionStateRow
from kidxlib.catalog.results import TO_FINISH
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.indexing.changes import PartitionChange
from kidxlib.indexing.plan import PartitionTask
from kidxlib.operations.build import finish_work
from kidxlib.operations.build.finish_work import (
    KeptStates,
    PartitionsToFinish,
    PartitionToFinish,
    finish_partitions,
    kept_state,
)
from kidxlib.recovery.partition_fold import FoldState, Producers
from kidxlib.recovery.scan.scan_state import PRODUCER_EVENT, EventKind
from kidxlib.storage.location import Directory
from kidxlib.tables.delta_tables import DeltaTables
from tests.conftest import Say, one_in
from tests.docs.log_dirs import put
from tests.support.catalog import filled, filled_rows
from tests.support.files import tree
from tests.support.logs.batches import Batch, control, encode
from tests.support.spark.jobs import Ended, kidx_build_here

_PARTITIONS: Final = ("orders-0", "orders-1", "payments-0")
#: Histories, and steps of each.
_HISTORIES, _HISTORIES_EXHAUSTIVE = (1, 4), (40, 10)
#: What is another in each run.
_OF_THE_RUN: Final = ("build_id", "index_directory", "read_requests", "read_bytes")
#: A batch of a transaction.
_DATA: Final = Batch(producer_id=8, producer_epoch=0, base_sequence=0, attributes=layouts.ATTRIBUTE_TRANSACTIONAL)
_COMPARED: Final[tuple[Table, ...]] = (SEGMENTS, PRODUCER_EVENTS, ABORTED_TRANSACTIONS)


class _Partition:
    """A partition's directory, which changes as in a broker's life, and otherwise."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory, self._rng, self._end, self._epoch = directory, rng, 0, 0
        directory.mkdir(parents=True)
        self.add()
        self.add()

    def add(self) -> None:
        """One more segment or two."""
        for _ in range(self._rng.choice([1, 1, 2])):
            self._end += self._rng.choice([0, 0, 0, 2])
            self._write(self._end, self._batches())

    def grow(self) -> None:
        log = self._logs()[-1]
        with log.open("ab") as opened:
            opened.writelines(self._encoded(self._end, self._batches()))

    def lose_first(self) -> None:
        """As retention does."""
        for log in self._logs()[:-1][: self._rng.choice([1, 2])]:
            log.unlink()

    def lose_any(self) -> None:
        if len(logs := self._logs()) > 1:
            self._rng.choice(logs[:-1]).unlink()

    def write_anew(self) -> None:
        """A segment amid others has other transactions, of which the later ones know nothing yet."""
        log = self._rng.choice(self._logs())
        end = self._end
        self._write(int(log.stem), self._batches())
        self._end = max(end, self._end)

    def tear(self) -> None:
        log = self._rng.choice(self._logs())
        with log.open("r+b") as opened:
            opened.truncate(max(0, log.stat().st_size - self._rng.choice([1, 40, 200])))

    def find_snapshot(self) -> None:
        """A broker's, as in a copy whose logs came first: a transaction is open that began before these logs."""
        base_offset = int(self._rng.choice(self._logs()).stem)
        path = self.directory / segment_file(base_offset, SNAPSHOT_SUFFIX)
        if base_offset and not path.exists():
            path.write_bytes(_snapshot(self._rng.randint(7, 9), base_offset - 1))

    def _write(self, base_offset: int, batches: list[Batch]) -> None:
        log = self.directory / segment_file(base_offset, LOG_SUFFIX)
        log.write_bytes(b"".join(self._encoded(base_offset, batches)))

    def _encoded(self, base_offset: int, batches: list[Batch]) -> list[bytes]:
        self._end = base_offset + len(batches)
        return encode(base_offset, batches)

    def _logs(self) -> list[Path]:
        return sorted(self.directory.glob(f"*{LOG_SUFFIX}"))

    def _batches(self) -> list[Batch]:
        found = []
        for _ in range(self._rng.randint(1, 5)):
            self._epoch += self._rng.random() < 0.1
            producer: dict[str, Any] = {"producer_id": self._rng.randint(7, 9), "leader_epoch": self._epoch}
            kind = self._rng.choice(["data", "data", "data", "abort", "abort", "commit", "plain"])
            if kind in ("abort", "commit"):
                marker = control(bytes(4) if kind == "abort" else b"\0\0\0\1")
                found.append(Batch(**{**marker, **producer}))
            else:
                # A producer without transactions of its own: Kafka fails where one writes both.
                attributes = layouts.ATTRIBUTE_TRANSACTIONAL if kind == "data" else 0
                own = producer if kind == "data" else {**producer, "producer_id": 70}
                found.append(Batch(**own, producer_epoch=0, base_sequence=0, attributes=attributes))
        return found


def _snapshot(producer_id: int, offset: int) -> bytes:
    """Of a producer whose transaction began at an offset, and is open."""
    events = np.zeros(1, PRODUCER_EVENT)
    events["kind"], events["producer_id"] = EventKind.TRANSACTIONAL_DATA, producer_id
    events["first_offset"] = events["last_offset"] = offset
    producers = Producers()
    producers.apply(events)
    return producers.snapshot()


#: A broker adds and grows more often than anything else happens.
_CHANGES: Final[tuple[Callable[[_Partition], None], ...]] = (
    *[_Partition.add] * 6,
    *[_Partition.grow] * 4,
    *(_Partition.lose_first, _Partition.lose_any, _Partition.write_anew, _Partition.tear),
    *[_Partition.find_snapshot] * 2,
)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The states that builds go on from: of how many segments each is."""
    found: list[int] = []

    def noting(row: PartitionStateRow) -> FoldState:
        found.append(row.segments)
        return kept_state(row)

    monkeypatch.setattr(finish_work, "kept_state", noting)
    return found


def test_random_histories_give_what_whole_folds_give(
    tmp_path: Path, rng: random.Random, exhaustive: bool, taken: list[int], say: Say
) -> None:
    """After each step: rows, index files and the summary. One catalog loses its states before each build."""
    histories, steps = _HISTORIES_EXHAUSTIVE if exhaustive else _HISTORIES
    for number in range(histories):
        place = tmp_path / f"history-{number}"
        partitions = [_Partition(place / "kafka-logs" / name, rng) for name in _PARTITIONS]
        for step in range(steps):
            shutil.rmtree(place / "whole" / "catalog" / PARTITION_STATES.name, ignore_errors=True)
            kept, whole = (_build(place, name) for name in ("kept", "whole"))
            assert _summary(kept) == _summary(whole)
            for table in _COMPARED:
                assert _rows(place / "kept", table) == _rows(place / "whole", table), table.name
            of_whole = _rows(place / "whole", PARTITION_STATES)  # of partitions that were finished in this step
            finished = {(row["topic"], row["partition"]) for row in of_whole}
            of_kept = _rows(place / "kept", PARTITION_STATES)
            assert [row for row in of_kept if (row["topic"], row["partition"]) in finished] == of_whole
            assert tree(place / "kept" / "index") == tree(place / "whole" / "index")
            grown = partitions[step % len(partitions)]
            grown.add()
            for partition in partitions[0 if step else 1 :]:  # after the first step one at least goes on from its state
                for change in rng.sample(_CHANGES, rng.choice([0, 1, 1, 1])):
                    change(partition)
    say(f"went on from {len(taken)} states, of up to {max(taken, default=0)} segments")
    assert max(taken) > 1


def test_a_log_that_vanished_or_a_snapshot_that_came_behind_the_state(tmp_path: Path, taken: list[int]) -> None:
    """The log is neither among the segments that led to the state, nor among those that are folded from there: it has
    no aborted transaction any more. The snapshot tells of a transaction that the states did not know.
    """
    vanishing, told = (tmp_path / "kafka-logs" / name for name in _PARTITIONS[:2])
    put(vanishing, 0, [_DATA])
    for partition, base_offset in ((vanishing, 1), (told, 5), (told, 6)):
        put(partition, base_offset, [Batch(**{**control(bytes(4)), "producer_id": 8})])
    _build(tmp_path, "kept")
    assert _aborted(tmp_path) == [("orders", 0, 0, 1)]
    (vanishing / segment_file(1, LOG_SUFFIX)).unlink()
    (told / segment_file(6, SNAPSHOT_SUFFIX)).write_bytes(_snapshot(8, 4))
    for partition, base_offset in ((vanishing, 2), (told, 7)):
        put(partition, base_offset, [_DATA])
    _build(tmp_path, "kept")
    assert _aborted(tmp_path) == [("orders", 1, 4, 6)]
    assert taken == [1, 1], "each from the state after its first log"


@pytest.mark.parametrize("snapshots", [False, True])
@one_in(5)
@given(data=st.data(), rows_per_batch=st.integers(1, 9))
def test_plain_segments_are_finished_as_others(snapshots: bool, data: st.DataObject, rows_per_batch: int) -> None:
    """The same rows and files as where no segment counts as plain."""
    rows = data.draw(st.lists(_of_partition(), min_size=1, max_size=3))
    table = pa.Table.from_pylist(
        [{"source": "s", "topic": "t", "partition": number, **row} for number, part in enumerate(rows) for row in part],
        TO_FINISH,
    )
    found = []
    for has_plain in (True, False):
        with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
            if not has_plain:
                patch.setattr(finish_work, "_are_plain", lambda segments: np.zeros(len(segments), np.bool_))
            given_batches = _Batches(table.to_batches(max_chunksize=rows_per_batch))
            tasks = [_task(Path(place), number, snapshots) for number in range(len(rows))]
            partitions = {task.key: PartitionToFinish(task, {}) for task in tasks}
            share = PartitionsToFinish(given_batches, table.nbytes, partitions)
            of_kinds = [row for item in finish_partitions([share]) for row in (*_of_batches(item.batches), *item.rows)]
            found.append((sorted(map(str, of_kinds)), tree(Path(place) / "index")))
    assert found[0] == found[1]


class _Batches(NamedTuple):
    """Rows that are shared as batches that end anywhere."""

    of_rows: list[pa.RecordBatch]

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.of_rows


def _of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {kind: values for kind, values in row.items() if values is not None}


def _task(place: Path, number: int, snapshots: bool) -> PartitionTask:
    index = place / "index" / f"t-{number}"
    index.mkdir(parents=True)
    (index / segment_file(2, TRANSACTION_INDEX_SUFFIX)).write_bytes(b"of before")
    logs = place / "kafka-logs" / f"t-{number}"
    logs.mkdir(parents=True)
    (logs / segment_file(4, SNAPSHOT_SUFFIX)).write_bytes(_snapshot(8, 1))
    return PartitionTask(
        key=("s", "t", number),
        segments_directory=Directory(str(logs), ""),
        index_directory=Directory(str(place / "index"), f"t-{number}"),
        in_place=False,
        snapshots=snapshots,
        epochs=True,
    )


@st.composite
def _of_partition(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of `TO_FINISH`: segments of one offset or two, most of them plain, and events of some."""
    rows: list[dict[str, Any]] = []
    end = 0
    for _ in range(draw(st.integers(1, 7))):
        base_offset = end + draw(st.sampled_from([0, 0, 0, 1]))
        end = base_offset + draw(st.integers(1, 2))
        status = draw(st.sampled_from(["ok"] * 6 + ["gone", "truncated", "unreadable"]))
        was_read = status != "unreadable"
        epochs = draw(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0, end, end, -1])), max_size=2))
        segment = {
            "status": status,
            "problem_free": status in ("ok", "gone"),
            "next_offset": end if was_read else None,
            "map_end_offset": draw(st.sampled_from([end, end, None])) if was_read else None,
            "offset_index_bytes": draw(st.sampled_from([0, 0, 8, None])) if was_read else None,
            "leader_epochs": [{"epoch": epoch, "start_offset": start, "position": 0} for epoch, start in epochs],
        }
        rows.append({"base_offset": base_offset, "position": -1, "segment": segment})
        for position in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            event: dict[str, Any] = dict.fromkeys(TO_FINISH.field("event").type.names, 0)
            kind = draw(st.sampled_from(["transactional-data", "abort", "commit"]))
            offsets = {"first_offset": base_offset, "last_offset": base_offset, "producer_id": 8}
            event |= {"kind": kind, "position": position, **offsets}
            rows.append({"base_offset": base_offset, "position": position, "event": event})
    return rows


def _aborted(place: Path) -> list[tuple[Any, ...]]:
    """Topic, partition, first and last offset of each."""
    rows = _rows(place / "kept", ABORTED_TRANSACTIONS)
    return [tuple(row[name] for name in ("topic", "partition", "first_offset", "last_offset")) for row in rows]


def _build(place: Path, name: str) -> Ended:
    where = ("--index-dir", place / name / "index", "--catalog", place / name / "catalog")
    ended = kidx_build_here("--source", f"broker={place / 'kafka-logs'}", *where, "--epochs", "--json")
    assert ended.code in (0, 3), ended.err
    return ended


def _summary(ended: Ended) -> dict[str, Any]:
    of_the_run = ("build_id", "seconds", "scan_seconds", "catalog", "started_at", "options")
    return {name: value for name, value in ended.json.items() if name not in of_the_run}


def _rows(place: Path, table: Table) -> list[dict[str, Any]]:
    names = [name for name in table.column_names if name not in _OF_THE_RUN]
    rows = DeltaTables(str(place / "catalog")).read(table, names)
    return rows.sort_by([(name, "ascending") for name in table.key]).to_pylist()


KEY: Final = ("broker", "orders", 0)
TASK: Final = PartitionTask(
    key=KEY,
    segments_directory=Directory("/logs/orders-0", ""),
    index_directory=Directory("/index/orders-0", ""),
    in_place=False,
    snapshots=False,
    epochs=False,
)


def _heads(segments: int) -> pa.Table:
    """So many segments of a hundred offsets each."""
    rows = [
        {
            **filled(SEGMENTS.schema(), {"source": "broker", "topic": "orders", "partition": 0}),
            "base_offset": 100 * number,
            "next_offset": 100 * number + 100,
            "log_bytes": 1000 + number,
            "log_mtime_ns": 10**18 + number,
            "problem_free": True,
            "present": number > 0,
        }
        for number in range(segments)
    ]
    return pa.Table.from_pylist(rows, pa.schema([*SEGMENTS.schema(), ("problem_free", "bool"), ("present", "bool")]))


def _with_another(heads: pa.Table, column: str, row: int) -> pa.Table:
    """The same segments, of which one differs in a column."""
    values: Any = heads[column].to_numpy().copy()
    values[row] = not values[row] if column == "problem_free" else values[row] + 1
    return heads.set_column(heads.schema.get_field_index(column), column, pa.chunked_array([values]))


def _kept(heads: pa.Table, change: PartitionChange, states: pa.Table) -> KeptStates:
    return KeptStates([KEY], heads, np.zeros(heads.num_rows, np.int64), [change], states)


def _states(heads: pa.Table) -> pa.Table:
    """What a whole fold of these segments keeps, but for what it found."""
    change = PartitionChange(topic_id=None, first_present=0, changed_from=None, segments=0)
    partition = _kept(heads, change, PARTITION_STATES.schema().empty_table()).partition_to_finish(KEY, TASK)
    assert partition is not None and partition.task.start is None
    of_all: dict[str, Any] = {"source": "broker", "topic": "orders", "state_source": "log-start"}
    of_all |= {"producer_snapshot": b"", "leader_epochs": []}
    rows = ({**of_all, "base_offset": number, **logs.values()} for number, logs in partition.logs.items())
    return filled_rows(PARTITION_STATES, rows)


def _folded_from(heads: pa.Table, states: pa.Table, changed_from: int | None) -> int:
    change = PartitionChange(topic_id=None, first_present=100, changed_from=changed_from, segments=0)
    kept = _kept(heads, change, states)
    partition = kept.partition_to_finish(KEY, TASK)
    assert partition is not None
    base_offsets = kept.segments["base_offset"].to_numpy()
    folded_from = int(base_offsets[kept.is_folded][0])
    assert (kept.is_folded == (base_offsets >= folded_from)).all()
    assert set(partition.task.earlier) == set(range(100, folded_from, 100))
    assert (partition.task.start is None) == (folded_from == 0)
    return folded_from


def test_one_new_segment_of_a_thousand_is_all_that_is_folded() -> None:
    assert _folded_from(_heads(1001), _states(_heads(1000)), 100_000) == 100_000


def test_a_segment_that_grew_is_folded_from_the_state_before_it() -> None:
    grown = _with_another(_heads(1000), "log_bytes", 999)
    assert _folded_from(grown, _states(_heads(1000)), 99_900) == 99_900


@pytest.mark.parametrize("column", ["next_offset", "log_bytes", "log_mtime_ns", "problem_free"])
def test_no_state_is_good_after_a_segment_that_has_become_another(column: str) -> None:
    other = _with_another(_heads(1001), column, 500)
    assert _folded_from(other, _states(_heads(1000)), 100_000) == 0


def test_nor_after_one_that_has_vanished_amid_others() -> None:
    heads = _heads(1001)
    without = pa.concat_tables([heads.slice(0, 500), heads.slice(501)])
    kept = _kept(without, PartitionChange(None, 100, 100_000, 0), _states(_heads(1000)))
    assert kept.is_folded.all()


def test_all_is_folded_where_that_is_asked_for() -> None:
    assert _folded_from(_heads(1001), _states(_heads(1000)), None) == 0
