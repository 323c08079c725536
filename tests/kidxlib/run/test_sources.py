"""What is read where nobody says so: the sample for a first try, and never in place of something that was forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.build_index import build_index
from jobs.verify_index import verify_index
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.errors import UsageError
from kidxlib.indexing.source import Source, sources_line
from kidxlib.run.settings import BuildSettings
from kidxlib.run.sources import SAMPLE, chosen_sources, ensure_sample_alone
from tests.faults.trees import snapshot
from tests.jobs.archive import assert_refused
from tests.support.catalog import append_rows
from tests.support.spark.jobs import run_here

_ONE_LINE = "name the log dir to read with --source, or give --sample for the bundled one"


def test_the_sample_is_read_where_nothing_is_named_or_when_asked_for() -> None:
    assert chosen_sources((), sample=False, options={"--index-dir": None}, settings=BuildSettings()) == (SAMPLE,)
    own = BuildSettings(catalog="/mnt/catalog")
    assert chosen_sources((), sample=True, options={"--index-dir": "x"}, settings=own) == (SAMPLE,)
    assert sources_line((SAMPLE, Source("/x", Path("/x")))) == f"sample ({SAMPLE.path}), /x"


@pytest.mark.parametrize("asked_for", [True, False])
def test_where_the_sample_is_not_it_is_not_offered(
    asked_for: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a wheel, which has no `samples`."""
    monkeypatch.setattr("kidxlib.run.sources._SAMPLE_DIR", tmp_path / "samples")
    with pytest.raises(UsageError) as raised:
        chosen_sources((), sample=asked_for, options={}, settings=BuildSettings())
    assert str(raised.value) == (
        f"{'--sample' if asked_for else 'no --source'}: the sample comes with a checkout, and this kidx is not in one; "
        "name the log dir to read with --source"
    )
    with pytest.raises(UsageError, match=r"though --catalog is given: name the log dir to read with --source$"):
        chosen_sources((), sample=False, options={"--catalog": "c"}, settings=BuildSettings())


@pytest.mark.parametrize(
    "named",
    [("--index-dir", "index"), ("--catalog", "catalog"), ("--database", "kidx"), ("--settings", "kidx.toml")],
    ids=lambda named: named[0],
)
def test_who_names_a_place_and_no_source_is_asked_for_one(named: tuple[str, str], tmp_path: Path) -> None:
    """A build and an audit alike, in one line, before anything is made. Settings name places as options do."""
    option, name = named
    (tmp_path / "kidx.toml").write_text('[build]\ncatalog = "/mnt/catalog"\n')
    (tmp_path / "index").mkdir()
    (tmp_path / "catalog" / "segments" / "_delta_log").mkdir(parents=True)
    before = snapshot(tmp_path)
    value = name if option == "--database" else tmp_path / name
    given = "build.catalog in the settings" if option == "--settings" else option
    for job in (build_index, verify_index):
        assert_refused(run_here(job, option, value), f"no --source, though {given} is given: {_ONE_LINE}")
    assert snapshot(tmp_path) == before
    assert_refused(run_here(build_index, "--sample", "--source", tmp_path), "--sample and --source: give one of them")


def test_the_sample_does_not_come_among_other_sources_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where catalog and index dir are the defaults: somebody may work with them."""
    monkeypatch.chdir(tmp_path)
    catalog = tmp_path / "var" / "catalog"
    ensure_sample_alone(str(catalog))
    append_rows(catalog, PARTITIONS, {"source": "sample", "topic": "t"})
    ensure_sample_alone(str(catalog))
    append_rows(catalog, PARTITIONS, {"source": "orders", "topic": "t"})
    assert_refused(run_here(build_index), f"no --source, and the catalog {catalog} has orders: {_ONE_LINE}")


def test_a_broken_table_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "partitions" / "_delta_log").mkdir(parents=True)
    (tmp_path / "partitions" / "_delta_log" / f"{0:020d}.json").write_text("{")
    ensure_sample_alone(str(tmp_path))
