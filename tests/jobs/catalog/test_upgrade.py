"""A catalog of version 6, as its release made it, brought to this version: tables that both engines write."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.common.catalog import upgrade
from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.create import catalog_version, make_tables
from jobs.common.catalog.open import existing_catalog
from jobs.common.spark.session import session
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import CATALOG_VERSION, TABLES
from kidxlib.errors import CatalogError
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.layout import properties_of
from tests.support.spark.jobs import use_pips_spark

KEPT: Final = Path(__file__).parents[2] / "catalogs" / "version-6.tar.gz"


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    use_pips_spark()
    with session("test") as spark:
        yield spark


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Of version 6."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in tmp_path.rglob("*"):
        os.utime(path)  # Spark reads no version that is older than a week
    return tmp_path / "catalog"


def test_an_upgrade_that_is_stopped_anywhere_is_finished_by_the_next(
    spark: SparkSession, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows stay, the old versions too, and tables are as those that are new, for whoever reads or writes them."""
    catalog = Catalog(spark, str(old))
    before = {table: DeltaTable(old / table.name).version() for table in TABLES}
    for unfinished in (TABLES, [SEGMENTS]):  # between the two commits
        with monkeypatch.context() as stopped:
            stopped.setattr(upgrade, "properties_of", _Stopping(unfinished))
            with pytest.raises(_StoppedError):
                make_tables(catalog, None, catalog_version(catalog))
        assert catalog_version(catalog) == CATALOG_VERSION - 1
        with pytest.raises(CatalogError, match="made by an older release"):
            existing_catalog(spark, str(old), None)
    assert not make_tables(catalog, None, catalog_version(catalog)), "it is not a new one"

    assert catalog_version(existing_catalog(spark, str(old), None)) == CATALOG_VERSION
    new = DeltaTables(str(tmp_path / "new"))
    for table, version in before.items():
        new.append(table, table.schema().empty_table())
        assert_same_layout(old / table.name, tmp_path / "new" / table.name)
        was = spark.read.format("delta").option("versionAsOf", version).load(str(old / table.name))
        assert_df_equality(catalog.read(table).sort(*table.key), was.sort(*table.key), ignore_metadata=True)
        kept = DeltaTable(old / table.name, version=version).to_pyarrow_table()
        assert kept.num_rows == was.count() > 0
        assert set(DeltaTable(old / table.name).file_uris()) == set(
            DeltaTable(old / table.name, version=version).file_uris()
        )
    _assert_both_engines_write(catalog)


def test_tables_are_the_same_whoever_made_them(spark: SparkSession, tmp_path: Path) -> None:
    by_spark, by_delta_rs = Catalog(spark, str(tmp_path / "spark")), DeltaTables(str(tmp_path / "delta-rs"))
    make_tables(by_spark, None, None)
    for table in TABLES:
        by_delta_rs.append(table, table.schema().empty_table())
        assert_same_layout(tmp_path / "spark" / table.name, tmp_path / "delta-rs" / table.name)
        metadata = DeltaTable(tmp_path / "delta-rs" / table.name).metadata()
        assert metadata.configuration == properties_of(table)
        comments = [field.metadata["comment"] for field in DeltaTable(tmp_path / "spark" / table.name).schema().fields]
        assert comments == [column.comment for column in table.columns]


def test_a_feature_that_others_cannot_read_is_refused_in_one_line(spark: SparkSession, old: Path) -> None:
    spark.sql(f"ALTER TABLE delta.`{old}/builds` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    catalog = Catalog(spark, str(old))
    with pytest.raises(CatalogError, match=r"catalog/builds: has a feature .* \(reader version 3\); remove it with"):
        make_tables(catalog, None, catalog_version(catalog))


def assert_same_layout(one: Path, other: Path) -> None:
    """Protocol, properties, what the table and each column mean, types, and what is never null."""
    tables = DeltaTable(one), DeltaTable(other)
    protocols = [table.protocol() for table in tables]
    assert [(protocol.min_reader_version, protocol.min_writer_version) for protocol in protocols] == [(1, 2)] * 2
    assert tables[0].metadata().configuration == tables[1].metadata().configuration
    assert tables[0].metadata().description == tables[1].metadata().description
    assert tables[0].metadata().name == tables[1].metadata().name
    assert tables[0].schema().to_json() == tables[1].schema().to_json()


def _assert_both_engines_write(catalog: Catalog) -> None:
    tables = DeltaTables(catalog.path)
    row = tables.read(BUILDS)
    tables.append(BUILDS, row.set_column(0, BUILDS.schema().field(0), [["by delta-rs"]]))
    catalog.commit(BUILDS, lambda target: target.delete(f"build_id = '{row['build_id'][0]}'"))
    assert tables.read(BUILDS, ["build_id"]).to_pylist() == [{"build_id": "by delta-rs"}]
    assert catalog.read(BUILDS).count() == 1


class _StoppedError(Exception):
    pass


class _Stopping:
    """In the place of `properties_of`: ends as a run that is killed then."""

    def __init__(self, tables: Any) -> None:
        self._tables = tables

    def __call__(self, table: Table) -> dict[str, str]:
        if table in self._tables:
            raise _StoppedError
        return properties_of(table)
