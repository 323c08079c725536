"""Files are chosen so that there are never many of them, and so that a row is not written anew at each build."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.maintenance.after_build.choice import OptimizeLimits, files_to_merge
from kidxlib.tables.layout import FILE_BYTES, SMALL_FILE_BYTES
from kidxlib.tables.maintenance import files_schema
from tests.conftest import one_in

_MIB: Final = 1024**2
_NO_LIMIT: Final = 2**63
_TOPICS: Final = 100
#: Each example is a history of many builds.
FEW: Final = one_in(20)


@dataclass(frozen=True)
class _File:
    """A file with the rows of some topics, from one on up to another."""

    size: int
    first: int
    last: int


def _files(table: Table, files: list[dict[str, Any]]) -> pa.Table:
    """Of a table, by their bounds. What is not given is null: nothing is known of it."""
    schema = files_schema(table)
    named = [{"path": str(number), **file} for number, file in enumerate(files)]
    return pa.Table.from_pylist([{name: file.get(name) for name in schema.names} for file in named], schema)


def _of_topics(files: list[_File]) -> pa.Table:
    return _files(
        SEGMENTS,
        [{"size_bytes": file.size, "min.topic": f"{file.first:04}", "max.topic": f"{file.last:04}"} for file in files],
    )


def _chosen(files: list[_File], limits: OptimizeLimits) -> list[int]:
    return [int(path) for path in files_to_merge(SEGMENTS, _of_topics(files), limits)]


def _in_order(files: list[_File]) -> list[_File]:
    """What the rows of files fill once they are written anew."""
    size, first, last = (
        sum(file.size for file in files),
        min(each.first for each in files),
        max(each.last for each in files),
    )
    count = -(-size // FILE_BYTES)
    cuts = [first + (last - first) * number // count for number in range(count + 1)]
    return [_File(size // count, cuts[number], cuts[number + 1]) for number in range(count)]


@FEW
@given(
    builds=st.lists(st.integers(10, 40 * _MIB), min_size=1, max_size=12).flatmap(
        lambda sizes: st.lists(st.sampled_from(sizes), min_size=30, max_size=150)
    ),
    most=st.integers(1, 12),
)
def test_files_stay_few_and_rows_are_not_written_anew_often(builds: list[int], most: int) -> None:
    """Builds that each add rows of all topics, small and large: of files that may be put together there are as many as
    the limit says and a few; and each row is written anew as often as the table has grown by half, but for a small file
    that is left over.
    """
    limits = OptimizeLimits(small_files_max=most, bytes_max=_NO_LIMIT)
    files: list[_File] = []
    written = 0
    for size in builds:
        files += _in_order([_File(size, 0, _TOPICS)])
        if chosen := _chosen(files, limits):
            merged = [files[number] for number in chosen]
            assert len(merged) > most
            files = [file for number, file in enumerate(files) if number not in chosen] + _in_order(merged)
            written += sum(file.size for file in merged)
        growth = math.log(sum(file.size for file in files) / min(builds) + 1, 1.5)
        overlapping = max(sum(file.first <= topic < file.last for file in files) for topic in range(_TOPICS))
        assert overlapping <= most + growth
        assert len(files) <= most + growth + sum(file.size for file in files) / SMALL_FILE_BYTES
    assert written <= sum(builds) * (growth + 1) + SMALL_FILE_BYTES * (len(builds) / most + 1)


def test_files_of_a_run_do_not_overlap() -> None:
    """As `write_sorted` cuts them: by topic, amid topics that share a file, and amid one partition."""
    bounds = [
        (("a", 0, 0), ("b", 3, 9)),
        (("b", 3, 10), ("b", 7, 5)),
        (("b", 7, 6), ("b", 7, 8)),
        (("b", 7, 9), ("c", 0, 0)),
        (("c", 0, 1), ("z", 9, 9)),
    ]
    run = [_bounds(first, last) for first, last in bounds]
    limits = OptimizeLimits(small_files_max=1, bytes_max=_NO_LIMIT)
    assert files_to_merge(SEGMENTS, _files(SEGMENTS, run), limits) == []
    whole = _bounds(("a", 0, 0), ("z", 9, 9))
    overlapping = files_to_merge(SEGMENTS, _files(SEGMENTS, [*run, whole, whole]), limits)
    assert sorted(overlapping) == ["5", "6"], "the run is more than twice as large as they are"
    assert len(files_to_merge(SEGMENTS, _files(SEGMENTS, [*run, *[whole] * 3]), limits)) == 8
    small = {**whole, "size_bytes": 10}
    assert sorted(files_to_merge(SEGMENTS, _files(SEGMENTS, [*run, small, small]), limits)) == ["5", "6"], "by size"


def _bounds(first: tuple[str, int, int], last: tuple[str, int, int]) -> dict[str, Any]:
    """A large file from one key up to another, as the log tells of it: the bounds of each column."""
    found: dict[str, Any] = {"size_bytes": FILE_BYTES}
    is_one = True
    for name, least, greatest in zip(("topic", "partition", "base_offset"), first, last, strict=True):
        found |= {f"min.{name}": least, f"max.{name}": greatest} if is_one else {f"min.{name}": 0, f"max.{name}": 99}
        is_one = is_one and least == greatest
    return found | {"min.source": "s", "max.source": "s"}


def test_no_more_is_written_than_is_allowed() -> None:
    """Of small files as many as fit; a large one stays where it alone is too large."""
    files = [_File(_MIB, 0, _TOPICS)] * 30
    limits = OptimizeLimits(small_files_max=5, bytes_max=10 * _MIB)
    assert len(_chosen(files, limits)) == 10
    assert _chosen(files, OptimizeLimits(small_files_max=10, bytes_max=10 * _MIB)) == []
    large = [_File(FILE_BYTES, 0, _TOPICS)] * 30
    assert _chosen(large, limits) == []


def test_small_files_that_do_not_overlap_are_put_together_too() -> None:
    """As those of audits, each with an id of its own; and those of which the log says nothing."""
    audits = [{"size_bytes": 10, "min.audit_id": f"{each}", "max.audit_id": f"{each}"} for each in range(10)]
    limits = OptimizeLimits(small_files_max=9, bytes_max=_NO_LIMIT)
    assert len(files_to_merge(FINDINGS, _files(FINDINGS, audits), limits)) == 10
    assert len(files_to_merge(FINDINGS, _files(FINDINGS, [{"size_bytes": SMALL_FILE_BYTES}] * 10), limits)) == 10
    assert files_to_merge(FINDINGS, _files(FINDINGS, audits[:9]), limits) == []
