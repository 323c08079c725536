"""Lines of JSON hold what the rows hold, whatever bytes that are."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kidxlib.operations.export.formats import json_lines
from kidxlib.records.arrow_columns import CONSUMED

_PARTS = (b"a", b"\xed", b"\xa0", b"\x80", b"\xf0", b"\x9f", b"\x8f", b"\x90", b"\xc3", b"\xe0", b"\xbf")
_BYTES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(_PARTS)).map(b"".join),
)
_HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), _BYTES), min_size=1, max_size=3)
_MS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 0, 1_700_000_000_123, 253_402_300_800_000]))


@given(st.lists(st.tuples(_BYTES, _BYTES, _MS, _HEADERS), max_size=5))
@example([(b'"\\/\b\f\n\r\t\x00\x1f\x7f', "\u2028\U0001f600".encode(), -62_135_596_800_000, [("", None)])])
@example([(b"\xff", b"\xff\xfe", 253_402_300_799_999, [("ü", b"\xff\xfe\xfd")])])
def test_lines_hold_what_rows_hold(rows: list[tuple[bytes | None, bytes | None, int, Any]]) -> None:
    columns = {
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
        "topic": pa.array(['a"topic'] * len(rows), pa.string()),
        "partition": pa.array([7] * len(rows), pa.int32()),
        "offset": pa.array(range(len(rows)), pa.int64()),
        "timestamp": pa.array([row[2] for row in rows], pa.int64()).cast(CONSUMED.field("timestamp").type),
        "timestampType": pa.array([-1] * len(rows), pa.int32()),
        "headers": pa.array(
            [None if row[3] is None else [{"key": key, "value": value} for key, value in row[3]] for row in rows],
            CONSUMED.field("headers").type,
        ),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=CONSUMED)
    lines = json_lines(batch).decode().split("\n")[:-1]
    assert len(lines) == len(rows)
    for number, (line, (key, value, ms, headers)) in enumerate(zip(lines, rows, strict=True)):
        found = json.loads(line)
        assert _without(found, "key") == key and _without(found, "value") == value
        assert (found["topic"], found["partition"], found["offset"]) == ('a"topic', 7, number)
        assert found["timestampType"] == -1
        assert _ms(found["timestamp"]) == ms
        expected = None if headers is None else [(key, value) for key, value in headers]
        assert expected == (
            None if found["headers"] is None else [(each["key"], _without(each, "value")) for each in found["headers"]]
        )


def _without(found: dict[str, Any], name: str) -> bytes | None:
    """The bytes of a field: as text only where they are that."""
    if f"{name}_base64" in found:
        content = base64.b64decode(found[f"{name}_base64"], validate=True)
        assert found[name] is None and not _is_text(content)
        return content
    return None if found[name] is None else str(found[name]).encode()


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _ms(moment: int | str) -> int:
    if isinstance(moment, int):
        return moment
    scalar = pa.scalar(moment.replace("T", " ")).cast(pa.timestamp("ms", "UTC"))
    value: Any = scalar.value  # type: ignore[attr-defined]
    return int(value)
