"""`kidx report`: what it says of a catalog, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.alerts import rules
from tests.support.logs import golden
from tests.support.report_fleet import run_kidx

#: A month after the sample was written.
_NOW = "2026-12-20T00:00:00Z"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A log dir with a partition that is damaged and one that loses segments, and a catalog of it."""
    return _built(tmp_path, "append-time-0", "plain-zstd-0")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of the sample, for those who change nothing in it."""
    return _built(tmp_path_factory.mktemp("site"), ".")


def _built(site: Path, *directories: str) -> Path:
    for name in directories:
        shutil.copytree(golden.SAMPLES / name, site / "logs" / name)
    _build(site)
    return site


def _build(site: Path) -> None:
    at = ("--index-dir", str(site / "index"), "--catalog", str(site / "catalog"))
    run_kidx("build", "--source", f"disk={site / 'logs'}", *at, codes=(0, 3))


def _report(site: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run_kidx("report", "--catalog", str(site / "catalog"), "--now", _NOW, "--json", *options, codes=(0, 3))
    )
    return found


def test_nothing_is_recorded(unchanged: Path, tmp_path: Path) -> None:
    tables = DeltaTables(str(unchanged / "catalog"))
    before = {table.name: tables.version(table) for table in TABLES}
    report = _report(unchanged, "--output", str(tmp_path / "report.html"))
    assert {table.name: tables.version(table) for table in TABLES} == before
    assert report["overview"]["segments"] == tables.read(SEGMENTS).num_rows
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_what_was_never_looked_at_is_not_called_well(unchanged: Path) -> None:
    report = _report(unchanged)
    titles = {row["title"]: row["detail"] for row in report["attention"]}
    assert "1 source never audited" in titles
    topics = report["retention"]["topics"]
    asked = [row["topic"] for row in topics if row["configured"]["unknown"] and not row["kept"]]
    assert 0 < len(asked) < len(topics), "of internal and compacted topics nobody asks it"
    [remedy] = {row["configured"]["remedy"] for row in topics}
    assert f"; {remedy}, and the report says" in titles[f"{len(asked)} topics whose retention is not known"]
    assert any("the last build is" in title for title in titles)


def test_partitions_that_no_audit_has_come_to_are_not_called_well(site: Path) -> None:
    at = ("--source", f"disk={site / 'logs'}", "--catalog", str(site / "catalog"))
    run_kidx("verify", *at, "--max-bytes", "1")
    titles = [row["title"] for row in _report(site)["attention"]]
    assert "1 partition never audited" in titles and "1 source never audited" not in titles


def test_a_copy_that_lacks_or_cannot_tell_is_not_called_the_same(tmp_path: Path) -> None:
    """A copy without a segment in the middle, with a wrong byte, and without a partition."""
    shutil.copytree(golden.SAMPLES, tmp_path / "copy")
    (tmp_path / "copy" / "txn-mixed-0" / f"{84:020}.log").unlink()
    shutil.rmtree(tmp_path / "copy" / "append-time-0")
    for name, at in (("plain-zstd-0", 500_000), ("compacted-0", 1000)):
        with (tmp_path / "copy" / name / f"{0:020}.log").open("r+b") as log:
            log.seek(at)
            log.write(b"\0\0\0\0")
    sources = ("--source", f"broker={golden.SAMPLES}", "--source", f"copy={tmp_path / 'copy'}")
    run_kidx(
        "build", *sources, "--index-dir", str(tmp_path / "index"), "--catalog", str(tmp_path / "catalog"), codes=(0, 3)
    )
    replicas = _report(tmp_path)["replicas"]
    said = {row["topic"]: (row["verdict"], row["sentence"]) for row in replicas["partitions"]}
    assert said["txn-mixed"] == ("lacks", "source copy lacks offsets 84–5796, which broker has")
    assert said["plain-zstd"][0] == "not-comparable" and "damaged" in said["plain-zstd"][1]
    assert said["compacted"][0] == "not-comparable"
    [missing] = replicas["missing"]
    assert (missing["source"], missing["partitions"], missing["count"]) == ("copy", ["append-time-0"], 1)
    titles = [row["title"] for row in _report(tmp_path)["attention"]]
    assert "1 replica with offsets missing" in titles and "1 partition of 5 missing in copy" in titles
    assert "1 replica not compared to the end" in titles
    by_catalog = ("compare", "broker", "copy", "--as", "replica", "--catalog", str(tmp_path / "catalog"), "--json")
    found = {(each["directory"], each["kind"]) for each in json.loads(run_kidx(*by_catalog, codes=(3,)))["findings"]}
    assert found >= {("append-time-0", "missing"), ("txn-mixed-0", "lacks")}
    assert found >= {("plain-zstd-0", "not-comparable"), ("compacted-0", "not-comparable")}


def test_a_catalog_without_segments_is_not_called_well(site: Path) -> None:
    run_kidx("forget-source", "disk", "--catalog", str(site / "catalog"), "--apply")
    report = _report(site, "--output", str(site / "report.html"))
    assert [row["title"] for row in report["attention"]] == ["the catalog has no segments"]
    assert report["overview"]["segments"] == 0 and report["retention"]["topics"] == []
    assert (site / "report.html").exists()


def test_what_is_bad_is_counted_for_an_alert(site: Path) -> None:
    """`KidxReportBad` of docs/operations.md asks for it."""
    log = max((site / "logs" / "append-time-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-5])
    figures = site / "report.prom"
    for expected in (0, 1):
        _report(site, "--metrics-file", str(figures))
        found = {
            (sample.name, sample.labels.get("what")): sample.value
            for family in text_string_to_metric_families(figures.read_text())
            for sample in family.samples
        }
        assert found["kidx_run_count", "bad"] == expected
        _build(site)
    assert 'kidx_run_count{job="report", what="bad"}' in rules()


def test_changes_since_the_build_before(site: Path) -> None:
    assert _report(site)["overview"]["changes"]["new_segments"] == len([*site.glob("logs/*/*.log")])
    gone = site / "logs" / "plain-zstd-0" / f"{0:020}.log"
    gone_bytes = gone.stat().st_size
    gone.unlink()
    active = max((site / "logs" / "append-time-0").glob("*.log"))
    content = active.read_bytes()
    active.write_bytes(content + content[:100])
    _build(site)
    changes = _report(site)["overview"]["changes"]
    assert changes["gone_segments"] == 1 and changes["gone_bytes"] == gone_bytes
    assert changes["grown_segments"] == 1 and changes["grown_bytes"] == 100
    assert changes["new_segments"] == 0
    titles = {row["title"]: row["severity"] for row in _report(site)["attention"]}
    assert titles["1 segment damaged"] == "bad" and titles["1 segment gone since the build before"] == "warning"


def test_damage_that_was_accepted_is_not_to_look_at(site: Path) -> None:
    log = max((site / "logs" / "append-time-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-5])
    _build(site)
    (row,) = _report(site)["health"]["damaged"]
    assert row["commands"][0] == f"kidx dump {log}"
    at = ("--catalog", str(site / "catalog"))
    run_kidx("accept", *at, "--source", "disk", "--reason", "a copy of a running disk", "--by", "me", "--apply")
    report = _report(site)
    assert report["health"]["damaged"][0]["accepted_by"] == "me"
    assert not any("damaged" in row["title"] for row in report["attention"])


def test_a_finding_that_was_accepted_is_not_to_look_at(site: Path) -> None:
    """Of an index file, until it is another one: a broken file counts again once it has changed."""
    index = next((site / "index").rglob("*.index"))
    index.write_bytes(index.read_bytes()[:-4])
    at = ("--catalog", str(site / "catalog"))
    verify = ("verify", "--source", f"disk={site / 'logs'}", "--index-dir", str(site / "index"), *at)
    run_kidx(*verify, codes=(3,))
    assert "1 file broken" in _bad(_report(site))
    run_kidx("accept", *at, "--source", "disk", "--reason", "read by nobody", "--by", "me", "--apply")
    report = _report(site)
    (row,) = report["health"]["files"]
    assert (row["file"], row["accepted_by"], row["accepted_reason"]) == (".index", "me", "read by nobody")
    assert not _bad(report) and report["health"]["accepted_files"] == 1
    run_kidx(*verify)  # another audit finds the same in the same file
    assert not _bad(_report(site))
    index.write_bytes(index.read_bytes()[:-8])
    run_kidx(*verify, codes=(3,))
    assert "1 file broken" in _bad(_report(site))


def _bad(report: dict[str, Any]) -> list[str]:
    return [row["title"] for row in report["attention"] if row["severity"] == "bad"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to write: name the page with --output FILE.html, or ask for --json"),
        (["--output", "."], "--output .: a directory; expected a file's name"),
        (["--output", "no-such/x.html"], "--output no-such/x.html: no directory no-such; make it first"),
    ],
)
def test_refusals(unchanged: Path, options: list[str], message: str) -> None:
    asked = ["report", "--catalog", str(unchanged / "catalog"), *options]
    result = CliRunner().invoke(kidx, asked, standalone_mode=False)
    assert isinstance(result.exception, UsageError) and str(result.exception) == message
