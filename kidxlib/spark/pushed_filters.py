"""Filters that Spark pushes down: those that this source applies exactly, and the rows that are left to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import Filter

from kidxlib.format.topic_partition import TopicPartition
from kidxlib.records.wanted_records import WantedRecords

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)

#: Columns with one value in a partition.
_OF_PARTITIONS: Final[dict[str, type]] = {"topic": str, "partition": int}
_NOTHING: Final = 0, -1
#: The bounds of offsets, and of milliseconds since the epoch.
_LEAST, _MOST = -(2**63), 2**63 - 1

#: A range of whole numbers, both ends inclusive; None for no limit.
_Range: TypeAlias = tuple[int | None, int | None]
#: The whole numbers around a constant: the last at or below it, and the first at or above it.
_Around: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pushed:
    """The rows to read after filters, all of which have to hold.

    Attributes:
        of_partitions: the filters on topics and numbers of partitions.
        wanted: the records that the filters on offsets and timestamps leave.
    """

    of_partitions: tuple[Filter, ...] = ()
    wanted: WantedRecords = field(default_factory=WantedRecords)

    def holds(self, partition: TopicPartition) -> bool:
        """Whether anything of a partition is to be read."""
        values = {"topic": partition.topic, "partition": partition.partition}
        is_meant = all(_is_true(condition, values[_column(condition)]) for condition in self.of_partitions)
        return is_meant and not self.wanted.is_empty


def push_filters(filters: Iterable[Filter], mode: str) -> tuple[Pushed, list[Filter]]:
    """The rows to read after filters, each of which has one column and constants; and the filters that Spark has to
    apply itself, some of which also narrow the reads. Only the mode `records` has offsets and timestamps.
    """
    of_partitions: list[Filter] = []
    others: list[Filter] = []
    wanted = WantedRecords()
    for condition in filters:
        column = _column(condition)
        if column in _OF_PARTITIONS and _is_answered(condition, _OF_PARTITIONS[column]):
            of_partitions.append(condition)
            continue
        has_range = mode == "records" and column in _AROUND
        limits, is_exact = _range(condition, _AROUND[column]) if has_range else (None, False)
        if limits is not None:
            wanted = _narrowed(wanted, column, limits)
        if not is_exact:
            others.append(condition)
    return Pushed(tuple(of_partitions), wanted), others


def _column(condition: Any) -> str:
    """The name of a filter's column; for a field of a column, a name that no column has."""
    while isinstance(condition, spark.Not):
        condition = condition.child
    return ".".join(condition.attribute)


# ---- topics and partitions ----


def _is_answered(condition: Filter, kind: type) -> bool:
    """Whether `_is_true` agrees with Spark for each value: constants are of the column's type, and none is null."""
    match condition:
        case spark.Not(child):
            return _is_answered(child, kind)
        case spark.IsNull() | spark.IsNotNull():
            return True
        case spark.In(_, constants):
            return all(type(constant) is kind for constant in constants)
        case spark.StringStartsWith() | spark.StringEndsWith() | spark.StringContains():
            return kind is str and type(condition.value) is str
    return type(condition) in _COMPARISONS and type(condition.value) is kind  # type: ignore[attr-defined]


def _is_true(condition: Filter, value: Any) -> bool:
    """Whether a value passes a filter. Spark compares texts by their bytes in UTF-8, which is Python's order."""
    match condition:
        case spark.Not(child):
            return not _is_true(child, value)
        case spark.IsNull():
            return False
        case spark.IsNotNull():
            return True
        case spark.In(_, constants):
            return value in constants
        case spark.StringStartsWith(_, text):
            return bool(value.startswith(text))
        case spark.StringEndsWith(_, text):
            return bool(value.endswith(text))
        case spark.StringContains(_, text):
            return text in value
    return _COMPARISONS[type(condition)](value, condition.value)  # type: ignore[attr-defined]


_COMPARISONS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    spark.EqualTo: lambda value, constant: bool(value == constant),
    spark.EqualNullSafe: lambda value, constant: bool(value == constant),
    spark.GreaterThan: lambda value, constant: bool(value > constant),
    spark.GreaterThanOrEqual: lambda value, constant: bool(value >= constant),
    spark.LessThan: lambda value, constant: bool(value < constant),
    spark.LessThanOrEqual: lambda value, constant: bool(value <= constant),
}


# ---- offsets and timestamps ----


def _range(condition: Filter, around: Callable[[Any], _Around | None]) -> tuple[_Range | None, bool]:
    """The range that a filter leaves, and whether all numbers in it pass; None if no range is known."""
    match condition:
        case spark.IsNotNull():
            return (None, None), True
        case spark.IsNull():
            return _NOTHING, True
        case spark.In(_, constants):
            return _range_of([around(constant) for constant in constants])
        case spark.EqualTo(_, constant) | spark.EqualNullSafe(_, constant):
            return _range_of([around(constant)])
    numbers = around(condition.value) if type(condition) in _LIMITS else None  # type: ignore[attr-defined]
    return (None, False) if numbers is None else (_LIMITS[type(condition)](*numbers), True)


def _range_of(constants: list[_Around | None]) -> tuple[_Range | None, bool]:
    """The range of some numbers, and whether it has no gaps."""
    if None in constants:
        return None, False
    numbers = {last for last, first in filter(None, constants) if last == first}
    if not numbers:
        return _NOTHING, True
    least, largest = min(numbers), max(numbers)
    return (least, largest), largest - least + 1 == len(numbers)


_LIMITS: Final[dict[type[Filter], Callable[[int, int], _Range]]] = {
    spark.GreaterThan: lambda last, first: (last + 1, None),
    spark.GreaterThanOrEqual: lambda last, first: (first, None),
    spark.LessThan: lambda last, first: (None, first - 1),
    spark.LessThanOrEqual: lambda last, first: (None, last),
}


def _around_offset(constant: Any) -> _Around | None:
    return (constant, constant) if type(constant) is int else None


def _around_time(constant: Any) -> _Around | None:
    """Milliseconds since the epoch, as timestamps of records have no more digits; Spark's have microseconds."""
    if not isinstance(constant, datetime) or constant.tzinfo is None:
        return None
    since = constant - _EPOCH
    return since // _MS, -(-since // _MS)


_AROUND: Final[dict[str, Callable[[Any], _Around | None]]] = {"offset": _around_offset, "timestamp": _around_time}


def _narrowed(wanted: WantedRecords, column: str, limits: _Range) -> WantedRecords:
    first, last = (_LEAST if limits[0] is None else limits[0]), (_MOST if limits[1] is None else limits[1])
    if column == "offset":
        first_offset, last_offset = max(wanted.first_offset, first), min(wanted.last_offset, last)
        return replace(wanted, first_offset=first_offset, last_offset=last_offset)
    return replace(wanted, first_ms=max(wanted.first_ms, first), last_ms=min(wanted.last_ms, last))
