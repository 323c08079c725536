"""What a leader does to remote segments by the leader epochs that it starts with, and what kidx says of these."""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from confluent_kafka import KafkaError, TopicPartition

from kidxlib.audit.tiered.remote_finding import DELETES, HIDES
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    clean_shutdown,
    offset_checkpoint,
)
from kidxlib.format.layouts import TIME_INDEX_ENTRY
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition as PartitionName
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.messages.remote_log_metadata import SegmentState
from kidxlib.operations.tiered.local_partitions import lost_epochs_of_local_partitions
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA
from tests.kafka.reading import consumer_of
from tests.kafka.recordings import Recordings
from tests.support.audits import verified
from tests.support.kafka.admin import wait_until
from tests.support.kafka.broker import DEADLINE_SECONDS
from tests.support.kafka.tiered import ONE_PARTITION_EACH, tiered_broker
from tests.support.logs.encoded import batch_v2
from tests.support.tiered_sites import SAMPLE, Site

_PLACE: Final = ("payments", 0)
#: Its segments go as soon as the broker has begun to look for some that go.
_CANARY: Final = ("readings", 0)
#: Of tasks that look for segments to delete, once one has run.
_SECONDS: Final = 4.0
#: Of the record in a log: of one of 1970 a broker's retention takes the segment away at any moment.
_WRITTEN_MS: Final = 1_760_000_400_000
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class _Disk:
    """What a broker has in its log dir of a partition whose segments are all copied, from offset 0 on.

    Attributes:
        epochs: the content of `leader-epoch-checkpoint`; None for no such file.
        batch_epoch: of a batch of one record that the log has behind the remote segments; None for an empty log.
        has_log: a segment is there.
        has_folder: the partition's directory is there.
        log_start: in `log-start-offset-checkpoint`; None where that does not name the partition.
        is_clean: the broker stopped cleanly.
        reason: what kidx says of it; None where all is well.
    """

    reason: str | None
    epochs: bytes | None = b"0\n1\n0 0\n"
    batch_epoch: int | None = None
    has_log: bool = True
    has_folder: bool = True
    log_start: int | None = 0
    is_clean: bool = True


@functools.cache
def _end(place: tuple[str, int]) -> int:
    return SAMPLE.segments(*place)[-1].offsets[1] + 1


_DISKS: Final[Mapping[str, _Disk]] = {
    "all is well": _Disk(None),
    "all is well, with a log": _Disk(None, epochs=b"0\n2\n0 0\n2 340\n", batch_epoch=2),
    "no log start in the checkpoint": _Disk(None, log_start=None),
    "no entries": _Disk(DELETES, epochs=b""),
    "no file": _Disk(DELETES, epochs=None),
    "the epochs of a log alone": _Disk(DELETES, epochs=b"0\n1\n2 340\n", batch_epoch=2),
    "a later epoch at the end of an empty log": _Disk(DELETES, epochs=b"0\n1\n2 340\n"),
    "no segment": _Disk(DELETES, has_log=False),
    "no folder": _Disk(DELETES, has_folder=False),
    "begins behind the remote segments": _Disk(HIDES, epochs=b"0\n1\n0 340\n", batch_epoch=0),
    "begins amid the remote segments": _Disk(HIDES, epochs=b"0\n1\n0 200\n"),
    "another epoch amid the remote segments": _Disk(HIDES, epochs=b"0\n2\n0 0\n1 200\n"),
    "no file, and the log is recovered": _Disk(HIDES, epochs=None, batch_epoch=0, is_clean=False),
    "the log start lies behind the remote segments": _Disk(None, log_start=340),
}


def _write(disks: Mapping[tuple[str, int], _Disk], log_dir: Path) -> None:
    """Put partitions into a copy of the sample's log dir."""
    for place, each in disks.items():
        if each.has_folder:
            _write_partition(each, log_dir, place)
    ends = {PartitionName(*place): _end(place) + (each.batch_epoch is not None) for place, each in disks.items()}
    starts = {PartitionName(*place): each.log_start for place, each in disks.items() if each.log_start is not None}
    for name, offsets in (
        (RECOVERY_POINT_CHECKPOINT, ends),
        (HIGH_WATERMARK_CHECKPOINT, ends),
        (LOG_START_OFFSET_CHECKPOINT, starts),
    ):
        (log_dir / name).write_bytes(offset_checkpoint(offsets))
    if all(each.is_clean for each in disks.values()):
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(1))


