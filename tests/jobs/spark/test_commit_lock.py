"""Spark and delta-rs commit to one catalog on a local disk: each waits for the other, and no row is lost."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from jobs.common.spark.spark_tables import SparkTables, while_others_commit
from kidxlib.catalog.tables import BUILDS, BuildRow
from kidxlib.tables import delta_commits
from kidxlib.tables.delta_commits import committing
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import filled

ROUNDS: Final = 3
ROUNDS_EXHAUSTIVE: Final = 10
#: Longer than anything here takes.
_SECONDS_MAX: Final = 120.0

_spawn: Any = multiprocessing.get_context("spawn")


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> SparkTables:
    """By a URL, as a database has it."""
    catalog = SparkTables(spark, f"file:{tmp_path}/catalog")
    catalog.make(BUILDS)
    assert catalog.lock_place == str(tmp_path / "catalog")
    return catalog


def test_a_commit_of_spark_waits_for_another_process(
    catalog: SparkTables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Having said so in one line that names the lock."""
    monkeypatch.setattr(delta_commits, "_TOLD_AFTER_SECONDS", 0.0)
    waits = _Said()
    delta_commits._log.addHandler(waits)
    try:
        with committing(catalog.path):
            commit = threading.Thread(target=_append_one, args=(catalog, "waits"))
            commit.start()
            assert waits.said.wait(_SECONDS_MAX)
            assert commit.is_alive() and _recorded(catalog) == []
        commit.join()
    finally:
        delta_commits._log.removeHandler(waits)
    assert _recorded(catalog) == ["waits"]
    [line] = [record.getMessage() for record in caplog.records if record.name == delta_commits.__name__]
    held = f"{catalog.lock_place}/_commit.lock: held by another run that writes to this catalog"
    assert line == f"{held}; waiting until its commit is done"


def test_a_commit_of_delta_rs_waits_for_spark(spark: SparkSession, catalog: SparkTables) -> None:
    """Which stands still between its look at the table and its commit. It may take the lock again meanwhile."""
    said, done = _spawn.Event(), _spawn.Event()
    process = _spawn.Process(target=_append_when_free, args=(catalog.lock_place, said, done))

    def stand_still() -> None:
        target = DeltaTable.forPath(spark, catalog.place(BUILDS))
        version = target.history(1).head()
        process.start()
        assert said.wait(_SECONDS_MAX)
        assert not done.is_set() and target.history(1).head() == version
        _append_one(catalog, "of the same thread")
        target.delete("build_id = 'nobody'")

    while_others_commit(catalog.place(BUILDS), catalog.lock_place, stand_still)
    process.join()
    assert process.exitcode == 0
    assert _recorded(catalog) == ["delta-rs", "of the same thread"]


def test_spark_and_delta_rs_at_once_lose_nothing(catalog: SparkTables, exhaustive: bool) -> None:
    """Two threads of one driver and two other processes; as the lock is Spark's threads', these do not wait for it."""
    rounds = ROUNDS_EXHAUSTIVE if exhaustive else ROUNDS
    processes = [
        _spawn.Process(target=_append, args=(catalog.lock_place, f"process {number}", rounds)) for number in range(2)
    ]
    names = [f"thread {number}" for number in range(2)]
    threads = [threading.Thread(target=_append_by_spark, args=(catalog, name, rounds)) for name in names]
    for each in (*processes, *threads):
        each.start()
    for each in (*processes, *threads):
        each.join()
    assert [process.exitcode for process in processes] == [0, 0]
    writers = [*names, "process 0", "process 1"]
    assert _recorded(catalog) == sorted(f"{writer}, {number}" for writer in writers for number in range(rounds))


class _Said(logging.Handler):
    """Knows when a line was logged."""

    def __init__(self, said: Any = None) -> None:
        super().__init__()
        self.said = threading.Event() if said is None else said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.set()


def _append_when_free(path: str, said: Any, done: Any) -> None:
    delta_commits._TOLD_AFTER_SECONDS = 0.0  # type: ignore[misc]
    delta_commits._log.addHandler(_Said(said))
    DeltaTables(path).append(BUILDS, _as_arrow(_build("delta-rs")))
    done.set()


def _append(path: str, writer: str, rounds: int) -> None:
    for number in range(rounds):
        DeltaTables(path).append(BUILDS, _as_arrow(_build(f"{writer}, {number}")))


def _append_by_spark(catalog: SparkTables, writer: str, rounds: int) -> None:
    for number in range(rounds):
        _append_one(catalog, f"{writer}, {number}")


def _append_one(catalog: SparkTables, build_id: str) -> None:
    catalog.append(BUILDS, _as_arrow(_build(build_id)))


def _build(build_id: str) -> BuildRow:
    now = datetime(2026, 11, 24, tzinfo=UTC)
    return BuildRow.of_dict(filled(BUILDS.schema(), {"build_id": build_id, "started_at": now}))


def _as_arrow(row: BuildRow) -> pa.Table:
    return pa.Table.from_pylist([row.values()], BUILDS.schema())


def _recorded(catalog: SparkTables) -> list[str]:
    return sorted(map(str, catalog.read(BUILDS, ["build_id"])["build_id"].to_pylist()))
