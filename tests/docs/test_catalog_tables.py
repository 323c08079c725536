"""The catalog's tables from version to version, and what a build says to tables that it must not touch."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from jobs.common.backend import find_place, open_spark
from jobs.common.spark import spark_tables as making
from jobs.common.spark.local_rows import spark_schema, spark_type
from jobs.common.spark.session import session
from jobs.common.spark.spark_tables import SparkTables
from kidxlib.catalog import tables as catalog_tables
from kidxlib.catalog.rows import Row, Table
from kidxlib.catalog.segments import LATER_NAMES, SEGMENTS
from kidxlib.catalog.tables import BUILDS, CATALOG_VERSION, LAYOUT_VERSION, TABLES, VERSION_PROPERTY
from kidxlib.errors import CatalogError, UsageError
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.run.context import RunContext
from kidxlib.tables.delta_tables import DeltaTables
from tests.docs.log_dirs import put
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import build_here
from tests.support.spark.sessions import use_shared_session

#: What version 1 did not have.
NEW_COLUMNS: Final = {
    "segments": {"map_end_offset", "leader_epochs", "offsets_increase", *LATER_NAMES},
    "partitions": set[str](),
    "builds": {"finished", "aborted_transactions", "by_transaction_index"},
}


@pytest.fixture(scope="module")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as a first build makes them, without rows."""
    path = tmp_path_factory.mktemp("tables") / "catalog"
    TablesCatalog(DeltaTables(str(path))).make_tables()
    return path


def newer(catalog: Path) -> None:
    DeltaTable(catalog / "segments").alter.set_table_properties({VERSION_PROPERTY: "99"}, raise_if_not_exists=False)


def foreign(catalog: Path) -> None:
    shutil.rmtree(catalog / "segments")
    write_deltalake(catalog / "segments", pa.table({"customer": ["ann"]}))


