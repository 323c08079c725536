"""Workers plan what the command itself plans, whatever has become of sources and catalog since the last build. Who
lists is decided by what there is, and by what the catalog knows before anything is listed.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.tables import TABLES
from kidxlib.commands.build import BuildCommand
from kidxlib.engine.local import LocalEngine, Workers
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import Changes
from kidxlib.indexing.plan import Plan, find_partitions, find_segments
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.planning import listed_plan, plan_changes
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.options import SETTINGS_FILE, MetadataOptions
from tests.conftest import Say
from tests.support.logs.changing_disks import CHANGES
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.jobs import kidx_build_here

_SOURCES: Final = ("a", "b", "alone-0")
_STEPS, _STEPS_EXHAUSTIVE = 5, 300
_OPTIONS: Final[dict[str, Any]] = {
    **dict.fromkeys(("directory", "database", "max_index_bytes", "verify_crc", "fill_facts", "layout", "processes")),
    **dict.fromkeys(("sample", "pack", "in_place", "accept_truncated", "repair", "dry_run", "as_json"), False),
    "tiered_metadata": (),
    "plan_on_executors": True,
    "settings_file": SETTINGS_FILE,
    "now": "2026-11-25T00:00:00Z",
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    (tmp_path / "staged").mkdir()
    with Workers(2) as workers:
        yield LocalEngine(workers, tmp_path / "staged")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two log dirs, one of them empty, and the directory of one partition."""
    for name in ("a", "b"):
        (tmp_path / "disks" / name).mkdir(parents=True)
    write_random_log(tmp_path / "disks" / "alone-0", random.Random(1))
    return tmp_path


