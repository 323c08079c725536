"""Plans of a restore from a bucket: what is made of its objects, what is left out, and why it is not attached."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import kidxlib
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.segment_files import (
    BOOTSTRAP_SNAPSHOT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.log.remote.layout import AIVEN, EPOCHS_SUFFIX, STORAGE_DIRECTORY
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC, metadata_partitions
from kidxlib.log.remote.segments import fold_remote_segments
from kidxlib.operations.restore.record_digest import DIGESTED, RecordDigest
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.disks import mounted, remount
from tests.kidxlib.operations.restore.formatted_log_dir import formatted_by_4_3, levels
from tests.support.audits import verified_tiered
from tests.support.checksum_store import ChecksumStore, checksum_store
from tests.support.cluster_metadata import partition, put_metadata, topic
from tests.support.object_store import BUCKET, ObjectStore, use
from tests.support.spark.jobs import Ended, kidx_here
from tests.support.tiered_sites import SAMPLE, Site, as_by_aivens_plugin

_PARTITIONS: Final = [("payments", 0), ("readings", 0), ("readings", 1)]
_NOBODY: Final = 65534
_SAID: Final = ("--bucket-protected", "read-only", "--living-cluster-stopped")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return SAMPLE.copy(tmp_path)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A log dir that was just formatted, of a user who may not write in the bucket."""
    log_dir = formatted_by_4_3(tmp_path / "new")
    _give(log_dir, _NOBODY)
    return log_dir


def _give(log_dir: Path, user: int) -> None:
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, user, user)


def _restore(bucket: object, new: Path, *options: str, sources: tuple[Path, ...] = ()) -> Ended:
    nodes = ("--broker", f"1={new}", "--controller", new)
    return kidx_here("restore", *sources, "--bucket", str(bucket), *nodes, *options, "--json")


def _applied(bucket: object, new: Path, *options: str, sources: tuple[Path, ...] = ()) -> dict[str, Any]:
    planned = _restore(bucket, new, *options, sources=sources)
    assert planned.out, planned
    ended = _restore(bucket, new, *options, "--apply", planned.json["plan"], sources=sources)
    assert ended.out and ended.json["applied"], ended
    return ended.json


def _state(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    return found


def _metadata(log_dir: Path) -> list[dict[str, Any]]:
    rows = []
    for of_number in metadata_partitions([log_dir]).values():
        rows += fold_remote_segments(of_number.records()).segments.to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["start_offset"]))


def _offsets(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["partition"], row["segment_id"], row["end_offset"], row["state"]) for row in rows]


def test_what_a_leader_begins_with(site: Site, new: Path) -> None:
    """As a follower makes it (`TierStateMachine`): an empty log behind the last segment, with its epochs and producers;
    and the metadata of all segments.
    """
    before = _state(site.bucket)
    plan = _applied(site.bucket, new, *_SAID, "--accept-loss")
    starts = (new / LOG_START_OFFSET_CHECKPOINT).read_text().splitlines()
    for place in _PARTITIONS:
        segments = site.segments(*place)
        last = segments[-1]
        end, folder = last.offsets[1] + 1, new / f"{place[0]}-{place[1]}"
        assert last.partition.topic_id in (folder / PARTITION_METADATA).read_text()
        assert [path.name for path in folder.glob(f"*{LOG_SUFFIX}")] == [segment_file(end, LOG_SUFFIX)]
        assert (folder / segment_file(end, LOG_SUFFIX)).stat().st_size == 0
        snapshot = (folder / segment_file(end, SNAPSHOT_SUFFIX)).read_bytes()
        assert snapshot == last.object(SNAPSHOT_SUFFIX).read_bytes()
        assert (folder / LEADER_EPOCH_CHECKPOINT).read_bytes() == last.object(EPOCHS_SUFFIX).read_bytes()
        assert f"{place[0]} {place[1]} {segments[0].offsets[0]}" in starts or segments[0].offsets[0] == 0
    assert _offsets(_metadata(new)) == _offsets(_metadata(site.log_dir))
    assert len(plan["bucket"]["made_metadata_partitions"]) == plan["bucket"]["metadata_partitions"] == 50
    assert _state(site.bucket) == before


