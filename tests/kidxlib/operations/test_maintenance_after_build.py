"""Tables that builds have filled are put in order by themselves: files stay few, the log tells a partition's, and a row
is not written anew at each build.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog import updates
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS, FILE_BYTES, SMALL_FILE_BYTES
from kidxlib.operations import maintenance
from kidxlib.operations.maintenance import (
    OptimizeLimits,
    files_to_merge,
    optimize_tables,
    optimized_in_words,
)
from kidxlib.tables import data_files, delta_maintenance, delta_tables
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.tables.protocol import files_schema
from tests.conftest import Say, one_in
from tests.faults.trees import small_log, write_log
from tests.support.catalog import append_rows, filled_rows
from tests.support.opened_files import OpenedFiles
from tests.support.spark.jobs import kidx_build_here

#: A table has some dozen files of this size, in place of some hundred of 16 MiB.
_FILE_BYTES: Final = 30_000
_LIMITS: Final = OptimizeLimits(small_files_max=4, bytes_max=2**63)
_TOPICS, _PARTITIONS, _BUILDS = 4, 12, 6

_MIB: Final = 1024**2
_NO_LIMIT: Final = 2**63
_TOPICS_TO_CHOOSE: Final = 100
#: Each example is a history of many builds.
FEW: Final = one_in(20)


@pytest.fixture
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (data_files, delta_tables):
        monkeypatch.setattr(module, "FILE_BYTES", _FILE_BYTES)
    monkeypatch.setattr(maintenance, "SMALL_FILE_BYTES", _FILE_BYTES // 2)


def _segment(rng: random.Random, topic: int, partition: int, base_offset: int) -> dict[str, Any]:
    key = {"source": "s", "topic": f"topic-{topic}", "partition": partition, "base_offset": base_offset}
    # Bytes that do not compress, or a row of these tables would hardly take any.
    return {**key, "log_path": rng.randbytes(100).hex()}


def _write(tables: DeltaTables, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows, or replace those with their keys, as a build does."""
    found = {"row": filled_rows(SEGMENTS, rows)}
    tables.change_rows(SEGMENTS, found, partial(updates.written, table=SEGMENTS), by=SEGMENTS.key)


def _of_build(rng: random.Random, number: int) -> list[dict[str, Any]]:
    """Rows of each partition that a build adds, as those of segments that are new, or of their events."""
    every = [(topic, partition) for topic in range(_TOPICS) for partition in range(_PARTITIONS)]
    return [_segment(rng, *each, number) for each in every]


def _files(tables: DeltaTables) -> dict[str, dict[str, Any]]:
    return {file["path"]: file for file in DeltaMaintenance(tables).files(SEGMENTS).to_pylist()}


def _may_hold(tables: DeltaTables, topic: int, partition: int) -> set[str]:
    """The files that may have rows of a partition, by what Delta's log says of them."""
    return {
        path
        for path, file in _files(tables).items()
        if file["min.topic"] <= f"topic-{topic}" <= file["max.topic"]
        and file["min.partition"] <= partition <= file["max.partition"]
    }


def _change_one(tables: DeltaTables, rng: random.Random, number: int) -> tuple[set[str], set[str], set[str]]:
    """Replace a row of a partition, and add one: the files that may have the partition, those that are opened for it,
    and those that are replaced.
    """
    topic, partition = rng.randrange(_TOPICS), rng.randrange(_PARTITIONS)
    before, directory = _may_hold(tables, topic, partition), Path(tables.path, SEGMENTS.name)
    known = set(_files(tables))
    with OpenedFiles([directory]) as opened:
        _write(tables, [_segment(rng, topic, partition, offset) for offset in (number, 10_000 + rng.randrange(10_000))])
    log = (directory / "_delta_log" / f"{tables.version(SEGMENTS):020}.json").read_text().splitlines()
    removed = {action["remove"]["path"] for action in map(json.loads, log) if "remove" in action}
    return before, {path.name for path in opened.files(".parquet")} & known, removed


