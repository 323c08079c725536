"""A killed broker's disk, recovered by headers alone, as the kernel has all that was written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import UntrustedError
from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT
from kidxlib.format.layouts import BATCH_V2
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.operations.recover.page_cache import NOTE, last_message, mount_of, note_down
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx, refused_kidx
from tests.kafka.crashed import Crashed, Started, killed_broker, logs_of, partition_directory, started
from tests.kafka.traffic import PARTITIONS, TOPICS
from tests.support.kafka.broker import Broker

_TRUST: Final = ("--apply", "--trust-page-cache", "--json")


@pytest.fixture(scope="module", autouse=True)
def _needs_a_kernel_that_tells(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        mount_of(tmp_path_factory.getbasetemp())
        last_message()
    except UntrustedError as error:
        pytest.skip(f"nothing is trusted here: {error}")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Broker:
    """A broker that was stopped, of which was noted then that all is right, and that was killed in its next run."""

    def note(broker: Broker) -> None:
        ended = kidx("recover", *broker.log_dirs, *_TRUST)
        assert ended.code == 0 and ended.json["stopped_cleanly"], ended

    return killed_broker(tmp_path_factory.mktemp("trust") / "broker", broker_version, before_last_run=note)


@pytest.fixture(scope="module")
def crashed(killed: Broker, tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    return Crashed(killed, tmp_path_factory.mktemp("crashed"))


def _index_files(broker: Broker) -> set[str]:
    """Indexes that the broker went on with after it was stopped: it counts the interval from there, as no recovery
    does. They are right, and others.
    """
    return {
        f"{log.parent.name}/{log.with_suffix(suffix).name}"
        for topic, number in PARTITIONS
        for log in [_first_unflushed(broker, f"{topic}-{number}")]
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    }


def _first_unflushed(broker: Broker, name: str) -> Path:
    partition = parse_partition_directory(name)
    assert partition is not None
    points = read_offset_checkpoint(partition_directory(broker, name).parent / RECOVERY_POINT_CHECKPOINT) or {}
    return [log for log in logs_of(broker, name) if int(log.stem) <= points[partition]][-1]


def _assert_same(found: Started, alone: Started, *, but: set[str]) -> None:
    """The same to consumers, and the same files but some indexes."""
    assert found.seen.differences(alone.seen) == [] and found.producers == alone.producers
    assert found.files.keys() == alone.files.keys()
    assert {name for name in alone.files if found.files[name] != alone.files[name]} <= but


def test_headers_are_enough(crashed: Crashed) -> None:
    """Goal: what comes of it is what the broker makes of it by itself. Indexes of segments that it had finished are its
    own, and right. The disk of the next test gets a marker.
    """
    broker = crashed.copy()
    note_down(broker.log_dirs)  # it is a copy, of what the kernel has
    but = _index_files(broker)
    ended = kidx("recover", *broker.log_dirs, *_TRUST)
    assert ended.code == 0 and ended.json["untrusted"] == {}, ended
    assert ended.json["kidx_bytes"] < ended.json["start_bytes"] / 20
    found = started(broker)
    assert found.recovered == dict.fromkeys(crashed.alone.recovered, 1) and found.skipped == 0
    _assert_same(found, crashed.alone, but=but)


def test_a_note_outlives_the_kill(killed: Broker, crashed: Crashed) -> None:
    """The disk itself, with the note that was made before the broker was started, and then a new one."""
    but = _index_files(killed)
    copied = crashed.copy()
    refused = kidx("recover", *copied.log_dirs, "--trust-page-cache", "--json")
    assert refused.code == 0 and len(refused.json["untrusted"]) == len(copied.log_dirs), refused
    assert all("is a copy of the one that it was made for" in why for why in refused.json["untrusted"].values())
    notes = [(log_dir / NOTE).read_bytes() for log_dir in killed.log_dirs]
    twin = killed.copy(copied.directory / "before")
    ended = kidx("recover", *killed.log_dirs, *_TRUST, "--level", "marker")
    assert ended.code == 0 and ended.json["untrusted"] == {} and ended.json["applied"], ended
    assert [(log_dir / NOTE).exists() for log_dir in killed.log_dirs] == [True] * len(notes)
    verified = ("verify", "--topics", "|".join(TOPICS))  # the cluster's metadata the broker recovers always
    assert kidx(*verified, *killed.log_dirs).code == 0
    found = started(killed)
    assert found.recovered == {} and found.skipped == len(killed.log_dirs)
    _assert_same(found, crashed.alone, but=but)
    for log_dir, of_twin in zip(killed.log_dirs, twin.log_dirs, strict=True):  # for the tests that come after this
        shutil.rmtree(log_dir)
        shutil.copytree(of_twin, log_dir)


def test_what_lies_between_headers_is_not_read(killed: Broker, tmp_path: Path) -> None:
    """Bytes of records are changed, in a finished segment and in the last one. Who reads them, refuses; who is told to
    trust what the kernel has, does not look.
    """
    broker = killed.copy(tmp_path / "broker")
    for log in logs_of(broker, "plain-0")[-2:]:
        with log.open("r+b") as file:
            file.seek(BATCH_V2.itemsize + 5)
            file.write(b"\xff")
    refused = kidx("recover", *broker.log_dirs, "--json")
    assert refused.code == ExitCode.USAGE and "plain-0" in refused.json["refused"][0], refused
    note_down(broker.log_dirs)
    assert kidx("recover", *broker.log_dirs, "--trust-page-cache", "--json").json["refused"] == []


def test_an_error_that_the_broker_tells_of(killed: Broker, tmp_path: Path) -> None:
    broker, log = killed.copy(tmp_path / "broker"), tmp_path / "server.log"
    note_down(broker.log_dirs)
    log.write_text("INFO started\nERROR Error while flushing log for plain-0 in dir /data (LogDirFailureChannel)\n")
    ended = kidx("recover", *broker.log_dirs, "--trust-page-cache", "--broker-log", log, "--json")
    assert ended.code == 0 and len(ended.json["untrusted"]) == len(broker.log_dirs)
    assert all(f"{log}: line 2: ERROR Error while flushing" in why for why in ended.json["untrusted"].values())
    log.write_text("INFO started\n")
    ended = kidx("recover", *broker.log_dirs, "--trust-page-cache", "--broker-log", log, "--json")
    assert ended.json["untrusted"] == {}


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    both = refused_kidx("recover", tmp_path, "--trust-page-cache", "--all")
    both.assert_one_line(ExitCode.USAGE, "--all and --trust-page-cache")
    refused_kidx("recover", tmp_path, "--broker-log", "x").assert_one_line(ExitCode.USAGE, "--trust-page-cache looks")