def _add_what_is_none(partition: Path, rng: random.Random) -> None:
    """No partition, no segment, and a topic id that cannot be read."""
    (partition.parent / "no partition").mkdir(exist_ok=True)
    if partition.exists():
        (partition / "1.log").touch()
        (partition / "partition.metadata").write_text(
            rng.choice(["", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"])
        )


def _make_unlistable(partition: Path, rng: random.Random) -> None:
    """As where its disk fails: the directory is where nothing looks for it, and in its place a link to itself."""
    if partition.is_dir():
        partition.rename(_away(partition))
        partition.symlink_to(partition.name)


def _make_listable(partition: Path, rng: random.Random) -> None:
    if partition.is_symlink():
        partition.unlink()
        _away(partition).rename(partition)


def _away(partition: Path) -> Path:
    away = partition.parent.parent.parent / "away" / partition.parent.name
    away.mkdir(parents=True, exist_ok=True)
    return away / partition.name


_HAPPENS: Final = (*CHANGES, _add_what_is_none, _make_unlistable, _make_unlistable, _make_listable)


def test_they_plan_what_the_command_plans(
    root: Path, engine: LocalEngine, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """A random history of log dirs: the same plan, the same changes and the same warnings after each step, whatever is
    asked for; some steps are recorded, so the next has something to compare with. What the catalog has of partitions
    that cannot be listed stays as it is.
    """
    planned = refused = kept = 0
    for _ in range(_STEPS_EXHAUSTIVE if exhaustive else _STEPS):
        for _ in range(rng.randrange(4)):
            source = root / "disks" / rng.choice(("a", "b"))
            rng.choice(_HAPPENS)(source / f"{rng.choice(['t', 'u', 'v'])}-{rng.randrange(3)}", rng)
        request = _request(root, rng)
        catalog = _catalog(root)
        try:
            expected = _by_command(request, catalog, engine)
        except UsageError as error:
            with pytest.raises(UsageError) as raised:
                _by_workers(request, catalog, engine)
            assert str(raised.value) == str(error)
            refused += 1
            continue
        found = _by_workers(request, _catalog(root), engine)
        assert _said(*found) == _said(*expected)
        planned += 1
        if rng.random() < 0.7:
            paths = [
                argument for source in request.sources for argument in ("--source", f"{source.name}={source.path}")
            ]
            topics, _ = ("--topics", request.topics.pattern), rng
            before = _rows_of(root, found[0].unlistable)
            ended = kidx_build_here(
                *paths, *topics, "--index-dir", root / "index", "--catalog", root / "catalog", "--json"
            )
            assert ended.code in (0, 3), ended.err
            assert ended.json["unlistable_count"] == len(found[0].unlistable)
            assert _rows_of(root, found[0].unlistable) == before
            kept += len(before)
    say(f"{planned} plans and {refused} refusals; {kept} rows of partitions that could not be listed")
    assert planned


def _rows_of(root: Path, partitions: Collection[PartitionKey]) -> list[dict[str, Any]]:
    """Of partitions, all that the catalog has."""
    tables = DeltaTables(str(root / "catalog"))
    kept = [table for table in TABLES if {*PARTITION_KEY} <= {*table.column_names}]
    every = (
        row
        for table in kept
        for row in tables.read(table).sort_by([(name, "ascending") for name in table.key]).to_pylist()
    )
    return [row for row in every if tuple(map(row.get, PARTITION_KEY)) in partitions]


def _request(root: Path, rng: random.Random) -> BuildRequest:
    sources = rng.sample(_SOURCES, rng.choice([2, 3, 3]))
    build = BuildCommand(
        **_OPTIONS,
        sources=tuple(f"{name}={root / 'disks' / name}" for name in sources),
        index_dir=str(root / "index"),
        catalog=str(root / "catalog"),
        topics=rng.choice([None, None, "t|alone"]),
        interval_bytes=rng.choice([None, None, 100]),
        snapshots=rng.random() < 0.5,
        epochs=rng.random() < 0.5,
        rebuild=rng.random() < 0.1,
        metadata=MetadataOptions(),
    )
    return build.resolved


def _catalog(root: Path) -> TablesCatalog | None:
    catalog = TablesCatalog(DeltaTables(str(root / "catalog")))
    return catalog if catalog.has_segments() else None


def _by_command(request: BuildRequest, catalog: TablesCatalog | None, engine: LocalEngine) -> tuple[Plan, Changes]:
    plan = find_segments(request.sources, request.topics, request.index_place, request.options_for)
    return plan, plan_changes(request, plan, catalog, engine)


def _by_workers(request: BuildRequest, catalog: TablesCatalog | None, engine: LocalEngine) -> tuple[Plan, Changes]:
    plan = find_partitions(request.sources, request.topics, request.index_place, request.options_for)
    return plan, plan_changes(request, plan, catalog, engine)


def _said(plan: Plan, changes: Changes) -> dict[str, Any]:
    """All that is known of a plan but its segments; rows in an order of their own."""
    of_plan = {field.name: getattr(plan, field.name) for field in fields(plan)}
    del of_plan["segments"], of_plan["is_listed"]
    of_plan["skipped"] = (plan.skipped.counts, sorted(plan.skipped.unexpected))
    of_plan["warnings"] = sorted(plan.warnings)
    of_changes = {field.name: getattr(changes, field.name) for field in fields(changes)}
    for name, value in of_changes.items():
        if isinstance(value, pa.Table):
            of_changes[name] = sorted(value.to_pylist(), key=lambda row: tuple(map(repr, row.values())))
    return of_plan | of_changes


@pytest.fixture
def request_of_two(tmp_path: Path, rng: random.Random) -> BuildRequest:
    """Two partitions that a catalog knows."""
    (tmp_path / "disk").mkdir()
    for name in ("a-0", "b-0"):
        write_random_log(tmp_path / "disk" / name, rng)
    source, index_dir, catalog = f"disk={tmp_path / 'disk'}", str(tmp_path / "index"), str(tmp_path / "catalog")
    ended = kidx_build_here("--source", source, "--index-dir", index_dir, "--catalog", catalog)
    assert ended.code in (0, 3), ended.err
    options = {**_OPTIONS, "plan_on_executors": False, "now": None, "rebuild": False, "metadata": MetadataOptions()}
    none: dict[str, Any] = dict.fromkeys(("topics", "interval_bytes", "snapshots", "epochs"))
    return BuildCommand(**options, **none, sources=(source,), index_dir=index_dir, catalog=catalog).resolved


def _at_most(request: BuildRequest, segments: int) -> BuildRequest:
    return replace(request, limits=replace(request.limits, driver_listing_max=segments))


def test_it_is_the_command_up_to_a_number_of_segments(request_of_two: BuildRequest) -> None:
    count = listed_plan(request_of_two).segments.num_rows
    assert listed_plan(_at_most(request_of_two, count)).is_listed
    plan = listed_plan(_at_most(request_of_two, count - 1))
    assert not plan.is_listed and [partition.key[1] for partition in plan.partitions] == ["a", "b"]


def test_it_is_workers_where_the_catalog_knows_more(request_of_two: BuildRequest, tmp_path: Path) -> None:
    """Then nothing is listed to find that out; and of another source it knows nothing."""
    count = listed_plan(request_of_two).segments.num_rows
    shutil.rmtree(tmp_path / "disk" / "b-0")
    assert listed_plan(_at_most(request_of_two, count)).is_listed
    left = len(list((tmp_path / "disk" / "a-0").glob("*.log")))
    assert not listed_plan(_at_most(request_of_two, max(left, count - 1))).is_listed
    [source] = request_of_two.sources
    of_another = replace(request_of_two, sources=(replace(source, name="other"),))
    assert listed_plan(_at_most(of_another, left)).is_listed
