"""A plan applied: files and catalog agree, what is not as planned is refused, and a kill is no harm."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.retention.apply import ensure_plan_is_recent
from tests.docs.log_dirs import put
from tests.faults import children
from tests.faults.processes import Child, kill_session, start_kidx, while_it_runs
from tests.jobs.archive import Archive, Copies, assert_refused
from tests.support.cluster_metadata import data, log_dir_of_t, of_broker, topic_id
from tests.support.logs import golden
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import kidx_build_here, rows, start
from tests.support.spark.jobs import kidx_retention_here as retention_here

#: Of the sample, what is older than this goes: nothing of it is of the three days around.
_OLDEST: Final = datetime(2026, 11, 19, tzinfo=UTC)
#: All that a deletion rests on; of `compacted` for itself, as it looks so.
_POLICY: Final = """\
cleanup.policy = "delete"
retention.ms = {retention_ms}
retention.bytes = -1
remote.storage.enable = false
[[topic]]
match = "compacted"
cleanup.policy = "delete"
"""
#: What goes of the sample then, and what then stays as the last of its partition.
_DELETED: Final = {("compacted", 0), ("compacted", 16431), ("compacted", 22798), ("plain-zstd", 0), ("txn-mixed", 0)}
_LAST: Final = {("compacted", 23924), ("plain-zstd", 13697)}

DEADLINE_SECONDS: Final = 300.0


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Archive, str]:
    """The sample with a plan; who applies it takes a copy."""
    archive = Archive(tmp_path_factory.mktemp("apply") / "archive")
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    archive.build()
    plan = archive.plan("--policy", _policy(archive))
    going = {(s["topic"], s["base_offset"]) for s in plan["segments"] if s["decision"] == "delete"}
    assert going == _DELETED | _LAST
    return archive, plan["plan_id"]


def _policy(archive: Archive) -> Path:
    """The file of policies, made when it is first asked for; beside the archive."""
    path = archive.directory.with_name("policy.toml")
    if not path.exists():
        age = datetime.now(UTC) - _OLDEST
        path.write_text(_POLICY.format(retention_ms=age // timedelta(milliseconds=1)))
    return path


class Planned(Copies):
    """An archive with a plan, again and again."""

    def __init__(self, archive: Archive, plan_id: str) -> None:
        super().__init__(archive)
        self.plan_id = plan_id


@pytest.fixture(scope="module")
def copies(planned: tuple[Archive, str]) -> Planned:
    return Planned(*planned)


@pytest.fixture
def archive(copies: Planned) -> Archive:
    """The archive as it was when it was planned."""
    copies.restore()
    return copies.archive


def _arguments(archive: Archive, plan_id: str) -> tuple[str | Path, ...]:
    return ("--catalog", archive.catalog, "--apply", "--plan", plan_id, "--delete-delay", "0s", "--json")


def _files(archive: Archive) -> dict[str, bytes]:
    roots = (archive.log_dir, archive.index_dir)
    found = (path for root in roots for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(archive.directory)): path.read_bytes() for path in found}


def _left(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without those of the segments that go. Leader epochs begin where the log does then."""
    gone = {(f"{topic}-0", segment_file(base_offset, "")) for topic, base_offset in _DELETED}
    left = {path: files[path] for path in files if (Path(path).parent.name, Path(path).stem) not in gone}
    begins = {"compacted-0": 23924, "plain-zstd-0": 13697, "txn-mixed-0": 84}
    cut = {path: Path(path).parent.name for path in left if Path(path).name == LEADER_EPOCH_CHECKPOINT}
    return left | {path: f"0\n1\n0 {begins[name]}\n".encode() for path, name in cut.items() if name in begins}


def _without_epochs(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if LEADER_EPOCH_CHECKPOINT not in path}


def _rows(archive: Archive) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["topic"], row["base_offset"]): row for row in rows(archive.catalog, "SELECT * FROM segments")}


def test_a_plan_is_applied_and_the_catalog_says_so(archive: Archive, copies: Planned) -> None:
    """Once, and again with nothing left to do; the next build and the next plan miss nothing."""
    before, begun = _files(archive), datetime.now(UTC)
    ended = retention_here(*_arguments(archive, copies.plan_id))
    assert ended.code == 0, ended.err
    assert ended.json["by_outcome"] == {"deleted": 5, "last": 2}
    assert _files(archive) == _left(before)
    found = _rows(archive)
    deleted = {key: row["deleted_at"] for key, row in found.items() if row["status"] == "deleted"}
    [deleted_at] = set(deleted.values())
    assert deleted.keys() == _DELETED and begun <= deleted_at <= datetime.now(UTC)
    assert all(row["deleted_at"] is None for key, row in found.items() if key not in _DELETED)

    again = retention_here(*_arguments(archive, copies.plan_id))
    assert again.json["by_outcome"] == {"gone": 5, "last": 2}
    on_screen = retention_here(*(each for each in _arguments(archive, copies.plan_id) if each != "--json")).out
    assert "2 segments, " in on_screen and "5 segments, " in on_screen
    assert ": deleted before, by this plan or another" in on_screen and "missing" not in on_screen
    built = archive.build()
    assert (built.json["segments"], built.json["gone"]) == (0, 0)
    assert _rows(archive) == found
    assert len(archive.plan("--what-if")["segments"]) == 12 - 5


