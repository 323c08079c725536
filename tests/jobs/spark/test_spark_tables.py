"""Tables through Spark give the groups of rows that Python makes; a catalog of version 6, as its release made it, is
brought to this version.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from jobs.common.spark import spark_tables
from jobs.common.spark.session import session
from jobs.common.spark.spark_tables import SparkMaintenance, SparkTables
from kidxlib.catalog import tables
from kidxlib.catalog import tables as catalog_tables
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, CATALOG_VERSION, TABLES, UPGRADE_ORDER, delta_properties
from kidxlib.errors import CatalogError
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.maintenance import table_state
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from tests.kidxlib.catalog.test_tables import ADDED, KEPT_TABLES, KEPT_VERSION
from tests.support.catalog import append_rows, kept_catalog
from tests.support.grouped import Segments, assert_grouped, rows_of
from tests.support.spark.sessions import use_shared_session

#: How many each run makes until it is stopped: of the 14, the first two are those of `segments`, and a table is left
#: with one of its two. The second ones are for `--exhaustive`, as each run takes ten seconds.
COMMITS: Final = (3,)
COMMITS_EXHAUSTIVE: Final = (1, 1, 3, 4)
#: Of which the rows in the kept catalog need some.
FILE_BYTES: Final = 8_000


def test_groups_of_rows(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    tables = SparkTables(spark, f"file:{tmp_path}/catalog")
    assert_grouped(tables, rows_of({}))
    keys = [(topic, partition, base_offset) for topic in "ab" for partition in range(3) for base_offset in range(6)]
    found: Segments = {
        key: (rng.choice([None, 1, 2]), rng.choice(["ok", "torn"])) for key in rng.sample(keys, len(keys) // 2)
    }
    tables.append(SEGMENTS, rows_of(found))
    assert_grouped(tables, rows_of(found))


@pytest.fixture
def fresh_spark() -> Iterator[SparkSession]:
    use_shared_session()
    with session("test") as spark:
        yield spark


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Of version 6."""
    catalog = kept_catalog(KEPT_VERSION, tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path)  # Spark reads no version that is older than a week
    return catalog


def test_an_upgrade_that_is_stopped_anywhere_is_finished_by_the_next(
    fresh_spark: SparkSession, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exhaustive: bool
) -> None:
    """All rows stay, the old versions too, and tables are as those that are new, for whoever reads or writes them."""
    tables = SparkTables(fresh_spark, str(old))
    catalog = TablesCatalog(tables)
    before = {table: DeltaTable(old / table.name).version() for table in KEPT_TABLES}
    rows = {table: _rows(DeltaTable(old / table.name), table) for table in KEPT_TABLES}
    for commits in COMMITS_EXHAUSTIVE if exhaustive else COMMITS:
        with monkeypatch.context() as stopping:
            stopping.setattr(spark_tables, "_commit", _Stopping(commits))
            with pytest.raises(_StoppedError):
                _upgrade(tables)
        assert {table: _rows(DeltaTable(old / table.name), table) for table in KEPT_TABLES} == rows
        assert catalog.oldest_version() == TablesCatalog(DeltaTables(str(old))).oldest_version() == KEPT_VERSION
        if any(_catalog_version(old / table.name) == CATALOG_VERSION for table in KEPT_TABLES):
            _assert_an_older_release_refuses_it(str(old), monkeypatch)
    _upgrade(tables)
    assert not catalog.make_tables(), "it is not a new one"

    assert catalog.oldest_version() == CATALOG_VERSION
    new = DeltaTables(str(tmp_path / "new"))
    for table, latest in before.items():
        new.append(table, table.schema().empty_table())
        assert_same_layout(old / table.name, tmp_path / "new" / table.name)
        if table is SEGMENTS or exhaustive:  # Spark takes seconds for each, and delta-rs reads all below
            was = fresh_spark.read.format("delta").option("versionAsOf", latest).load(str(old / table.name))
            now = was.withColumnsRenamed(table.renamed).sort(*table.key)
            read = fresh_spark.read.format("delta").load(tables.place(table))
            assert_df_equality(read.select(*_kept_names(table)).sort(*table.key), now, ignore_metadata=True)
        kept, upgraded = DeltaTable(old / table.name, version=latest), DeltaTable(old / table.name)
        assert _rows(kept, table) == rows[table] == _rows(upgraded, table) != []
        assert set(kept.schema().to_arrow().names) & set(table.renamed) == set(table.renamed)
        assert (upgraded.file_uris() == kept.file_uris()) is not bool(table.renamed)
    _assert_both_engines_write(fresh_spark, str(old))