def _old_with_metadata(site: Site, directory: Path, values: Sequence[bytes]) -> Path:
    """The log dir of an old broker, which has all partitions, and metadata with some records."""
    old = formatted_by_4_3(directory / "old")
    _give(old, _NOBODY)
    _applied(site.bucket, old, *_SAID, "--accept-loss")
    (old / BOOTSTRAP_SNAPSHOT).unlink()
    text = (old / META_PROPERTIES).read_text()
    (old / META_PROPERTIES).write_text(text.replace("cluster.id=c", "cluster.id=o").replace("d" * 21, "e" * 21))
    put_metadata(old, values)
    return old


def test_a_topic_that_became_tiered_after_the_metadata_is_not_restored_as_tiered(
    site: Site, new: Path, tmp_path: Path
) -> None:
    """Its remote segments are left out, and so nobody has compared them with its log."""
    of_readings = site.segments("readings")[0].partition.topic_id
    partitions = [partition(of_readings, number, [1], []) for number in (0, 1)]
    old = _old_with_metadata(site, tmp_path, [*levels(), topic("readings", of_readings), *partitions])
    enabled = "remote.storage.enable=true"
    synonyms = f"synonyms={{DYNAMIC_TOPIC_CONFIG:{enabled}}}"
    configs = tmp_path / "configs"
    configs.write_text(f"All configs for topic readings are:\n  {enabled} sensitive=false {synonyms}\n")
    planned = _restore(site.bucket, new, *_SAID, sources=(old,)).json
    lost, plain = planned["lost"], planned["refused"]
    assert not any("has no directory" in line for line in lost), lost
    left_out = [line for line in lost if "left out, as the metadata does not say remote.storage.enable=true" in line]
    assert {line.partition(":")[0] for line in left_out} >= {"readings-0", "readings-1"}, lost
    refused = _restore(site.bucket, new, *_SAID, "--topic-configs", str(configs), sources=(old,)).json["refused"]
    assert len([line for line in refused if line not in plain and line.startswith("topic readings: ")]) == 1


def test_a_topic_that_is_newer_than_the_metadata_keeps_its_remote_segments(
    site: Site, new: Path, tmp_path: Path
) -> None:
    """The metadata says nothing of it; that is no word on whether it was tiered, nor on its retention."""
    old = _old_with_metadata(site, tmp_path, levels())
    plan = _restore(site.bucket, new, *_SAID, sources=(old,)).json
    assert plan["metadata"] is not None and not plan["refused"] and not plan["left_out"]
    assert plan["bucket"]["segments"] == sum(len(site.segments(*place)) for place in _PARTITIONS)
    of_topics = [topic["configs"] for topic in plan["topics"]]
    retention = [config for configs in of_topics for config in configs if config["name"] == "retention.ms"]
    assert len(retention) == len(of_topics) and {config["proof"] for config in retention} == {"nothing", "kafka"}
    assert not any("--delete-config" in line and "retention" in line for line in plan["lift"])


def test_a_lost_transaction_index_is_told_before_the_first_start(site: Site, new: Path) -> None:
    """The plan's steps name this audit: the metadata that is made says that there is none, and the log tells."""
    aborted = next(each for each in site.segments("payments") if TRANSACTION_INDEX_SUFFIX in each.objects())
    aborted.object(TRANSACTION_INDEX_SUFFIX).unlink()
    _applied(site.bucket, new, *_SAID, "--accept-loss")
    found = verified_tiered(site.bucket, "--tiered-metadata", new, "--level", "full", code=3)["findings"]
    broken = [(each["file"], each["segment_id"]) for each in found if each["verdict"] == "broken"]
    assert broken == [(TRANSACTION_INDEX_SUFFIX, aborted.id)]


def test_what_is_not_uploaded_is_a_loss_that_has_to_be_accepted(site: Site, new: Path) -> None:
    refused = _restore(site.bucket, new, *_SAID)
    assert refused.code == ExitCode.USAGE
    assert sum("--accept-loss" in line and "not uploaded yet" in line for line in refused.json["refused"]) == 3


