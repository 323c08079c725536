"""Tables that builds have filled are put in order by themselves: files stay few, and the log tells a partition's."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kidxlib.catalog import updates
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.maintenance.after_build import choice
from kidxlib.operations.maintenance.after_build.choice import OptimizeLimits
from kidxlib.operations.maintenance.after_build.optimize import optimize_tables, optimized_as_line
from kidxlib.tables import merged_files, sorted_files, sorted_merge
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from tests.conftest import Say
from tests.faults.trees import small_log, write_log
from tests.support.catalog import append_rows, filled
from tests.support.opened_files import OpenedFiles
from tests.support.spark.jobs import kidx_build_here

#: A table has some dozen files of this size, in place of some hundred of 16 MiB.
_FILE_BYTES: Final = 30_000
_LIMITS: Final = OptimizeLimits(small_files_max=4, bytes_max=2**63)
_TOPICS, _PARTITIONS, _BUILDS = 4, 12, 6


@pytest.fixture
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sorted_files, sorted_merge):
        monkeypatch.setattr(module, "FILE_BYTES", _FILE_BYTES)
    monkeypatch.setattr(choice, "SMALL_FILE_BYTES", _FILE_BYTES // 2)


def _segment(rng: random.Random, topic: int, partition: int, base_offset: int) -> dict[str, Any]:
    key = {"source": "s", "topic": f"topic-{topic}", "partition": partition, "base_offset": base_offset}
    # Bytes that do not compress, or a row of these tables would hardly take any.
    return {**key, "log_path": rng.randbytes(100).hex()}


def _write(tables: DeltaTables, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows, or replace those with their keys, as a build does."""
    whole = [filled(SEGMENTS.schema(), row) for row in rows]
    found = {"row": pa.Table.from_pylist(whole, SEGMENTS.schema())}
    tables.change(SEGMENTS, found, partial(updates.written, table=SEGMENTS), by=SEGMENTS.key)


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
        said += filter(None, [optimized_as_line(optimize_tables(DeltaMaintenance(tables), [SEGMENTS], _LIMITS))])
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
    assert optimized_as_line([found]) == "builds put in order: 1 file, where there were 5"
    assert DeltaTable(tmp_path / "builds").to_pyarrow_table().num_rows == 5


def test_who_commits_meanwhile_is_given_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first time, and said."""
    tables = DeltaTables(str(tmp_path))
    maintenance = DeltaMaintenance(tables)
    for number in range(6):
        append_rows(tmp_path, BUILDS, {"build_id": str(number)})

    def overtaken(*arguments: Any) -> list[Any]:
        written = list(sorted_files.write_sorted(*arguments))
        maintenance.expire(BUILDS, lambda: pa.table({"build_id": ["3"]}))
        return written

    monkeypatch.setattr(merged_files, "write_sorted", overtaken)
    [found] = optimize_tables(maintenance, [BUILDS], _LIMITS)
    assert found.gave_way and found.files_before == found.files_after
    assert optimized_as_line([found]) == "builds left for a later build, as another run has changed it"
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