def _write_partition(disk: _Disk, log_dir: Path, place: tuple[str, int]) -> None:
    directory, end = log_dir / f"{place[0]}-{place[1]}", _end(place)
    directory.mkdir()
    topic_id = SAMPLE.segments(*place)[0].partition.topic_id
    (directory / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id}")
    if disk.epochs is not None:
        (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(disk.epochs)
    if disk.has_log:
        files = dict.fromkeys((LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX), b"")
        if disk.batch_epoch is not None:
            files[LOG_SUFFIX] = batch_v2([Record(end, _WRITTEN_MS, b"key", b"value")], leader_epoch=disk.batch_epoch)
            files[TIME_INDEX_SUFFIX] = np.array([(_WRITTEN_MS, 0)], TIME_INDEX_ENTRY).tobytes()
        for suffix, content in files.items():
            (directory / segment_file(end, suffix)).write_bytes(content)


@pytest.mark.parametrize("name", _DISKS)
def test_what_a_broker_does_to_its_bucket(name: str, tmp_path: Path, recordings: Recordings) -> None:
    """A file that makes a broker delete remote segments, or lose sight of them, is never called well. The sample's
    metadata and bucket, and a partition that has nothing left in its log dir but what the case says. What the broker
    did is recorded: which segments are left, where the log begins, and what of it is read.
    """
    disk = _DISKS[name]
    log_dir = Path(shutil.copytree(SAMPLE.log_dir, tmp_path / "log-dir"))
    _write({_PLACE: disk}, log_dir)
    found = verified(log_dir, code=3)["files"]  # the sample's own logs have no index files
    on_epochs = [each for each in found if (each["topic"], each["file"]) == (_PLACE[0], LEADER_EPOCH_CHECKPOINT)]
    reasons = [each["reason"] for each in on_epochs if each["verdict"] == "broken"]
    assert reasons == ([] if disk.reason is None else [disk.reason])
    directory = log_dir / f"{_PLACE[0]}-{_PLACE[1]}"
    refused = lost_epochs_of_local_partitions([log_dir], [] if disk.has_folder else [directory])
    assert any(str(directory) in line for line in refused) == (disk.reason is not None)
    all_of_them = len(SAMPLE.segments(*_PLACE))
    for version in recordings.versions("tiered_epochs"):
        did = recordings.of(
            "tiered_epochs", name, functools.partial(_observed, disk, version), kafka=version, seed=_SEED
        )
        if disk.log_start == 0:  # else the log start says that they are to go
            assert (did["segments"] < all_of_them) == (disk.reason == DELETES)
            assert (did["segments"] == all_of_them and did["read"] < _end(_PLACE)) == (disk.reason == HIDES)


def _observed(disk: _Disk, version: str) -> dict[str, Any]:
    """What a broker makes of its bucket."""
    with tempfile.TemporaryDirectory() as directory:
        broker = tiered_broker(Path(directory) / "broker", ONE_PARTITION_EACH, version)
        shutil.rmtree(broker.log_dir)
        shutil.copytree(SAMPLE.log_dir, broker.log_dir)
        site = Site(broker.directory / "remote" / STORAGE_DIRECTORY, broker.log_dir)
        shutil.copytree(SAMPLE.bucket, site.bucket)
        _write({_PLACE: disk, _CANARY: _Disk(None, epochs=b""), ("readings", 1): _Disk(None)}, broker.log_dir)
        canary = next(iter(site.bucket.glob(f"{_CANARY[0]}-{_CANARY[1]}-*")))
        with broker.running():
            wait_until(lambda: not any(canary.iterdir()), "it deletes nothing")
            threading.Event().wait(_SECONDS)
            earliest, read = _read(broker.bootstrap)
        known = {each.id for each in SAMPLE.segments(*_PLACE)}
        states = [each.row["state"] for each in site.segments(*_PLACE) if each.id in known]
    return {"segments": states.count(SegmentState.COPY_SEGMENT_FINISHED.name), "earliest": earliest, "read": read}


def _read(bootstrap: str) -> tuple[int, int]:
    """Where the log begins, and how many offsets a consumer comes over from there until all is read, or an error."""
    consumer = consumer_of(bootstrap, "read_uncommitted")
    try:
        earliest, _ = consumer.get_watermark_offsets(TopicPartition(*_PLACE), DEADLINE_SECONDS)
        consumer.assign([TopicPartition(*_PLACE, earliest)])
        after = earliest
        while (message := consumer.poll(DEADLINE_SECONDS)) is not None and (error := message.error()) is None:
            after = (message.offset() or 0) + 1
        assert message is not None and error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            after = message.offset() or 0
    finally:
        consumer.close()
    return earliest, after - earliest