def test_held_topics_lose_nothing_in_the_bucket_and_in_the_log_dir(site: Site, new: Path) -> None:
    held = {topic["topic"]: topic for topic in _restore(site.bucket, new, *_SAID).json["topics"]}
    values = {config["name"]: config["value"] for config in held["readings"]["configs"]}
    expected = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "local.retention.ms": "-2",
        "local.retention.bytes": "-2",
    }
    assert values.items() >= {**expected, "remote.storage.enable": "true", "remote.log.copy.disable": "true"}.items()
    assert held["readings"]["lift"][0].endswith("--add-config remote.log.copy.disable=false")
    of_metadata = {config["name"]: config["value"] for config in held[REMOTE_LOG_METADATA_TOPIC]["configs"]}
    assert of_metadata["retention.ms"] == "-1" and not held[REMOTE_LOG_METADATA_TOPIC]["lift"]
    let_go = {
        topic["topic"]: topic for topic in _restore(site.bucket, new, *_SAID, "--no-hold-retention").json["topics"]
    }
    values = {config["name"]: config["value"] for config in let_go["readings"]["configs"]}
    assert values.items() >= expected.items() and "remote.log.copy.disable" not in values


def _root_s(site: Site, new: Path) -> tuple[str, ...]:
    _give(new, 0)
    return "whom no permission stops", *_SAID


def _writable(site: Site, new: Path) -> tuple[str, ...]:
    next(site.bucket.iterdir()).chmod(0o777)
    return f"user {_NOBODY}, the owner of the new log dirs, may remove what is in it", *_SAID


def _not_said(site: Site, new: Path) -> tuple[str, ...]:
    return "make that impossible first", "--living-cluster-stopped"


def _no_versions(site: Site, new: Path) -> tuple[str, ...]:
    return "a directory keeps no versions", "--bucket-protected", "versioning", "--living-cluster-stopped"


def _perhaps_alive(site: Site, new: Path) -> tuple[str, ...]:
    return "give --living-cluster-stopped once no node", *_SAID[:2]


def _two_ids(site: Site, new: Path) -> tuple[str, ...]:
    [directory] = site.bucket.glob("payments-0-*")
    shutil.copytree(directory, site.bucket / f"payments-0-{'B' * 22}")
    return "no metadata says which of them was deleted", *_SAID


@pytest.mark.parametrize("spoil", [_root_s, _writable, _not_said, _no_versions, _perhaps_alive, _two_ids])
def test_what_is_refused(site: Site, new: Path, spoil: Callable[[Site, Path], tuple[str, ...]]) -> None:
    expected, *options = spoil(site, new)
    before = _state(site.bucket), _state(new)
    ended = _restore(site.bucket, new, *options, "--accept-loss")
    assert ended.code == ExitCode.USAGE and (_state(site.bucket), _state(new)) == before
    assert any(expected in line for line in ended.json["refused"]), ended.json["refused"]


def test_a_read_only_mount_protects_from_root(site: Site, new: Path, tmp_path: Path) -> None:
    _give(new, 0)
    with mounted(tmp_path / "mounted", site.bucket, "none", "bind") as place:
        remount(place, "bind,ro")
        assert _restore(place, new, *_SAID, "--accept-loss").code == ExitCode.PROBLEMS_FOUND


def test_nothing_is_written_into_the_bucket(site: Site, new: Path) -> None:
    """No log dir, no metadata, no file of offsets, and no lock."""
    inside = formatted_by_4_3(site.bucket / "inside")
    before = sorted(site.bucket.rglob("*"))
    for broker, options in ((inside, ()), (new, ("--controller", str(inside)))):
        ended = _restore(site.bucket, broker, *_SAID, "--accept-loss", *options, "--apply", "0123456789ab")
        assert ended.code == ExitCode.USAGE
        assert any("it is, holds or lies in the bucket" in line for line in ended.json["refused"])
    resets = site.bucket / "resets.csv"
    ended = _restore(site.bucket, new, *_SAID, "--accept-loss", "--reset-offsets", str(resets))
    assert ended.code == ExitCode.USAGE and str(resets) in ended.err
    assert sorted(site.bucket.rglob("*")) == before


def test_a_new_log_dir_beside_the_bucket_is_locked(site: Site, tmp_path: Path) -> None:
    """The directory that is given holds that of the bucket, and other things."""
    tier = tmp_path / "tier"
    shutil.copytree(site.bucket, tier / STORAGE_DIRECTORY)
    beside = formatted_by_4_3(tier / "new")
    _give(beside, _NOBODY)
    _applied(tier, beside, *_SAID, "--accept-loss")
    assert (beside / LOCK_FILE).exists()


