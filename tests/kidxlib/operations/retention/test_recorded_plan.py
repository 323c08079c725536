"""How old a plan may be that is applied, and by whose configuration."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import segment_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.retention.recorded_plan import ensure_recent
from tests.docs.log_dirs import put
from tests.jobs.archive import assert_refused
from tests.support.cluster_metadata import data, log_dir_of_t, of_broker, topic_id
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import kidx_build_here, kidx_retention_here


def test_a_plan_of_the_future_is_refused() -> None:
    """By the machine's clock, even by a millisecond: then one of two clocks is wrong."""
    hour = timedelta(hours=1)
    for age_ms in (0, 1, 3_600_000):
        ensure_recent("--plan x", 10**12, 10**12 + age_ms, hour)
    with pytest.raises(UsageError) as future:
        ensure_recent("--plan x", 10**12, 10**12 - 1, hour)
    assert str(future.value).startswith(
        "--plan x: planned for 2001-09-09T01:46:40.000Z, which is 0:00:00.001000 ahead of this machine's clock "
        "(2001-09-09T01:46:39.999Z): one of the clocks is wrong"
    )
    with pytest.raises(UsageError, match=r"made 1:00:00\.001000 ago by this machine's clock, expected 1:00:00 at most"):
        ensure_recent("--plan x", 10**12, 10**12 + 3_600_001, hour)


def test_nothing_is_deleted_by_a_server_properties_that_may_be_another_brokers(tmp_path: Path) -> None:
    """It has to name the log dir, also through a link, or somebody says that it is the same broker's. The metadata is
    that of the broker's other log dir, which the catalog has.
    """
    first, second = log_dir_of_t(tmp_path / "a"), log_dir_of_t(tmp_path / "b", has_metadata=False)
    (first / "t-0").rename(first / "t-1")
    put(second / "t-0", 20, [Batch(timestamp=1)])
    catalog = tmp_path / "catalog"
    sources = ("--source", f"a={first}", "--source", f"b={second}")
    assert kidx_build_here(*sources, "--index-dir", tmp_path / "i", "--catalog", catalog).code == 0
    (tmp_path / "link").symlink_to(second)

    def file(name: str, text: str) -> Path:
        (tmp_path / name).write_text(f"process.roles=broker,controller\nnode.id=1\n{text}")
        return tmp_path / name

    own = file("own", f"log.dir=/nowhere\nlog.dirs = {tmp_path / 'link'} , {first}\n")
    planned = kidx_retention_here("--catalog", catalog, "--source", "b", "--server-properties", own, "--json").json
    assert [s["decision"] for s in planned["segments"]] == ["delete", "delete"]
    assert planned["cluster_metadata"][0]["directory"] == str(first / METADATA_DIRECTORY)
    apply = ("--catalog", catalog, "--apply", "--plan", planned["plan_id"], "--delete-delay", "0s")
    for text, named in ((f"log.dirs={first}\n", f"{first}"), ("log.dir=b\n", "b"), ("", "not set")):
        refused = kidx_retention_here(*apply, "--server-properties", file("other", text))
        assert_refused(refused, f"as its log.dirs ({named}) do not name {second}; if that is a log dir of this file's")
    wanted = ("--catalog", catalog, "--source", "b", "--delete-records-json", tmp_path / "delete.json")
    assert_refused(kidx_retention_here(*wanted, "--server-properties", tmp_path / "other"), "nothing is deleted by it")
    by_other = kidx_retention_here("--catalog", catalog, "--source", "b", "--server-properties", tmp_path / "other")
    assert by_other.code == 0 and "it may be another broker's, as its log.dirs (not set) do not name" in by_other.err
    properties = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text("cluster.id=c\n")
    refused = kidx_retention_here(*apply, "--server-properties", own)
    assert_refused(refused, f"nothing is deleted by it, as {second / 'meta.properties'} names no node")
    (second / "meta.properties").write_text(properties)
    for path in (first / METADATA_DIRECTORY).iterdir():
        os.utime(path, (0, 0))
    refused = kidx_retention_here(*apply, "--server-properties", tmp_path / "other", "--same-broker")
    early = f"{first / METADATA_DIRECTORY}: its files were written until 1970-01-01T00:00:00.000Z, and"
    assert_refused(refused, early)
    assert_refused(kidx_retention_here(*wanted, "--server-properties", own), early)
    assert not (tmp_path / "delete.json").exists()
    ended = kidx_retention_here(*wanted, "--server-properties", own, "--max-metadata-lag", "36500d")
    assert ended.code == 0 and (tmp_path / "delete.json").exists(), ended
    for path in (first / METADATA_DIRECTORY).iterdir():
        os.utime(path)
    assert len(list((second / "t-0").glob("*.log"))) == 2
    applied = kidx_retention_here(*apply, "--server-properties", tmp_path / "other", "--same-broker", "--json")
    assert applied.json["by_outcome"] == {"deleted": 1, "last": 1} and applied.code == 0, applied
    assert "it may be another broker's, as its log.dirs (not set) do not name" in applied.err