def test_a_plan_that_cannot_be_applied_is_refused(archive: Archive, copies: Planned, tmp_path: Path) -> None:
    """Too old, a what-if, of several policies, or of a log dir that another process holds: exit code 2,
    nothing done.
    """
    before = _files(archive)
    arguments = _arguments(archive, copies.plan_id)
    old = retention_here(*arguments, "--max-plan-age", "1ms")
    assert_refused(old, "ago by this machine's clock, expected 0:00:00.001000 at most; plan again")
    for what_if in (("--now", "2030-01-01T00:00Z"), ("--what-if",)):
        asked = archive.plan("--policy", _policy(archive), *what_if)["plan_id"]
        assert_refused(retention_here(*_arguments(archive, asked)), "a what-if (made with --now or --what-if, or by")
    with Child(children.hold_lock, archive.log_dir / ".lock") as holder:
        assert holder.received.recv() == "held"
        assert_refused(retention_here(*arguments), f"{archive.log_dir}/.lock: held by another process")
    policy = tmp_path / "policy.toml"
    policy.write_text("[policy.a]\n[policy.b]\n")
    plan_id = archive.plan("--policy", policy)["plan_id"]
    assert_refused(retention_here(*_arguments(archive, plan_id)), "compares the policies a, b; plan again with one")
    archive.log_dir.rename(archive.directory / "elsewhere")
    assert_refused(retention_here(*arguments), str(archive.log_dir))
    (archive.directory / "elsewhere").rename(archive.log_dir)
    assert _files(archive) == before


def test_a_policy_that_says_something_else_by_now_is_refused(archive: Archive, copies: Planned, tmp_path: Path) -> None:
    """Or that is missing: exit code 2, nothing done. Another file that says the same will do."""
    before, text = _files(archive), _policy(archive).read_text()
    arguments, other = _arguments(archive, copies.plan_id), tmp_path / "other.toml"
    other.write_text(text.replace("retention.bytes = -1", "retention.bytes = 7"))
    refused = retention_here(*arguments, "--policy", other)
    assert_refused(refused, "topic compacted: retention.bytes is 7 now, planned with -1; plan again")
    other.write_text(text.replace("remote.storage.enable = false", ""))
    assert_refused(retention_here(*arguments, "--policy", other), "topic compacted: who said it is cleanup.policy: ")
    assert_refused(retention_here(*arguments, "--policy", tmp_path / "none"), "none: cannot read the policies: No such")
    assert _files(archive) == before
    other.write_text(text)
    assert retention_here(*arguments, "--policy", other).json["by_outcome"] == {"deleted": 5, "last": 2}


def test_a_log_dir_that_says_something_else_by_now_is_left(archive: Archive, copies: Planned) -> None:
    """A high watermark, a recreated topic: its partition stays, the others go; exit code 3."""
    metadata = archive.log_dir / "compacted-0" / "partition.metadata"
    metadata.unlink()  # it is a link to that of all copies
    metadata.write_text("version: 0\ntopic_id: another\n")
    ended = retention_here(*_arguments(archive, copies.plan_id))
    assert ended.code == 3 and ended.json["by_outcome"] == {"changed": 1, "behind": 3, "deleted": 2, "last": 1}
    assert "topic id another, planned with " in ended.json["not_well"][0]["detail"]
    assert len(list((archive.log_dir / "compacted-0").glob("*.log"))) == 4


def test_what_has_changed_since_it_was_planned_stays(archive: Archive, copies: Planned) -> None:
    """With all of its partition; it is named, and the exit code is 3."""
    log = archive.log_dir / "compacted-0" / segment_file(16431, LOG_SUFFIX)
    shutil.copy(log, archive.directory / "other")
    os.replace(archive.directory / "other", log)
    os.utime(log, ns=(0, 0))
    ended = retention_here(*_arguments(archive, copies.plan_id))
    assert ended.code == 3
    assert ended.json["by_outcome"] == {"deleted": 2, "changed": 1, "left": 3, "last": 1}
    [detail] = [found["detail"] for found in ended.json["not_well"] if found["detail"] is not None]
    assert detail.startswith(f"{log}: 135626 bytes, modified at 0 ns, inode ")
    assert log.exists() and _rows(archive)["compacted", 16431]["status"] == "ok"