def test_segments_that_cannot_be_read_are_left_out_and_are_a_loss(site: Site, new: Path) -> None:
    """One amid the others, and the last: the log ends before it."""
    readings, payments = site.segments("readings"), site.segments("payments")
    readings[1].object(SNAPSHOT_SUFFIX).unlink()
    payments[-1].object(LOG_SUFFIX).write_bytes(payments[-1].object(LOG_SUFFIX).read_bytes()[:-1])
    plan = _applied(site.bucket, new, *_SAID, "--accept-loss")
    assert [readings[1].id in line and "no such object" in line for line in plan["left_out"]].count(True) == 1
    assert [payments[-1].id in line and "not whole" in line for line in plan["left_out"]].count(True) == 1
    first, last = readings[1].offsets
    assert any(f"readings-0: offsets {first} to {last} are in no remote segment" in line for line in plan["lost"])
    ends = {replica["partition"]: replica["end_offset"] for replica in plan["replicas"]}
    assert ends["payments-0"] == payments[-2].offsets[1] + 1
    left = {readings[1].id, payments[-1].id}
    assert _offsets(_metadata(new)) == [row for row in _offsets(_metadata(site.log_dir)) if row[2] not in left]


def test_uploads_that_were_tried_again_are_left_out(site: Site, new: Path) -> None:
    """The same segment under another id, and one within it: brokers are to find the longest."""
    again, longer = "kidx-" * 4 + "nA", site.segments("readings")
    longer[2].copy_objects(again, longer[2].offsets[0])
    plan = _applied(site.bucket, new, *_SAID, "--accept-loss")
    assert sum("as after an upload that was tried again" in line for line in plan["left_out"]) == 1
    assert not any("in no remote segment" in line for line in plan["lost"])
    rows = [row for row in _metadata(new) if (row["topic"], row["partition"]) == ("readings", 0)]
    assert [(row["start_offset"], row["end_offset"]) for row in rows] == [each.offsets for each in longer]


def test_metadata_that_survives_counts_and_what_the_bucket_lacks_is_a_loss(site: Site, new: Path) -> None:
    lost = site.segments("readings")[1]
    lost.object(LOG_SUFFIX).unlink()
    plan = _restore(site.bucket, new, *_SAID, "--accept-loss", sources=(site.log_dir,)).json
    assert plan["bucket"]["made_metadata_partitions"] == [] and plan["bucket"]["metadata_partitions"] == 2
    assert any(lost.id in line and "missing" in line for line in plan["lost"]), plan["lost"]


def test_metadata_that_says_nothing_of_objects_is_refused(site: Site, new: Path) -> None:
    """With it brokers would not find what is in the bucket. Without its folder it is made."""
    [number] = {segment.metadata for segment in site.segments("payments")}
    folder = site.log_dir / f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
    for path in folder.glob(f"*{LOG_SUFFIX}"):
        path.write_bytes(b"")
    refused = _restore(site.bucket, new, *_SAID, "--accept-loss", sources=(site.log_dir,))
    assert refused.code == ExitCode.USAGE
    assert any(f"{folder.name} of the sources says nothing of its objects" in line for line in refused.json["refused"])
    shutil.rmtree(folder)
    made = _restore(site.bucket, new, *_SAID, "--accept-loss", sources=(site.log_dir,)).json
    assert not any(REMOTE_LOG_METADATA_TOPIC in line for line in made["refused"])
    assert made["bucket"]["made_metadata_partitions"] == [number]


