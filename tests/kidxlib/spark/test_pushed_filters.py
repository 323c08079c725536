"""A filter that is pushed down leaves what it leaves where Spark applies it, and so do those that are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import Filter

from kidxlib.format.topic_partition import TopicPartition
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.spark.pushed_filters import Pushed, push_filters
from kidxlib.spark.source import KafkaSegmentReader
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.streams import reader_of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS: Final = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
)
TEXTS: Final = (spark.StringStartsWith, spark.StringEndsWith, spark.StringContains)


def _rows(reader: KafkaSegmentReader) -> list[dict[str, Any]]:
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [row for batch in batches for row in batch.to_pylist()]


def _holds(each: Filter, row: dict[str, Any]) -> bool | None:
    """What SQL makes of a filter on a row: null where it cannot be told."""
    match each:
        case spark.Not(child):
            of_child = _holds(child, row)
            return None if of_child is None else not of_child
        case spark.IsNull((column,)):
            return row[column] is None
        case spark.IsNotNull((column,)):
            return row[column] is not None
        case spark.In((column,), constants):
            found = [_compared(spark.EqualTo, row[column], constant) for constant in constants]
            return True if True in found else None if None in found else False
        case spark.EqualNullSafe((column,), constant):
            return bool(row[column] == constant)
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    return _compared(type(each), value, each.value)  # type: ignore[attr-defined]


def _compared(kind: type[Filter], value: Any, constant: Any) -> bool | None:
    if value is None or constant is None:
        return None
    answers: dict[type[Filter], Callable[[], Any]] = {
        spark.EqualTo: lambda: value == constant,
        spark.GreaterThan: lambda: value > constant,
        spark.GreaterThanOrEqual: lambda: value >= constant,
        spark.LessThan: lambda: value < constant,
        spark.LessThanOrEqual: lambda: value <= constant,
        spark.StringStartsWith: lambda: value.startswith(constant),
        spark.StringEndsWith: lambda: value.endswith(constant),
        spark.StringContains: lambda: constant in value,
    }
    return bool(answers[kind]())


_CONSTANTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "topic": st.sampled_from(["topic", "another-topic", "to", "c", "", "z"]),
    "partition": st.integers(-1, 3),
    "offset": st.one_of(st.integers(-2, 70), st.sampled_from([-(2**63), 2**63 - 1])),
    "timestamp": st.integers(-2_000, 145_000).map(lambda us: EPOCH + timedelta(microseconds=us)),
    "timestampType": st.integers(-1, 1),
    "key": st.sampled_from([b"k", b"", b"z"]),
}


@st.composite
def _filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(_CONSTANTS)))
    constants, path = _CONSTANTS[column], (column,)
    kinds = [*COMPARISONS, spark.In, spark.IsNull, spark.IsNotNull, *(TEXTS if column == "topic" else ())]
    kind = draw(st.sampled_from(kinds))
    found: Filter
    if kind is spark.In:
        found = spark.In(path, tuple(draw(st.lists(st.one_of(constants, st.none()), min_size=1, max_size=4))))
    elif kind in (spark.IsNull, spark.IsNotNull):
        found = kind(path)
    else:
        found = kind(path, draw(constants))
    return spark.Not(found) if draw(st.integers(0, 3)) == 0 else found


@given(seed=st.integers(0, 2**32), filters=st.lists(_filters(), max_size=4), start=st.none() | st.integers(0, 40))
@settings(max_examples=75)  # what each comparison leaves is asked for below
def test_filters_leave_what_they_leave_without(
    seed: int, filters: list[Filter], start: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of two partitions; those that come back are applied after, as by Spark."""
    log_dir, rng = tmp_path_factory.mktemp("log-dir"), random.Random(seed)
    for name in ("topic-0", "topic-1", "another-topic-0"):
        write_random_log(log_dir / name, rng)
    options = {"failOnDataLoss": "false"}
    if start is not None:
        options["startingOffsets"] = f'{{"topic": {{"0": {start}, "1": -2}}, "another-topic": {{"0": {start + 1}}}}}'
    rows = [row for row in _rows(reader_of(log_dir, **options)) if all(_holds(each, row) for each in filters)]
    reader = reader_of(log_dir, **options)
    others = list(reader.pushFilters(filters))
    assert [row for row in _rows(reader) if all(_holds(each, row) for each in others)] == rows


#: Values of rows, and constants at them, beside them and between them.
_BESIDE: Final[dict[str, tuple[list[Any], list[Any]]]] = {
    "topic": (["", "t", "topic", "topic-a", "u"], ["", "t", "topic", "topics", "u"]),
    "partition": (list(range(5)), list(range(-1, 6))),
    "offset": (list(range(5)), list(range(-1, 6))),
    "timestamp": (
        [EPOCH + timedelta(milliseconds=ms) for ms in range(-2, 3)],
        [EPOCH + timedelta(microseconds=us) for us in range(-2_500, 2_501, 250)],
    ),
}


def _passes(pushed: Pushed, column: str, value: Any) -> bool:
    """Whether a row with this value is read."""
    wanted = pushed.wanted
    if column == "offset":
        return bool(wanted.first_offset <= value <= wanted.last_offset)
    if column == "timestamp":
        return bool(wanted.first_ms <= (value - EPOCH) // timedelta(milliseconds=1) <= wanted.last_ms)
    return pushed.holds(TopicPartition(value, 1) if column == "topic" else TopicPartition("topic", value))


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("column", _BESIDE)
def test_what_is_pushed_down_is_exact_and_does_not_come_back(kind: Any, column: str) -> None:
    values, constants = _BESIDE[column]
    for constant in constants:
        condition = kind((column,), constant)
        pushed, others = push_filters([condition, spark.IsNotNull((column,))], "records")
        assert others == []
        left = [value for value in values if _holds(condition, {column: value})]
        assert [value for value in values if _passes(pushed, column, value)] == left, constant


@pytest.mark.parametrize(
    "each",
    [
        spark.EqualTo(("key",), b"k"),
        spark.Not(spark.EqualTo(("offset",), 5)),
        spark.In(("offset",), (5, None)),
        spark.In(("topic",), ("topic", None)),
        spark.EqualTo(("partition",), 1.0),
        spark.EqualTo(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001
        spark.EqualTo(("headers", "key"), "k"),
    ],
)
def test_what_cannot_be_answered_comes_back(each: Filter) -> None:
    pushed, others = push_filters([each], "records")
    assert others == [each] and pushed.wanted == WantedRecords()


def test_some_offsets_are_read_from_the_first_to_the_last() -> None:
    """And Spark chooses among them."""
    some = spark.In(("offset",), (5, 9, 7))
    pushed, others = push_filters([some], "records")
    assert (others, pushed.wanted) == ([some], WantedRecords(first_offset=5, last_offset=9))
    assert push_filters([spark.In(("offset",), (6, 5, 7))], "records")[1] == []
    assert push_filters([some], "batches") == (Pushed(), [some])


def test_partitions_are_told_by_their_names() -> None:
    pushed, others = push_filters(
        [spark.In(("partition",), (1, 2)), spark.Not(spark.StringStartsWith(("topic",), "a"))], "batches"
    )
    assert others == []
    places = [TopicPartition(topic, partition) for topic in ("a-topic", "b") for partition in range(4)]
    assert [place.directory for place in places if pushed.holds(place)] == ["b-1", "b-2"]