def test_each_exit_code_3_has_a_line_that_says_why(archive: Archive, copies: Planned) -> None:
    """A log that was to go and vanished, one that was to stay and is empty, a file in the way: none of their segments
    goes, nothing is overwritten, and the others go.
    """
    vanished = archive.log_dir / "plain-zstd-0" / segment_file(13697, LOG_SUFFIX)
    emptied = archive.log_dir / "txn-mixed-0" / segment_file(5891, LOG_SUFFIX)
    precious = archive.log_dir / "compacted-0" / segment_file(16431, ".log.deleted")
    vanished.unlink()
    emptied.unlink()  # it is a link to that of all copies
    emptied.touch()
    precious.write_text("precious")
    ended = retention_here(*(word for word in _arguments(archive, copies.plan_id) if word != "--json"))
    assert ended.code == 3
    lines = [line for line in ended.out.splitlines() if line.startswith(("changed: ", "not-renamed: "))]
    assert len(lines) == 3, ended.out
    for line, found in zip(
        sorted(lines),
        (
            f"changed: {vanished}: not there as a file; planned as ",
            f"changed: {emptied}: 0 bytes, modified at ",
            f"not-renamed: {precious}: in the way of what the plan renames; ",
        ),
        strict=True,
    ):
        assert line.startswith(found)
    assert "2 segments, " in ended.out and "another of its partition is not what was planned" in ended.out
    assert precious.read_text() == "precious"
    deleted = {key for key, row in _rows(archive).items() if row["status"] == "deleted"}
    assert deleted == {("compacted", 0)}
    for topic, base_offset in (_DELETED | _LAST) - deleted - {("plain-zstd", 13697)}:
        assert (archive.log_dir / f"{topic}-0" / segment_file(base_offset, LOG_SUFFIX)).exists()


