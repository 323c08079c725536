"""JSON as Kafka prints it is JSON, and no more is escaped in it than has to be."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.messages.json_objects import json_text

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
)


@given(_VALUES)
def test_it_is_read_back(value: object) -> None:
    assert json.loads(json_text(value)) == value


def test_escapes_are_those_of_jackson() -> None:
    assert json_text({"ä\x7f\u2028": ['"\\/\b\t\n\f\r\0\x1f', float("nan")]}) == (
        '{"ä\x7f\u2028":["\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F","NaN"]}'
    )