def test_rows_that_are_written_anew_lie_as_in_a_new_table(
    fresh_spark: SparkSession, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In files of one size, in order, so that a query for a partition leaves out most of them by their statistics."""
    monkeypatch.setattr(spark_tables, "FILE_BYTES", FILE_BYTES)
    count = math.ceil(sum(_bytes_of_files(old / SEGMENTS.name)) / FILE_BYTES)
    spark_tables.upgrade(fresh_spark, str(old / SEGMENTS.name), SEGMENTS)
    assert len(_bytes_of_files(old / SEGMENTS.name)) == count > 1
    files = _files(old / SEGMENTS.name)
    assert {name for name in files.column_names if name.startswith("min.")} == {
        f"min.{name}" for name in SEGMENTS.statistics
    }
    topics = files.select(["min.topic", "max.topic"]).sort_by("min.topic").to_pylist()
    assert all(file["max.topic"] <= later["min.topic"] for file, later in pairwise(topics))
    for name in files["path"].to_pylist():
        order = pq.read_table(f"{old}/{SEGMENTS.name}/{name}", columns=list(SEGMENTS.order))
        assert order.num_rows > 1 and order.equals(order.sort_by([(name, "ascending") for name in SEGMENTS.order]))


def test_a_column_that_somebody_else_has_added_stays(fresh_spark: SparkSession, old: Path) -> None:
    location = str(old / SEGMENTS.name)
    fresh_spark.sql(f"ALTER TABLE delta.`{location}` ADD COLUMNS (note STRING)")
    fresh_spark.sql(f"UPDATE delta.`{location}` SET note = topic")
    spark_tables.upgrade(fresh_spark, location, SEGMENTS)
    rows = fresh_spark.read.format("delta").load(location)
    assert rows.columns == [*SEGMENTS.column_names, "note"] and rows.where("note = topic").count() == rows.count() > 0


def test_tables_are_the_same_whoever_made_them(fresh_spark: SparkSession, tmp_path: Path) -> None:
    by_spark, by_delta_rs = SparkTables(fresh_spark, str(tmp_path / "spark")), DeltaTables(str(tmp_path / "delta-rs"))
    TablesCatalog(by_spark).make_tables()
    for table in TABLES:
        by_delta_rs.append(table, table.schema().empty_table())
        assert_same_layout(tmp_path / "spark" / table.name, tmp_path / "delta-rs" / table.name)
        metadata = DeltaTable(tmp_path / "delta-rs" / table.name).metadata()
        assert metadata.configuration == delta_properties(table)
        comments = [field.metadata["comment"] for field in DeltaTable(tmp_path / "spark" / table.name).schema().fields]
        assert comments == [column.comment for column in table.columns]


def test_a_feature_that_others_cannot_read_is_refused_in_one_line(fresh_spark: SparkSession, old: Path) -> None:
    first = UPGRADE_ORDER[0].name
    fresh_spark.sql(f"ALTER TABLE delta.`{old}/{first}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(CatalogError, match=rf"catalog/{first}: has a feature .* \(reader version 3\); remove it with"):
        _upgrade(SparkTables(fresh_spark, str(old)))


def _upgrade(tables: SparkTables) -> None:
    """As jobs do."""
    for table in UPGRADE_ORDER:
        tables.make(table)


def assert_same_layout(one: Path, other: Path) -> None:
    """Protocol, properties, what the table and each column mean, types, and what is never null."""
    tables = DeltaTable(one), DeltaTable(other)
    protocols = [table.protocol() for table in tables]
    assert [(protocol.min_reader_version, protocol.min_writer_version) for protocol in protocols] == [(1, 2)] * 2
    assert tables[0].metadata().configuration == tables[1].metadata().configuration
    assert tables[0].metadata().description == tables[1].metadata().description
    assert tables[0].metadata().name == tables[1].metadata().name
    assert tables[0].schema().to_json() == tables[1].schema().to_json()


def _assert_both_engines_write(fresh_spark: SparkSession, path: str) -> None:
    tables, builds = DeltaTables(path), f"{path}/{BUILDS.name}"
    row = tables.read(BUILDS)
    tables.append(BUILDS, row.set_column(0, BUILDS.schema().field(0), [["by delta-rs"]]))
    fresh_spark.sql(f"DELETE FROM delta.`{builds}` WHERE build_id = '{row['build_id'][0]}'")
    assert tables.read(BUILDS, ["build_id"]).to_pylist() == [{"build_id": "by delta-rs"}]
    assert fresh_spark.read.format("delta").load(builds).count() == 1


class _StoppedError(Exception):
    pass


class _Stopping:
    """In the place of `_commit`: after some commits it ends as a run that is killed then, with files written."""

    def __init__(self, commits: int) -> None:
        self._commit = spark_tables._commit
        self._turn = threading.Lock()
        self._left = commits

    def __call__(self, fresh_spark: SparkSession, transaction: Any, actions: Iterable[Any]) -> None:
        written = list(actions)
        with self._turn:
            if not self._left:
                raise _StoppedError
            self._commit(fresh_spark, transaction, written)
            self._left -= 1


def _assert_an_older_release_refuses_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the table `segments` alone, in these words."""
    says = f"segments: written with catalog version {CATALOG_VERSION}, this code has {CATALOG_VERSION - 1}; use a newer"
    with monkeypatch.context() as older:
        older.setattr(catalog_tables, "CATALOG_VERSION", CATALOG_VERSION - 1)
        with pytest.raises(CatalogError, match=says):
            DeltaTables(path).catalog_version(SEGMENTS)


def _catalog_version(table: Path) -> int:
    return int(DeltaTable(table).metadata().configuration[tables.VERSION_PROPERTY])


def _kept_names(table: Table) -> list[str]:
    """Of columns that version 6 had."""
    return [name for name in table.column_names if name not in ADDED.get(table.name, ())]


def _rows(delta: DeltaTable, table: Table) -> list[dict[str, Any]]:
    """By delta-rs: all rows in the order of their key, by the columns' names of this version."""
    query = QueryBuilder().register("rows", delta)
    rows = pa.RecordBatchReader.from_stream(query.execute("SELECT * FROM rows")).read_all()
    rows = rows.rename_columns([table.renamed.get(name, name) for name in rows.column_names])
    names = _kept_names(table)
    rows = rows.select(names).cast(table.schema(names))
    return rows.sort_by([(name, "ascending") for name in table.key]).to_pylist()


def _files(table: Path) -> pa.Table:
    """A table's files, with the statistics that its log has of them."""
    return pa.table(DeltaTable(table).get_add_actions(flatten=True))


def _bytes_of_files(table: Path) -> list[int]:
    sizes: list[int] = _files(table)["size_bytes"].to_pylist()  # type: ignore[assignment]
    return sizes


_MONTH: Final = 30 * 24 * 3600


def test_it_sees_and_changes_what_delta_rs_does(tmp_path: Path) -> None:
    for number in range(4):
        append_rows(
            tmp_path, SEGMENTS, *({"topic": f"t{number}", "partition": each, "base_offset": 9} for each in range(3))
        )
    driver = DeltaTables(str(tmp_path))
    old, young = (tmp_path / "segments" / f"of-a-killed-commit-{age}.parquet" for age in ("old", "young"))
    for stray in (old, young):
        stray.write_bytes(b"never committed")
    os.utime(old, (time.time() - _MONTH,) * 2)
    use_shared_session()
    with session("test") as spark:
        tables = SparkTables(spark, str(tmp_path))
        by_spark, by_driver = SparkMaintenance(tables), DeltaMaintenance(driver)
        found, expected = (each.files(SEGMENTS).sort_by("path") for each in (by_spark, by_driver))
        assert found.to_pylist() == expected.to_pylist() and found.num_rows == 4
        assert table_state(by_spark, SEGMENTS).needs_rewrite
        by_spark.expire(SEGMENTS, lambda: driver.read(SEGMENTS, ["topic"]).slice(0, 1))
        assert len(set(driver.read(SEGMENTS, ["topic"])["topic"].to_pylist())) == 3
        assert driver.read(SEGMENTS).num_rows == 9
        rows = sorted(map(str, driver.read(SEGMENTS).to_pylist()))
        by_spark.rewrite(SEGMENTS)
        assert by_spark.files(SEGMENTS).num_rows == 1
        assert not table_state(by_spark, SEGMENTS).needs_rewrite
        assert sorted(map(str, driver.read(SEGMENTS).to_pylist())) == rows
        assert [by_spark.vacuum(SEGMENTS, apply=apply) for apply in (False, True)] == [1, 1]
        assert (old.exists(), young.exists()) == (False, True)
        assert by_spark.vacuum(SEGMENTS, apply=False) == 0
        _put_together(tmp_path, by_spark)


def _put_together(catalog: Path, by_spark: SparkMaintenance) -> None:
    """As after a build: all of them in order, or small files alone as Spark takes them, where some are meant."""
    driver = DeltaTables(str(catalog))
    for number in range(4):
        append_rows(catalog, SEGMENTS, {"topic": f"t{number}", "partition": 100, "base_offset": 9})
    rows = sorted(map(str, driver.read(SEGMENTS).to_pylist()))
    paths = by_spark.files(SEGMENTS)["path"].to_pylist()
    for are_all in (False, True):
        meant = paths if are_all else paths[1:]
        version = driver.version(SEGMENTS)
        assert by_spark.compact(SEGMENTS, list(map(str, meant)))
        assert by_spark.files(SEGMENTS).num_rows == 1 and driver.version(SEGMENTS) != version
        assert sorted(map(str, driver.read(SEGMENTS).to_pylist())) == rows
        append_rows(catalog, SEGMENTS, {"topic": "one more", "partition": int(are_all), "base_offset": 9})
        rows = sorted(map(str, driver.read(SEGMENTS).to_pylist()))
        paths = by_spark.files(SEGMENTS)["path"].to_pylist()
