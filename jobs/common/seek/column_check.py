"""Many questions at once, as whole columns: the first that is wrong."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from jobs.common.seek.row_check import COLUMNS, why_wrong

#: What is plainly right, without a look at the calendar beyond the number of days of a month.
_PLAIN_TOPIC: Final = r"^[A-Za-z0-9._-]+$"
_PLAIN_PARTITION: Final = r"^ *[0-9]{1,9} *$"
_PLAIN_NUMBER: Final = r"^ *-?[0-9]{1,18} *$"
_DAY: Final = (
    "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"  # but for 29 February
)
_PLAIN_TIME: Final = (
    rf"^ *(000[2-9]|00[1-9][0-9]|0[1-9][0-9]{{2}}|[1-8][0-9]{{3}}|9[0-8][0-9]{{2}})-{_DAY}[T ]"
    r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9]) *$"
)


def first_wrong(block: pa.RecordBatch) -> int | None:
    """The number of the first row of a block that is wrong; None where none is. Of a block that has not the columns it
    is the first.
    """
    present = [name for name in COLUMNS if name in block.schema.names]
    if not {"topic", "partition"} <= set(present) or not {"offset", "timestamp"} & set(present):
        return 0
    texts = {name: _text(block.column(name)) for name in present}
    empty = pa.nulls(len(block), pa.string())
    offset, timestamp = texts.get("offset", empty), texts.get("timestamp", empty)
    plain = [
        _matches(texts["topic"], _PLAIN_TOPIC),
        _matches(texts["partition"], _PLAIN_PARTITION),
        pc.xor(_is_filled(offset), _is_filled(timestamp)),
        pc.or_(pc.invert(_is_filled(offset)), _matches(offset, _PLAIN_NUMBER)),
        pc.or_(
            pc.invert(_is_filled(timestamp)),
            pc.or_(_matches(timestamp, _PLAIN_NUMBER), _matches(timestamp, _PLAIN_TIME)),
        ),
    ]
    is_plain = plain[0]
    for each in plain[1:]:
        is_plain = pc.and_(is_plain, each)
    odd = pc.indices_nonzero(pc.invert(is_plain))
    rows = pa.table({name: text.take(odd) for name, text in texts.items()}).to_pylist()
    return next((number for number, row in zip(odd.to_pylist(), rows, strict=True) if why_wrong(row) is not None), None)


def _text(column: pa.Array[Any]) -> pa.Array[Any]:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _matches(text: pa.Array[Any], pattern: str) -> pa.Array[Any]:
    return pc.fill_null(pc.match_substring_regex(text, pattern), False)  # type: ignore[arg-type] # its stubs know no scalars


def _is_filled(text: pa.Array[Any]) -> pa.Array[Any]:
    return _matches(text, "[^ ]")
