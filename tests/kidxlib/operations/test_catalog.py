"""A source that is taken out of a catalog: all of its rows go, and nothing else; a name that no source can have is told
first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, TABLES
from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.operations import catalog as operations_catalog
from tests.jobs.archive import assert_refused
from tests.support.catalog import append_rows
from tests.support.spark.jobs import Ended, kidx_here

#: A name with characters that SQL and patterns interpret.
_FORGOTTEN: Final = "b'.*"


def _forget(*arguments: str | Path) -> Ended:
    return kidx_here("forget-source", *arguments)


def _rows(catalog: Path, table: Table) -> list[Any]:
    """By table what tells its rows apart: the source, or all sources of a build."""
    found = DeltaTable(catalog / table.name).to_pyarrow_table().to_pylist()
    return sorted(sorted(dict(row["sources"])) if table is BUILDS else row["source"] for row in found)


def test_a_source_is_forgotten_in_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: its rows go from all tables there are, builds of several sources keep the others, no other row is touched;
    a run that was stopped after its first commit is run again, though `segments` does not have the source by then.

    Method: each table with two rows of it, one of another source, and one of a name that its own is a part of; and rows
    of a source that segments no longer has. A commit removes one row.
    """
    catalog = tmp_path / "catalog"
    other, alike, halfway = "a", f"{_FORGOTTEN}b", "halfway"
    for table in TABLES:
        if table is BUILDS:
            named = [{_FORGOTTEN: "/b", halfway: "/h"}, {_FORGOTTEN: "/b", other: "/a"}, {other: "/a", alike: "/c"}]
            builds = [{"build_id": str(number), "sources": [*each.items()]} for number, each in enumerate(named)]
            append_rows(catalog, table, *builds)
        else:
            gone = () if table is SEGMENTS else (halfway,)
            names = (other, _FORGOTTEN, _FORGOTTEN, alike, *gone)
            key = table.key[-1]
            numbers = map(str if pa.types.is_string(table.schema().field(key).type) else int, range(len(names)))
            append_rows(catalog, table, *({"source": name, key: n} for name, n in zip(names, numbers, strict=True)))
    versions = {table: DeltaTable(catalog / table.name).version() for table in TABLES}

    assert_refused(_forget("no", "--catalog", catalog), f"there are: {other}, {_FORGOTTEN}, {alike}, {halfway}")
    planned = _forget(_FORGOTTEN, "--catalog", catalog, "--json")
    assert planned.code == 0, planned.err
    assert planned.json["rows"] == {table.name: 2 for table in TABLES} and planned.json["applied"] is False
    assert {table: DeltaTable(catalog / table.name).version() for table in TABLES} == versions

    monkeypatch.setattr(operations_catalog, "_ROWS_AT_ONCE", 1)
    for source in (_FORGOTTEN, halfway):
        done = _forget(source, "--catalog", catalog, "--apply")
        assert done.code == 0, done.err
        assert f"source {source} of {catalog}" in done.out
    for table in TABLES:
        kept = [[other], [other, alike]] if table is BUILDS else [other, alike]
        assert _rows(catalog, table) == kept, table.name


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(UsageError, match=r"^\\xff: found bytes that are not UTF-8"):
        CliRunner().invoke(kidx, ["forget-source", "\udcff"], standalone_mode=False, catch_exceptions=False)