@pytest.mark.usefixtures("_small_files")
def test_a_commit_about_one_partition_touches_its_files(tmp_path: Path, rng: random.Random, say: Say) -> None:
    """Goal: after many builds a commit of one partition reads and rewrites the files of that partition, and these stay
    few however large the table is.

    Method: builds of all partitions, then changes of one partition each. The kernel says which files are opened,
    Delta's log which are replaced. A table without upkeep shows that this is not so by itself.
    """
    tables, without = DeltaTables(str(tmp_path / "kept")), DeltaTables(str(tmp_path / "without"))
    said: list[str] = []
    counts: list[int] = []
    for number in range(3 * _BUILDS):
        _write(tables, _of_build(rng, number))
        append_rows(Path(without.path), SEGMENTS, *_of_build(rng, number))
        said += filter(None, [optimized_in_words(optimize_tables(DeltaMaintenance(tables), [SEGMENTS], _LIMITS))])
        if number % _BUILDS == _BUILDS - 1:
            touched = [_change_one(tables, rng, number) for _ in range(4)]
            assert all(removed and removed <= opened <= may_hold for may_hold, opened, removed in touched)
            counts.append(max(len(opened) for _, opened, _ in touched))
    sizes = [file["size_bytes"] for file in _files(tables).values()]
    say(f"{len(sizes)} files, {sum(sizes):,} bytes; at most {counts} opened; {len(said)} times put in order")
    assert said and all(each.startswith("segments put in order: ") for each in said)
    assert max(counts) <= _LIMITS.small_files_max + 4
    assert len(sizes) <= _LIMITS.small_files_max + 4 + sum(sizes) / (_FILE_BYTES / 2)
    assert len(_may_hold(without, 0, 0)) == 3 * _BUILDS > 2 * (_LIMITS.small_files_max + 4)
    rows = tables.read(SEGMENTS, SEGMENTS.key)
    assert rows.num_rows == rows.group_by(list(SEGMENTS.key)).aggregate([]).num_rows
    assert rows.num_rows == 3 * (_TOPICS * _PARTITIONS * _BUILDS + 4)


def test_it_pays_or_nothing_is_done(tmp_path: Path) -> None:
    """A table is left as it is until it has as many files as the limit says; one that does not exist, too."""
    maintenance = DeltaMaintenance(DeltaTables(str(tmp_path)))
    for number in range(_LIMITS.small_files_max):
        append_rows(tmp_path, BUILDS, {"build_id": str(number)})
    assert optimize_tables(maintenance, [BUILDS, SEGMENTS], _LIMITS) == []
    append_rows(tmp_path, BUILDS, {"build_id": "last"})
    [found] = optimize_tables(maintenance, [BUILDS, SEGMENTS], _LIMITS)
    assert (found.table, found.merged_files, found.files_before, found.files_after) == ("builds", 5, 5, 1)
    assert optimized_in_words([found]) == "builds put in order: 1 file, where there were 5"
    assert DeltaTable(tmp_path / "builds").to_pyarrow_table().num_rows == 5


def test_who_commits_meanwhile_is_given_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first time, and said."""
    tables = DeltaTables(str(tmp_path))
    maintenance = DeltaMaintenance(tables)
    for number in range(6):
        append_rows(tmp_path, BUILDS, {"build_id": str(number)})

    def overtaken(*arguments: Any) -> list[Any]:
        written = list(data_files.write_sorted(*arguments))
        maintenance.expire(BUILDS, lambda: pa.table({"build_id": ["3"]}))
        return written

    monkeypatch.setattr(delta_maintenance, "write_sorted", overtaken)
    [found] = optimize_tables(maintenance, [BUILDS], _LIMITS)
    assert found.gave_way and found.files_before == found.files_after
    assert optimized_in_words([found]) == "builds left for a later build, as another run has changed it"
    assert tables.read(BUILDS, ["build_id"]).num_rows == 5


def test_what_goes_wrong_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The build is recorded by then: a file that is away keeps no later table from its turn, nor fails the run."""
    for number in range(6):
        append_rows(tmp_path, SEGMENTS, {"base_offset": number})
        append_rows(tmp_path, BUILDS, {"build_id": str(number)})
    next((tmp_path / "segments").glob("*.parquet")).unlink()
    [found] = optimize_tables(DeltaMaintenance(DeltaTables(str(tmp_path))), [SEGMENTS, BUILDS], _LIMITS)
    assert found.table == "builds"
    said = capsys.readouterr().err
    assert said.startswith(f"warning: {tmp_path}/segments: cannot be written: ")
    assert said.endswith("; the build is recorded\n")