@pytest.mark.parametrize("command", ["kidx", "job"])
def test_a_run_that_is_killed_is_finished_by_the_next(
    command: str, archive: Archive, copies: Planned, exhaustive: bool
) -> None:
    """Kill -9 of all its processes, as soon as so many files have been renamed; three times with --exhaustive."""
    before = _files(archive)
    going = len(before) - len(_left(before))
    for renamed in (1, going // 2, going) if exhaustive else (going // 2,):
        copies.restore()
        # The delay is long: it is killed while it renames, records or waits.
        arguments = [word if word != "0s" else "60s" for word in _arguments(archive, copies.plan_id)]
        run = start_kidx("retention", *arguments) if command == "kidx" else start(*arguments, job="retention")
        try:
            while_it_runs(run, functools.partial(_have_been_renamed, archive, renamed), DEADLINE_SECONDS)
        finally:
            kill_session(run)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.communicate(timeout=DEADLINE_SECONDS)
        assert run.returncode == -signal.SIGKILL
        found, whole = _without_epochs(_files(archive)), _without_epochs(before)
        assert _without_epochs(_left(before)).items() <= found.items()
        assert {path.removesuffix(".deleted"): content for path, content in found.items()} == whole
        ended = retention_here(*_arguments(archive, copies.plan_id))
        assert ended.code == 0 and ended.json["by_outcome"] == {"deleted": 5, "last": 2}, ended
        assert _files(archive) == _left(before)
        assert {key for key, row in _rows(archive).items() if row["status"] == "deleted"} == _DELETED


def _have_been_renamed(archive: Archive, count: int) -> bool | None:
    return len(list(archive.directory.glob("*/*/*.deleted"))) >= count or None


def test_a_plan_of_the_future_is_refused() -> None:
    """By the machine's clock, even by a millisecond: then one of two clocks is wrong."""
    hour = timedelta(hours=1)
    for age_ms in (0, 1, 3_600_000):
        ensure_plan_is_recent("--plan x", 10**12, 10**12 + age_ms, hour)
    with pytest.raises(UsageError) as future:
        ensure_plan_is_recent("--plan x", 10**12, 10**12 - 1, hour)
    assert str(future.value).startswith(
        "--plan x: planned for 2001-09-09T01:46:40.000Z, which is 0:00:00.001000 ahead of this machine's clock "
        "(2001-09-09T01:46:39.999Z): one of the clocks is wrong"
    )
    with pytest.raises(UsageError, match=r"made 1:00:00\.001000 ago by this machine's clock, expected 1:00:00 at most"):
        ensure_plan_is_recent("--plan x", 10**12, 10**12 + 3_600_001, hour)


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
    planned = retention_here("--catalog", catalog, "--source", "b", "--server-properties", own, "--json").json
    assert [s["decision"] for s in planned["segments"]] == ["delete", "delete"]
    assert planned["cluster_metadata"][0]["directory"] == str(first / METADATA_DIRECTORY)
    apply = ("--catalog", catalog, "--apply", "--plan", planned["plan_id"], "--delete-delay", "0s")
    for text, named in ((f"log.dirs={first}\n", f"{first}"), ("log.dir=b\n", "b"), ("", "not set")):
        refused = retention_here(*apply, "--server-properties", file("other", text))
        assert_refused(refused, f"as its log.dirs ({named}) do not name {second}; if that is a log dir of this file's")
    wanted = ("--catalog", catalog, "--source", "b", "--delete-records-json", tmp_path / "delete.json")
    assert_refused(retention_here(*wanted, "--server-properties", tmp_path / "other"), "nothing is deleted by it")
    by_other = retention_here("--catalog", catalog, "--source", "b", "--server-properties", tmp_path / "other")
    assert by_other.code == 0 and "it may be another broker's, as its log.dirs (not set) do not name" in by_other.err
    properties = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text("cluster.id=c\n")
    refused = retention_here(*apply, "--server-properties", own)
    assert_refused(refused, f"nothing is deleted by it, as {second / 'meta.properties'} names no node")
    (second / "meta.properties").write_text(properties)
    for path in (first / METADATA_DIRECTORY).iterdir():
        os.utime(path, (0, 0))
    refused = retention_here(*apply, "--server-properties", tmp_path / "other", "--same-broker")
    early = f"{first / METADATA_DIRECTORY}: its files were written until 1970-01-01T00:00:00.000Z, and"
    assert_refused(refused, early)
    assert_refused(retention_here(*wanted, "--server-properties", own), early)
    assert not (tmp_path / "delete.json").exists()
    ended = retention_here(*wanted, "--server-properties", own, "--max-metadata-lag", "36500d")
    assert ended.code == 0 and (tmp_path / "delete.json").exists(), ended
    for path in (first / METADATA_DIRECTORY).iterdir():
        os.utime(path)
    assert len(list((second / "t-0").glob("*.log"))) == 2
    applied = retention_here(*apply, "--server-properties", tmp_path / "other", "--same-broker", "--json")
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
    planned = retention_here("--catalog", catalog, *by_file)
    assert line in planned.out and planned.code == 0, planned
    for_kafka = retention_here("--catalog", catalog, *by_file, "--delete-records-json", tmp_path / "delete.json")
    assert line in for_kafka.out and for_kafka.code == 3, for_kafka
    assert [each["topic"] for each in json.loads((tmp_path / "delete.json").read_text())["partitions"]] == ["t"]
    plan_id = retention_here("--catalog", catalog, *by_file, "--json").json["plan_id"]
    apply = ("--catalog", catalog, "--apply", "--plan", plan_id, "--delete-delay", "0s")
    (tmp_path / "other").write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={log_dir}\n")
    by_other = retention_here(*apply, "--server-properties", tmp_path / "other", "--same-broker")
    assert_refused(by_other, f"are 1, and by {log_dir / METADATA_DIRECTORY} broker 1 has 2")
    applied = retention_here(*apply, *by_file)
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
    assert retention_here(*what_if).code == 0
    shutil.rmtree(other)
    ended = retention_here(*what_if)
    told = f"source b ({other}): cannot be listed here: is the disk mounted? What is planned"
    assert ended.code == 3 and told in ended.out, ended
    metadata = log_dir / METADATA_DIRECTORY / segment_file(0, ".log")
    metadata.write_bytes(metadata.read_bytes() + data(6, [of_broker("RegisterBrokerRecord", 1, ids)]))
    ended = retention_here(*what_if)
    assert ended.code == 3 and f"source b ({other}) has no meta.properties here: is the disk mounted?" in ended.out
    other.mkdir()
    ended = retention_here(*what_if)
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
    plan_id = retention_here("--catalog", catalog, "--policy", listing, "--json").json["plan_id"]
    apply = ("--catalog", catalog, "--apply", "--plan", plan_id, "--delete-delay", "0s")
    made = os.stat(listing).st_mtime
    os.utime(listing, (0, 0))
    wanted = ("--catalog", catalog, "--policy", listing, "--delete-records-json", tmp_path / "delete.json")
    for arguments in (apply, wanted):
        refused = retention_here(*arguments)
        assert_refused(refused, f"{listing}: made at 1970-01-01T00:00:00.000Z, and t-0 was written to")
    os.utime(listing, (made, made))
    assert retention_here(*apply).code == 0