def _local(site: Site, epochs: str, base_offset: int) -> Path:
    """The log dir has a folder of a tiered partition, with an empty log."""
    segment = site.segments("readings")[0]
    folder = site.log_dir / "readings-0"
    folder.mkdir()
    (folder / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {segment.partition.topic_id}\n")
    (folder / segment_file(base_offset, LOG_SUFFIX)).write_bytes(b"")
    (folder / LEADER_EPOCH_CHECKPOINT).write_text(epochs)
    return folder


@pytest.mark.parametrize(
    ("epochs", "base_offset", "expected"),
    [
        ("0\n1\n7 300\n", 300, "deletes these segments from the bucket"),
        ("", 300, "deletes these segments from the bucket"),
        ("0\n1\n0 0\n", 200, "new records would take their place"),
    ],
    ids=["epochs of a later log", "no epochs", "a log that ends before the bucket"],
)
def test_a_log_dir_with_which_a_leader_would_delete_is_refused(
    site: Site, new: Path, epochs: str, base_offset: int, expected: str
) -> None:
    folder = _local(site, epochs, base_offset)
    refused = _restore(site.bucket, new, *_SAID, "--accept-loss", sources=(site.log_dir,))
    assert refused.code == ExitCode.USAGE
    assert any(expected in line and str(folder) in line for line in refused.json["refused"]), refused.json["refused"]


@pytest.mark.parametrize("uploaded", [1, 2], ids=["all but the last segments", "all"])
def test_digests_are_of_the_bucket_and_of_the_log_that_follows_it(site: Site, new: Path, uploaded: int) -> None:
    """A leader that still has the last segments itself gives consumers the same records as the bucket alone does. A log
    dir's segments count also where the bucket has them.
    """
    expected = {isolation: _digest(site, isolation) for isolation in ("read_uncommitted", "read_committed")}
    assert expected["read_uncommitted"] != expected["read_committed"]
    of_bucket = _contents(_applied(site.bucket, new, *_SAID, "--accept-loss"), "payments-0")
    assert of_bucket == expected
    segments = site.segments("payments")
    folder = _folder_of_last(site, segments[-2:])
    for each in segments[-1:] if uploaded == 1 else ():
        for path in each.objects().values():
            path.unlink()
    shutil.rmtree(new)
    _give(formatted_by_4_3(new), _NOBODY)
    plan = _applied(site.bucket, new, *_SAID, "--accept-loss", sources=(folder.parent,))
    [replica] = [each for each in plan["replicas"] if each["partition"] == "payments-0"]
    assert replica["from"] == str(folder) and replica["start_offset"] == 0
    assert _contents(plan, "payments-0") == expected


def _folder_of_last(site: Site, segments: Sequence[Any]) -> Path:
    """The folder of a leader that has deleted all segments before these."""
    folder = site.log_dir.parent / "old" / "payments-0"
    folder.mkdir(parents=True)
    (folder.parent / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=b2xkLWNsdXN0ZXItMDAwMQ\n")
    (folder / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {segments[0].partition.topic_id}\n")
    shutil.copy(segments[-1].object(EPOCHS_SUFFIX), folder / LEADER_EPOCH_CHECKPOINT)
    shutil.copy(segments[0].object(SNAPSHOT_SUFFIX), folder / segment_file(segments[0].offsets[1] + 1, SNAPSHOT_SUFFIX))
    for each in segments:
        shutil.copy(each.object(LOG_SUFFIX), folder / segment_file(each.offsets[0], LOG_SUFFIX))
    return folder


def _digest(site: Site, isolation: str) -> str:
    digest = RecordDigest()
    rows = kidxlib.read(
        site.bucket,
        topics="payments",
        isolation=isolation,
        layout="local",
        tiered_metadata=[site.log_dir],
        columns=DIGESTED.names,
    )
    for batch in rows:
        digest.add_rows(batch)
    return digest.hexdigest()


def _contents(plan: Mapping[str, Any], partition: str) -> dict[str, str]:
    [contents] = [each for each in plan["contents"] if each["partition"] == partition]
    assert contents["why"] == "", contents
    return {f"read_{name}": contents[name]["digest"] for name in ("uncommitted", "committed")}


def test_a_log_between_which_and_the_bucket_offsets_are_missing(site: Site, new: Path) -> None:
    _local(site, "0\n1\n0 0\n", 305)
    lost = _restore(site.bucket, new, *_SAID, sources=(site.log_dir,)).json["lost"]
    assert any("offsets 300 to 304" in line for line in lost), lost


def test_epochs_of_another_log_are_refused(site: Site, new: Path) -> None:
    """A leader that began with them would delete all segments of the partition."""
    site.segments("readings")[-1].object(EPOCHS_SUFFIX).write_text("0\n2\n0 0\n7 290\n")
    site.segments("payments")[-1].object(SNAPSHOT_SUFFIX).write_bytes(b"no snapshot")
    refused = _restore(site.bucket, new, *_SAID, "--accept-loss")
    assert refused.code == ExitCode.USAGE
    assert any("whose leader epochs and producers a leader begins with" in line for line in refused.json["refused"])


def test_logs_whose_beginning_no_bucket_has(site: Site, new: Path) -> None:
    folder = _local(site, "0\n1\n0 0\n", 300)
    folder.rename(site.log_dir / "readings-7")
    (site.log_dir / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nreadings 7 100\n")
    lost = _restore(site.bucket, new, *_SAID, sources=(site.log_dir,)).json["lost"]
    assert any("readings-7: offsets 100 to 299 were in a bucket" in line for line in lost), lost


def test_a_part_of_the_topics_needs_the_metadata_topic(site: Site, new: Path) -> None:
    refused = _restore(site.bucket, new, *_SAID, "--accept-loss", "--topics", "payments")
    assert any(f"add |{REMOTE_LOG_METADATA_TOPIC}" in line for line in refused.json["refused"])
    plan = _restore(site.bucket, new, *_SAID, "--accept-loss", "--topics", f"payments|{REMOTE_LOG_METADATA_TOPIC}").json
    assert plan["bucket"]["topics"] == ["payments"] and plan["refused"] == []
    assert sum("--topics does not match" in line for line in plan["left_out"]) == 2


def test_given_ends_are_refused_with_a_bucket(site: Site, new: Path, tmp_path: Path) -> None:
    until = tmp_path / "until.json"
    until.write_text('{"partitions": []}')
    _restore(site.bucket, new, *_SAID, "--until-offsets", str(until)).assert_one_line(
        ExitCode.USAGE, "--until-offsets: only without --bucket"
    )


def _without_places(plan: Mapping[str, Any]) -> dict[str, Any]:
    of_place = ("plan", "sources", "bucket", "disks", "contents", "groups", "replicas", "lost", "left_out")
    replicas = [{name: value for name, value in each.items() if name != "from"} for each in plan["replicas"]]
    return {**{name: value for name, value in plan.items() if name not in of_place}, "replicas": replicas}


def test_aivens_layout_comes_to_the_same(site: Site, new: Path, tmp_path: Path) -> None:
    bucket = tmp_path / "aiven"
    as_by_aivens_plugin([each for place in _PARTITIONS for each in site.segments(*place)], bucket)
    local = _restore(site.bucket, new, *_SAID, "--accept-loss").json
    aiven = _applied(bucket, new, *_SAID, "--accept-loss", "--layout", AIVEN.name)
    assert _without_places({**aiven, "applied": False}) == _without_places(local)
    assert _offsets(_metadata(new)) == _offsets(_metadata(site.log_dir))


def test_a_bucket_in_a_store_comes_to_the_same(site: Site, new: Path, store: ObjectStore) -> None:
    url = store.upload(site.bucket, f"restore/{STORAGE_DIRECTORY}")
    before = store.contents("restore")
    local = _restore(site.bucket, new, *_SAID, "--accept-loss").json
    remote = _applied(url, new, *_SAID, "--accept-loss")
    assert _without_places({**remote, "applied": False}) == _without_places(local)
    assert store.contents("restore") == before and not store.counted("PUT", "POST", "DELETE", prefix="restore/x")


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChecksumStore]:
    """A real S3 server whose buckets may keep versions."""
    with checksum_store(tmp_path / "store", keeps_versions=True) as store:
        use(store, monkeypatch)
        yield store


def test_a_store_is_asked_whether_it_keeps_versions(site: Site, new: Path, versions: ChecksumStore) -> None:
    url = versions.upload(site.bucket, STORAGE_DIRECTORY)
    said = ("--bucket-protected", "versioning", "--living-cluster-stopped", "--accept-loss")
    refused = _restore(url, new, *said)
    assert refused.code == ExitCode.USAGE
    assert any("the store says that versioning is off" in line for line in refused.json["refused"]), refused.json
    versions.client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    assert _restore(url, new, *said).json["refused"] == []
    versions.client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    assert any("versioning is Suspended" in line for line in _restore(url, new, *said).json["refused"])
