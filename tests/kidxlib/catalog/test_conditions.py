"""The two forms of a condition select the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.conditions import Among, Between, Condition, rows_where, sql_of
from tests.conftest import one_in

TEXTS = ["", "a", "it's", 'a"b', "back\\slash", "per%cent_", None]
NUMBERS = [None, -(2**63), -1, 0, 1, 2**63 - 1]
ROWS = pa.table(
    {
        "text": pa.array([text for text in TEXTS for _ in NUMBERS], pa.string()),
        "number": pa.array(NUMBERS * len(TEXTS), pa.int64()),
    }
)
_NUMBERS = [number for number in NUMBERS if number is not None]
CONDITIONS = st.one_of(
    st.builds(Among, st.just("text"), st.lists(st.sampled_from(TEXTS[:-1])), st.booleans()),
    st.builds(Among, st.just("number"), st.lists(st.sampled_from(_NUMBERS)), st.booleans()),
    st.builds(Between, st.just("text"), st.sampled_from(TEXTS[:-1]), st.sampled_from(TEXTS[:-1])),
    st.builds(Between, st.just("number"), st.sampled_from(_NUMBERS), st.sampled_from(_NUMBERS)),
)


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.sort_by([("text", "ascending"), ("number", "ascending")]).to_pylist()


def test_sql_and_arrow_select_the_same_rows(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "rows", ROWS)
    table = DeltaTable(tmp_path / "rows")

    @one_in(20)  # each is a query
    @given(where=st.lists(CONDITIONS, max_size=3))
    def check(where: list[Condition]) -> None:
        found = QueryBuilder().register("rows", table).execute(f"SELECT * FROM rows WHERE {sql_of(where)}")
        asked = pa.RecordBatchReader.from_stream(found).read_all().cast(ROWS.schema)
        assert in_order(asked) == in_order(rows_where(ROWS, where))

    check()