def no_delta_table(catalog: Path) -> None:
    shutil.rmtree(catalog / "segments")
    (catalog / "segments").mkdir()
    (catalog / "segments" / "photos.zip").touch()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (newer, f"segments: written with catalog version 99, this code has {CATALOG_VERSION}; use a newer release"),
        (foreign, "segments: a Delta table, but not one of this project's; give --catalog another directory"),
        (no_delta_table, "give --catalog a new or empty directory"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_tables_that_are_not_ours_to_write_are_refused_in_one_line(
    spoil: Callable[[Path], None], message: str, empty_catalog: Path, tmp_path: Path
) -> None:
    catalog, log_dir, index_dir = (tmp_path / name for name in ("catalog", "log-dir", "index"))
    shutil.copytree(empty_catalog, catalog)
    put(log_dir / "topic-0", 0, [Batch()])
    spoil(catalog)
    before = sorted(catalog.rglob("*"))
    ended = build_here("--source", f"it={log_dir}", "--index-dir", index_dir, "--catalog", catalog)
    assert (ended.code, ended.out) == (1, "")
    [error] = [line for line in ended.err.splitlines() if not line.startswith(("1 segment, ", "{"))]
    assert error.startswith(f"error: {catalog}/") and error.endswith(message)
    assert sorted(catalog.rglob("*")) == before and not index_dir.exists()


@pytest.mark.exhaustive("makes all tables twice by Spark; tests/jobs/catalog upgrades a catalog of version 6")
def test_tables_of_an_older_version_get_the_columns_that_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All columns of a table in one commit, with their comments and the version; rows stay; done once."""
    path = tmp_path / "catalog"
    old = [
        replace(table, row=_without(table.row, NEW_COLUMNS[table.name]))
        for table in TABLES
        if table.name in NEW_COLUMNS
    ]
    with _a_session() as spark:
        tables = SparkTables(spark, str(path))
        with monkeypatch.context() as earlier:
            earlier.setattr(making, "CATALOG_VERSION", LAYOUT_VERSION - 1)
            earlier.setattr(catalog_tables, "CATALOG_VERSION", LAYOUT_VERSION - 1)
            for table in old:
                tables.make(table)
            spark.sql(f"INSERT INTO delta.`{path}/builds` {_any_build(old[-1])}")
        with pytest.raises(CatalogError, match=r"made by an older release, .*: run \./spark-submit\.sh build"):
            _open(path)
        for _ in range(2):
            assert not TablesCatalog(tables).make_tables(), "it is not a new one"
        for table in TABLES:
            now, wanted = _read(spark, path, table).schema, spark_schema(table.schema())
            assert {field.name: field.dataType for field in now} == {field.name: field.dataType for field in wanted}
            assert {field.name: field.metadata["comment"] for field in now} == {
                column.name: column.comment for column in table.columns
            }
        assert [row.build_id for row in _read(spark, path, BUILDS).collect()] == ["earlier"]
    made = {table.name: operations(path / table.name) for table in TABLES}
    before = {"builds": ["CREATE TABLE", "WRITE"]}
    for name, commits in made.items():
        upgraded = ["Manual Update"] if name in NEW_COLUMNS else []
        assert commits == [*before.get(name, ["CREATE TABLE"]), *upgraded]
    for table in TABLES:
        assert DeltaTable(path / table.name).metadata().configuration[VERSION_PROPERTY] == str(CATALOG_VERSION)
    said = [record.getMessage() for record in caplog.records if "brought to catalog version" in record.getMessage()]
    assert len(said) == len(NEW_COLUMNS)
    assert any(
        line.endswith("(added: finished, aborted_transactions, by_transaction_index; renamed: no column)")
        for line in said
    )


def test_a_database_holds_the_same_tables(tmp_path: Path) -> None:
    """Registered by name below the database's directory, found again by it, and made once; a wrong name is one line."""
    with _a_session() as spark:
        with pytest.raises(UsageError, match=r"^--database kidx_test: no such database; make it with CREATE DATABASE"):
            find_place(spark, None, "kidx_test")
        spark.sql(f"CREATE DATABASE kidx_test LOCATION '{tmp_path}/it''s'")
        for _ in range(2):
            place = find_place(spark, None, "kidx_test")
            TablesCatalog(SparkTables(spark, place, "kidx_test")).make_tables()
        assert [row.tableName for row in spark.sql("SHOW TABLES IN kidx_test").collect()] == sorted(
            table.name for table in TABLES
        )
        assert spark.table("kidx_test.segments").columns == SEGMENTS.column_names
    assert operations(tmp_path / "it's" / "segments") == ["CREATE TABLE"]


def operations(table: Path) -> list[str]:
    """What each commit of a Delta table did, by its log."""
    commits = sorted((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    return [action["commitInfo"]["operation"] for action in actions if "commitInfo" in action]


def _without(row: type[Row], names: Collection[str]) -> type[Row]:
    columns = tuple(column for column in row.columns() if column.name not in names)
    return type(row.__name__, (Row,), {"__doc__": row.__doc__, "_columns": columns})


def _any_build(table: Table) -> str:
    values = {"build_id": "'earlier'", "started_at": "TIMESTAMP '2026-01-01 00:00:00 UTC'"}
    expressions = [
        f"{values.get(column.name, 'map()' if spark_type(column).typeName() == 'map' else '0')} AS `{column.name}`"
        for column in table.columns
    ]
    return f"SELECT {', '.join(expressions)}"


def _a_session() -> contextlib.AbstractContextManager[SparkSession]:
    use_shared_session()
    return session("test")


def _open(path: Path) -> None:
    """As a job does that changes nothing."""
    context = RunContext(catalog=str(path), database=None, now=datetime.now(UTC), event_log_dir=None)
    with open_spark("test", context, upgrade=False, changes=False):
        pass


def _read(spark: SparkSession, path: Path, table: Table) -> DataFrame:
    return spark.read.format("delta").load(f"{path}/{table.name}")
