"""Digests of records: the same of a log's rows and of what a consumer gets, and another one after any change."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.operations.restore.record_digest import DIGESTED, Consumed, RecordDigest

_MAX_MS: Final = 2**42
_content: Final = st.none() | st.binary(max_size=5)
_headers: Final = st.lists(st.tuples(st.text(max_size=3), _content), max_size=3)
_consumed: Final = st.builds(Consumed, st.integers(0, 2**62), st.integers(-1, _MAX_MS), _content, _content, _headers)
_records: Final = st.lists(_consumed, min_size=1, max_size=8)


def _pieces(records: Sequence[Consumed], cuts: Sequence[int]) -> list[Sequence[Consumed]]:
    ends = sorted({cut % len(records) for cut in cuts} | {0, len(records)})
    return [records[start:end] for start, end in itertools.pairwise(ends)]


def _rows(records: Sequence[Consumed]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp_ms for record in records],
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "headers": [[{"key": name, "value": value} for name, value in record.headers] or None for record in records],
    }
    return pa.RecordBatch.from_pydict(columns, DIGESTED)


def _of_rows(pieces: Sequence[Sequence[Consumed]]) -> str:
    digest = RecordDigest()
    for piece in pieces:
        digest.add_rows(_rows([piece[0], *piece]).slice(1))  # as a slice of a larger one
    return digest.hexdigest()


def _of_consumed(pieces: Sequence[Sequence[Consumed]]) -> str:
    digest = RecordDigest()
    for piece in pieces:
        digest.add_consumed(piece)
    return digest.hexdigest()


@given(_records, st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100)))
def test_rows_and_consumed_records_have_one_digest(records: list[Consumed], one: list[int], other: list[int]) -> None:
    assert _of_rows(_pieces(records, one)) == _of_consumed(_pieces(records, other))


@given(_records, st.data())
def test_any_change_gives_another_digest(records: list[Consumed], data: st.DataObject) -> None:
    """A record is taken away, or one byte or number of it is another one."""
    number = data.draw(st.integers(0, len(records) - 1))
    record = records[number]
    name, content = record.headers[0] if record.headers else ("", None)
    changes: list[Consumed | None] = [
        None,
        record._replace(offset=record.offset + 1),
        record._replace(timestamp_ms=record.timestamp_ms + 1),
        record._replace(key=_other(record.key)),
        record._replace(value=_other(record.value)),
        record._replace(key=record.value, value=record.key) if record.key != record.value else None,
        record._replace(headers=[(f"{name}x", content), *record.headers[1:]]),
        record._replace(headers=[(name, _other(content)), *record.headers[1:]]),
    ]
    for changed in changes:
        others = [*records[:number], *([] if changed is None else [changed]), *records[number + 1 :]]
        assert _of_consumed([records]) != _of_consumed([others]), changed


def _other(content: bytes | None) -> bytes | None:
    """Other bytes, as many as before; none where there were null, and null where there were none."""
    if not content:
        return b"" if content is None else None
    return bytes([content[0] ^ 1]) + content[1:]