@pytest.mark.parametrize("optimize", [True, False])
def test_a_build_does_it_at_its_end(optimize: bool, tmp_path: Path) -> None:
    """Goal: however many builds there are, each table has a few files, without a command; and nothing is vacuumed. The
    switch in the settings leaves them as they are.

    Method: builds with one more partition each.
    """
    log_dir, catalog, settings = (tmp_path / name for name in ("kafka-logs", "catalog", "kidx.toml"))
    settings.write_text(f"[tables]\nsmall_files_max = 2\noptimize = {str(optimize).lower()}\n")
    options = ("--index-dir", tmp_path / "index", "--catalog", catalog, "--settings", settings)
    builds = 5 if optimize else 4
    for number in range(builds):
        write_log(log_dir / f"topic-{number}", 0, small_log())
        ended = kidx_build_here(log_dir, *options, *(["--json"] if number in (1, 2) else []))
        assert ended.code == 0, ended.err
        if number == 2 and optimize:
            optimized = {table.pop("table"): table for table in ended.json["optimized"]}
            assert optimized["segments"] == {"merged_files": 3, "files_before": 3, "files_after": 1, "gave_way": False}
        elif number in (1, 2):
            assert ended.json["optimized"] == []
        else:
            assert ("tables:      " in ended.out) == (optimize and number == 4), (number, ended.out)
    for name in ("segments", "builds"):
        table = DeltaTable(catalog / name)
        said = [str(commit.get("kidx.operation", commit["operation"])) for commit in table.history()]
        assert said.count("compact in order") == (2 if optimize else 0) and not any("VACUUM" in each for each in said)
        assert len(table.file_uris()) == (1 if optimize else builds)
        assert table.to_pyarrow_table().num_rows == builds


@dataclass(frozen=True)
class _File:
    """A file with the rows of some topics, from one on up to another."""

    size: int
    first: int
    last: int


def _files_to_choose(table: Table, files: list[dict[str, Any]]) -> pa.Table:
    """Of a table, by their bounds. What is not given is null: nothing is known of it."""
    schema = files_schema(table)
    named = [{"path": str(number), **file} for number, file in enumerate(files)]
    return pa.Table.from_pylist([{name: file.get(name) for name in schema.names} for file in named], schema)


def _of_topics(files: list[_File]) -> pa.Table:
    return _files_to_choose(
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
        files += _in_order([_File(size, 0, _TOPICS_TO_CHOOSE)])
        if chosen := _chosen(files, limits):
            merged = [files[number] for number in chosen]
            assert len(merged) > most
            files = [file for number, file in enumerate(files) if number not in chosen] + _in_order(merged)
            written += sum(file.size for file in merged)
        growth = math.log(sum(file.size for file in files) / min(builds) + 1, 1.5)
        overlapping = max(sum(file.first <= topic < file.last for file in files) for topic in range(_TOPICS_TO_CHOOSE))
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
    assert files_to_merge(SEGMENTS, _files_to_choose(SEGMENTS, run), limits) == []
    whole = _bounds(("a", 0, 0), ("z", 9, 9))
    overlapping = files_to_merge(SEGMENTS, _files_to_choose(SEGMENTS, [*run, whole, whole]), limits)
    assert sorted(overlapping) == ["5", "6"], "the run is more than twice as large as they are"
    assert len(files_to_merge(SEGMENTS, _files_to_choose(SEGMENTS, [*run, *[whole] * 3]), limits)) == 8
    small = {**whole, "size_bytes": 10}
    assert sorted(files_to_merge(SEGMENTS, _files_to_choose(SEGMENTS, [*run, small, small]), limits)) == ["5", "6"], (
        "by size"
    )


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
    files = [_File(_MIB, 0, _TOPICS_TO_CHOOSE)] * 30
    limits = OptimizeLimits(small_files_max=5, bytes_max=10 * _MIB)
    assert len(_chosen(files, limits)) == 10
    assert _chosen(files, OptimizeLimits(small_files_max=10, bytes_max=10 * _MIB)) == []
    large = [_File(FILE_BYTES, 0, _TOPICS_TO_CHOOSE)] * 30
    assert _chosen(large, limits) == []


def test_small_files_that_do_not_overlap_are_put_together_too() -> None:
    """As those of audits, each with an id of its own; and those of which the log says nothing."""
    audits = [{"size_bytes": 10, "min.audit_id": f"{each}", "max.audit_id": f"{each}"} for each in range(10)]
    limits = OptimizeLimits(small_files_max=9, bytes_max=_NO_LIMIT)
    assert len(files_to_merge(FINDINGS, _files_to_choose(FINDINGS, audits), limits)) == 10
    assert (
        len(files_to_merge(FINDINGS, _files_to_choose(FINDINGS, [{"size_bytes": SMALL_FILE_BYTES}] * 10), limits)) == 10
    )
    assert files_to_merge(FINDINGS, _files_to_choose(FINDINGS, audits[:9]), limits) == []
