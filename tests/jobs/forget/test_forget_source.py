"""A source that is taken out of a catalog: all of its rows go, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as t

from jobs.common.spark.schema import spark_type
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import CATALOG_VERSION, TABLES
from kidxlib.tables.version import VERSION_PROPERTY
from tests.jobs.archive import assert_refused
from tests.support.spark.jobs import forget_here

#: A name with characters that SQL and patterns interpret.
_FORGOTTEN: Final = "b'.*"
_VALUES: Final[dict[type[t.DataType], Any]] = {
    t.StringType: "x",
    t.IntegerType: 1,
    t.LongType: 1,
    t.DoubleType: 1.0,
    t.BooleanType: True,
    t.TimestampType: datetime(2026, 11, 22, tzinfo=UTC),
    t.ArrayType: [],
    t.MapType: [],
}


def _write(catalog: Path, table: Table, rows: list[dict[str, Any]]) -> None:
    """Make a table of the catalog with such rows, and anything in the other columns."""
    schema = table.schema()
    filled = [{column.name: _VALUES[type(spark_type(column))] for column in table.columns} | row for row in rows]
    write_deltalake(catalog / table.name, pa.Table.from_pylist(filled, schema))
    # This writer takes no properties but its own.
    [log] = (catalog / table.name / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"][VERSION_PROPERTY] = str(CATALOG_VERSION)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def _rows(catalog: Path, table: Table) -> list[Any]:
    """By table what tells its rows apart: the source, or all sources of a build."""
    found = DeltaTable(catalog / table.name).to_pyarrow_table().to_pylist()
    return sorted(sorted(dict(row["sources"])) if table is BUILDS else row["source"] for row in found)


def test_a_source_is_forgotten_in_every_table(tmp_path: Path) -> None:
    """Goal: its rows go from all tables there are, builds of several sources keep the others, no other row is touched;
    a run that was stopped after its first commit is run again, though `segments` does not have the source by then.

    Method: each table with two rows of it, one of another source, and one of a name that its own is a part of; and rows
    of a source that segments no longer has.
    """
    catalog = tmp_path / "catalog"
    other, alike, halfway = "a", f"{_FORGOTTEN}b", "halfway"
    for table in TABLES:
        if table is BUILDS:
            named = [{_FORGOTTEN: "/b", halfway: "/h"}, {_FORGOTTEN: "/b", other: "/a"}, {other: "/a", alike: "/c"}]
            _write(catalog, table, [{"sources": list(each.items())} for each in named])
        else:
            gone = () if table is SEGMENTS else (halfway,)
            _write(catalog, table, [{"source": name} for name in (other, _FORGOTTEN, _FORGOTTEN, alike, *gone)])
    versions = {table: DeltaTable(catalog / table.name).version() for table in TABLES}

    assert_refused(forget_here("no", "--catalog", catalog), f"there are: {other}, {_FORGOTTEN}, {alike}, {halfway}")
    planned = forget_here(_FORGOTTEN, "--catalog", catalog, "--json")
    assert planned.code == 0, planned.err
    assert planned.json["rows"] == {table.name: 2 for table in TABLES} and planned.json["applied"] is False
    assert {table: DeltaTable(catalog / table.name).version() for table in TABLES} == versions

    for source in (_FORGOTTEN, halfway):
        done = forget_here(source, "--catalog", catalog, "--apply")
        assert done.code == 0, done.err
        assert f"source {source} of {catalog}" in done.out
    for table in TABLES:
        kept = [[other], [other, alike]] if table is BUILDS else [other, alike]
        assert _rows(catalog, table) == kept, table.name