def test_a_log_dir_of_the_broker_that_the_catalog_does_not_have_is_told(tmp_path: Path) -> None:
    """The broker's registration names it: what the plan names goes, and the exit code is 3."""
    log_dir, ids = log_dir_of_t(tmp_path / "a"), [topic_id(letter) for letter in "xy"]
    with (log_dir / "meta.properties").open("a") as properties:
        properties.write(f"directory.id={ids[0]}\n")
    metadata = log_dir / METADATA_DIRECTORY / segment_file(0, ".log")
    metadata.write_bytes(metadata.read_bytes() + data(6, [of_broker("RegisterBrokerRecord", 1, ids)]))
    put(log_dir / "t-0", 20, [Batch(timestamp=1)])
    (tmp_path / "own").write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={log_dir},/mnt/b\n")
    catalog, by_file = tmp_path / "catalog", ("--server-properties", tmp_path / "own")
    built = kidx_build_here("--source", f"a={log_dir}", "--index-dir", tmp_path / "i", "--catalog", catalog)
    assert built.code == 0, built
    line = f"broker 1 has 1 more log dir (directory.id {ids[1]}), no source of the catalog: nothing is planned"
    planned = kidx_retention_here("--catalog", catalog, *by_file)
    assert line in planned.out and planned.code == 0, planned
    for_kafka = kidx_retention_here("--catalog", catalog, *by_file, "--delete-records-json", tmp_path / "delete.json")
    assert line in for_kafka.out and for_kafka.code == 3, for_kafka
    assert [each["topic"] for each in json.loads((tmp_path / "delete.json").read_text())["partitions"]] == ["t"]
    plan_id = kidx_retention_here("--catalog", catalog, *by_file, "--json").json["plan_id"]
    apply = ("--catalog", catalog, "--apply", "--plan", plan_id, "--delete-delay", "0s")
    (tmp_path / "other").write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={log_dir}\n")
    by_other = kidx_retention_here(*apply, "--server-properties", tmp_path / "other", "--same-broker")
    assert_refused(by_other, f"are 1, and by {log_dir / METADATA_DIRECTORY} broker 1 has 2")
    applied = kidx_retention_here(*apply, *by_file)
    assert "1 segment, " in applied.out and f"problem: {line}" in applied.out and applied.code == 3, applied


def test_a_source_that_has_gone_is_told(tmp_path: Path) -> None:
    """The plan is by the catalog then."""
    log_dir, ids = log_dir_of_t(tmp_path / "a"), [topic_id(letter) for letter in "xy"]
    other, catalog = tmp_path / "b", tmp_path / "catalog"
    with (log_dir / "meta.properties").open("a") as properties:
        properties.write(f"directory.id={ids[0]}\n")
    put(other / "t-1", 20, [Batch(timestamp=1)])
    sources = ("--source", f"a={log_dir}", "--source", f"b={other}")
    assert kidx_build_here(*sources, "--index-dir", tmp_path / "i", "--catalog", catalog).code == 0
    what_if = ("--catalog", catalog, "--what-if", "--retention-ms", "1")
    assert kidx_retention_here(*what_if).code == 0
    shutil.rmtree(other)
    ended = kidx_retention_here(*what_if)
    told = f"source b ({other}): cannot be listed here: is the disk mounted? What is planned"
    assert ended.code == 3 and told in ended.out, ended
    metadata = log_dir / METADATA_DIRECTORY / segment_file(0, ".log")
    metadata.write_bytes(metadata.read_bytes() + data(6, [of_broker("RegisterBrokerRecord", 1, ids)]))
    ended = kidx_retention_here(*what_if)
    assert ended.code == 3 and f"source b ({other}) has no meta.properties here: is the disk mounted?" in ended.out
    other.mkdir()
    ended = kidx_retention_here(*what_if)
    assert ended.code == 3 and f"broken: source b ({other}): nothing is in it" in ended.out, ended


def test_a_listing_of_before_the_log_was_written_is_refused(tmp_path: Path) -> None:
    """Its topic may have been configured anew since."""
    log_dir = log_dir_of_t(tmp_path / "a", has_metadata=False)
    put(log_dir / "t-0", 20, [Batch(timestamp=1)])
    catalog, listing = tmp_path / "catalog", tmp_path / "listing.json"
    listing.write_text(
        '{"t": {"cleanup.policy": "delete", "retention.ms": 5, "retention.bytes": -1, "remote.storage.enable": false}}'
    )
    built = kidx_build_here("--source", f"a={log_dir}", "--index-dir", tmp_path / "i", "--catalog", catalog)
    assert built.code == 0, built
    plan_id = kidx_retention_here("--catalog", catalog, "--policy", listing, "--json").json["plan_id"]
    apply = ("--catalog", catalog, "--apply", "--plan", plan_id, "--delete-delay", "0s")
    made = os.stat(listing).st_mtime
    os.utime(listing, (0, 0))
    wanted = ("--catalog", catalog, "--policy", listing, "--delete-records-json", tmp_path / "delete.json")
    for arguments in (apply, wanted):
        refused = kidx_retention_here(*arguments)
        assert_refused(refused, f"{listing}: made at 1970-01-01T00:00:00.000Z, and t-0 was written to")
    os.utime(listing, (made, made))
    assert kidx_retention_here(*apply).code == 0
