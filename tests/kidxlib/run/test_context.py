"""Where a catalog is, where one may be made, and that nothing is made anywhere else. All before Spark is started."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from jobs.build_index import build_index
from jobs.compact_index import compact_index
from jobs.forget_source import forget_source
from jobs.retention import retention
from jobs.seek import seek
from kidxlib.catalog.tables import TABLES
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import segment_file
from kidxlib.run.context import ensure_catalog_exists, ensure_catalog_usable
from tests.faults.trees import snapshot
from tests.jobs.archive import assert_refused
from tests.support.logs import golden
from tests.support.spark.jobs import run_here

_INDEX = segment_file(0, ".index")


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An index directory, a broker's log dir without partitions, a person's directory, a build that was stopped."""
    _make(tmp_path / "indexes" / "orders-0" / _INDEX)
    _make(tmp_path / "broker" / "meta.properties")
    _make(tmp_path / "documents" / "thesis.txt")
    for table in TABLES[:2]:
        (tmp_path / "stopped" / table.name / "_delta_log").mkdir(parents=True)
    (tmp_path / "stopped" / "segments").rename(tmp_path / "stopped" / "_staging")
    _make(tmp_path / "stopped" / ".hidden")
    (tmp_path / "catalog" / "segments" / "_delta_log").mkdir(parents=True)
    _make(tmp_path / "catalog" / "notes.txt")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("indexes", "it is not empty: it holds orders-0; expected a catalog, or a new or empty directory"),
        ("documents", "it is not empty: it holds thesis.txt"),
        ("indexes/catalog", "indexes holds segments or index files, in orders-0"),
        ("indexes/orders-0/deep/catalog", "orders-0 is a partition's directory"),
        ("broker/catalog", "broker is a broker's log dir: it holds meta.properties"),
        ("broker", "it is not empty: it holds meta.properties"),
        ("documents/thesis.txt/catalog", "thesis.txt is a file"),
    ],
)
def test_no_catalog_is_made_among_what_others_have(place: str, says: str, root: Path) -> None:
    """One line; nothing is made, neither by a build nor by one that looks only."""
    before = snapshot(root)
    with pytest.raises(UsageError, match=f"--catalog {root / place}: ") as raised:
        ensure_catalog_usable(str(root / place))
    assert says in str(raised.value)
    arguments = ("--source", golden.SAMPLES, "--index-dir", root / "index", "--catalog", root / place)
    assert_refused(run_here(build_index, *arguments), says)
    assert snapshot(root) == before


@pytest.mark.parametrize("place", ["new", "new/deep", "empty", "stopped", "catalog", "s3a://bucket/catalog"])
def test_a_catalog_is_made_where_nothing_is_or_found_where_it_is(place: str, root: Path) -> None:
    """What a first build left that was stopped is no obstacle, nor is a file that somebody put into a catalog."""
    ensure_catalog_usable(place if "://" in place else str(root / place))


_ASKS: dict[click.Command, tuple[str, ...]] = {
    compact_index: ("--trim",),
    forget_source: ("orders",),
    retention: (),
    seek: ("--topic", "orders", "--partition", "0", "--offset", "1"),
}


@pytest.mark.parametrize("job", _ASKS, ids=lambda job: job.name)
@pytest.mark.parametrize("place", ["no such", "indexes", "stopped", "documents/thesis.txt"])
def test_only_a_build_makes_a_catalog(job: click.Command, place: str, root: Path) -> None:
    """A mistyped --catalog is one line for every other job, and leaves nothing there."""
    before = snapshot(root)
    assert_refused(
        run_here(job, *_ASKS[job], "--catalog", root / place), f"--catalog {root / place}: no catalog there; "
    )
    assert snapshot(root) == before


def test_a_catalog_in_a_store_is_not_looked_for_before_spark() -> None:
    ensure_catalog_exists("s3a://bucket/catalog")


def test_a_catalog_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\\xff: its name has bytes that are not UTF-8, which no table holds"):
        ensure_catalog_usable(f"{tmp_path}/\udcff")
