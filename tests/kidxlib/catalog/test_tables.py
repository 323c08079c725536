"""A catalog that an earlier state of this code has made, read with the tables as they are declared now."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS, KnownSegment, SegmentRow, SegmentToCompact, SegmentToSearch
from kidxlib.catalog.tables import (
    BUILDS,
    CATALOG_VERSION,
    COMMIT_LOCK_FILE,
    LAYOUT_VERSION,
    TABLES,
    UPGRADE_ORDER,
    delta_properties,
)
from kidxlib.errors import CatalogError
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.run.context import existing_catalog_tables
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import kept_catalog

#: Of the oldest one that is upgraded here, which Spark alone wrote.
KEPT_VERSION = 6
#: Of the sample and of tests/data.
ROWS_KEPT = {
    "segments": 76,
    "partitions": 59,
    "producer_events": 583,
    "aborted_transactions": 66,
    "builds": 1,
    "retention_plans": 76,
    "findings": 239,
    "accepted": 1,
}
#: The next build makes those that a later version has added.
KEPT_TABLES = tuple(table for table in TABLES if table.name in ROWS_KEPT)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kept_catalog(KEPT_VERSION, tmp_path_factory.mktemp("kept"))


#: Columns that a later version has added; an upgrade fills them with nulls.
ADDED = {
    "segments": (
        "log_crc32c",
        "log_crc64nvme",
        "offset_digests",
        "smallest_timestamp_ms",
        "smallest_timestamps",
        "records_by_hour",
    ),
    "retention_plans": ("due_ms",),
}


def _kept(catalog: Path, table: Table) -> pa.Table:
    """Its rows, by the names that columns have now, and with those that came later."""
    rows = DeltaTable(catalog / table.name).to_pyarrow_table()
    rows = rows.rename_columns([table.renamed.get(name, name) for name in rows.column_names])
    for name in ADDED.get(table.name, ()):
        field = table.schema().field(name)
        rows = rows.add_column(table.column_names.index(name), field, pa.nulls(len(rows), field.type))
    return rows


@pytest.mark.parametrize("table", KEPT_TABLES, ids=lambda table: table.name)
def test_its_columns_are_the_declared_ones(table: Table, catalog: Path) -> None:
    kept = _kept(catalog, table).schema
    assert [(field.name, field.type, field.nullable) for field in kept] == [
        (field.name, field.type, field.nullable) for field in table.schema()
    ]


@pytest.mark.parametrize("table", KEPT_TABLES, ids=lambda table: table.name)
def test_it_has_the_names_that_columns_had_before_a_later_version(table: Table, catalog: Path) -> None:
    names = {field.name for field in DeltaTable(catalog / table.name).schema().fields}
    renamed = {column for column in table.columns if column.formerly is not None}
    assert {column.formerly.name for column in renamed if column.formerly is not None} <= names
    assert not {column.name for column in renamed} & names


@pytest.mark.parametrize("table", KEPT_TABLES, ids=lambda table: table.name)
def test_its_rows_are_read_as_declared(table: Table, catalog: Path) -> None:
    """Each value is where it was, and goes back into a table of the declared schema."""
    kept = _kept(catalog, table)
    rows = table.row.of_arrow(kept)
    assert len(rows) == ROWS_KEPT[table.name]
    assert len({tuple(row.values()[name] for name in table.key) for row in rows}) == len(rows)
    again = pa.Table.from_pylist([row.values() for row in rows], table.schema())
    assert again.to_pylist() == kept.to_pylist()


def test_views_of_its_segments_are_read(catalog: Path) -> None:
    rows = _kept(catalog, SEGMENTS)
    whole = SegmentRow.of_arrow(rows)
    for view in (KnownSegment, SegmentToCompact, SegmentToSearch):
        for row, seen in zip(whole, view.of_arrow(rows), strict=True):
            assert seen.values() == {name: row.values()[name] for name in view.names()}


def test_kidx_says_who_brings_it_up_to_date(catalog: Path, tmp_path: Path) -> None:
    """In one line; nothing is changed. So too where Spark was stopped after the first table."""
    older = TablesCatalog(DeltaTables(str(catalog)))
    assert older.oldest_version() == KEPT_VERSION
    before = sorted(catalog.rglob("*"))
    with pytest.raises(CatalogError, match=r"made by an older release, .*: run \./spark-submit\.sh build_index once"):
        older.make_tables()
    assert [path for path in sorted(catalog.rglob("*")) if path.name != COMMIT_LOCK_FILE] == before

    half = tmp_path / "half"
    shutil.copytree(catalog, half)
    shutil.rmtree(half / SEGMENTS.name)
    tables = DeltaTables(str(half))
    tables.make(SEGMENTS)
    assert tables.catalog_version(SEGMENTS) == CATALOG_VERSION
    stopped = TablesCatalog(tables)
    assert stopped.oldest_version() == KEPT_VERSION
    with pytest.raises(CatalogError, match="made by an older release"):
        stopped.make_tables()


def test_a_catalog_of_the_same_layout_needs_no_spark(tmp_path: Path) -> None:
    """It is read as it is. Who records in it gives each table this version, and makes what is missing; rows stay, and
    are not written anew; done once.
    """
    path = kept_catalog(LAYOUT_VERSION, tmp_path)
    tables = existing_catalog_tables("--catalog", str(path))
    before = {table: tables.read(table) for table in TABLES}
    files = {
        table: sorted(DeltaTable(path / table.name).file_uris()) for table in TABLES if (path / table.name).is_dir()
    }
    assert TablesCatalog(tables).oldest_version() == LAYOUT_VERSION
    for _ in range(2):
        assert not TablesCatalog(tables).make_tables(), "it is not a new one"
    assert {tables.catalog_version(table) for table in TABLES} == {CATALOG_VERSION}
    for table, rows in before.items():
        assert tables.read(table).equals(rows)
        assert (rows.num_rows > 0) == (table in files)
        delta = DeltaTable(path / table.name)
        assert delta.metadata().configuration == delta_properties(table)
        commits = [each["operation"] for each in delta.history()]
        assert commits.count("SET TBLPROPERTIES") == (table in files)
        assert table not in files or sorted(delta.file_uris()) == files[table]


def test_every_catalog_has_the_tables_that_are_asked_for_its_version() -> None:
    """The first and the last that are brought up to date; all of them are."""
    assert set(UPGRADE_ORDER) == set(TABLES) and len(UPGRADE_ORDER) == len(TABLES)
    assert (UPGRADE_ORDER[0], UPGRADE_ORDER[-1]) == (SEGMENTS, BUILDS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_catalog_of_this_version_is_read_as_it_is(table: Table, tmp_path: Path) -> None:
    rows = DeltaTables(str(kept_catalog(CATALOG_VERSION, tmp_path))).read(table)
    assert rows.schema.equals(table.schema()) and rows.num_rows > 0
    assert len(table.row.of_arrow(rows)) == rows.num_rows
