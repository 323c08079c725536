"""What `--require-tiering` passes a live broker uploads; what it refuses fails there, waits, or is uploaded wrong.

A running broker takes no missing file for a reason to stop: an index that it has not opened yet it makes anew, full of
zeros, and `LocalTieredStorage` leaves out a log that is not there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from tests.support.audits import verified
from tests.support.kafka.admin import make_topics, set_config
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker, BrokerRun
from tests.support.kafka.tiered import tiered_broker

_CONFIG: Final = {
    "internal.segment.bytes": "8192",
    "index.interval.bytes": "1024",
    "retention.ms": "-1",
    "local.retention.ms": "-2",  # nothing is deleted
}
_BATCHES: Final = 40
_BATCH_BYTES: Final = 700

#: What it means for a segment that it is refused.
_FAILS, _WRONG, _WAITS = "fails", "wrong", "waits"


@dataclass(frozen=True, slots=True)
class _Refused:
    """A damage to the last segment that is not active, what the gate says of it, and what it comes to.

    Attributes:
        spoil: gets the partition's directory, and the segment's base offset and the next one's; None for what a
            producer does.
        wrong: the suffix of what is uploaded wrong.
        is_early: it happens before the broker starts.
    """

    spoil: Callable[[Path, int, int], None] | None
    says: str
    comes_to: str
    wrong: str = ""
    is_early: bool = False


def _without(suffix: str) -> Callable[[Path, int, int], None]:
    def spoil(directory: Path, base_offset: int, next_base_offset: int) -> None:
        (directory / segment_file(_named_after(suffix, base_offset, next_base_offset), suffix)).unlink()

    return spoil


def _flipped(suffix: str, at: int) -> Callable[[Path, int, int], None]:
    """A byte of a file is another one, in the file that the broker has open."""

    def spoil(directory: Path, base_offset: int, next_base_offset: int) -> None:
        path = directory / segment_file(_named_after(suffix, base_offset, next_base_offset), suffix)
        with path.open("r+b") as file:
            file.seek(at if at >= 0 else path.stat().st_size + at)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 0x5A]))

    return spoil


def _named_after(suffix: str, base_offset: int, next_base_offset: int) -> int:
    return next_base_offset if suffix == SNAPSHOT_SUFFIX else base_offset


def _without_epochs(directory: Path, base_offset: int, next_base_offset: int) -> None:
    (directory / LEADER_EPOCH_CHECKPOINT).write_text("0\n0\n")


def _broken(suffix: str, at: int, says: str = "") -> _Refused:
    return _Refused(_flipped(suffix, at), says or f"{suffix} is broken: ", _WRONG, suffix)


_REFUSED: Final[Mapping[str, _Refused]] = {
    "no-log": _Refused(_without(LOG_SUFFIX), f"{LOG_SUFFIX} is broken: missing", _WRONG, LOG_SUFFIX),
    "broken-log": _broken(LOG_SUFFIX, 300),
    "no-index": _Refused(_without(OFFSET_INDEX_SUFFIX), ".index is missing", _WRONG, OFFSET_INDEX_SUFFIX),
    "broken-index": _broken(OFFSET_INDEX_SUFFIX, 6),
    "no-timeindex": _Refused(_without(TIME_INDEX_SUFFIX), ".timeindex is missing", _WRONG, TIME_INDEX_SUFFIX),
    "broken-timeindex": _broken(TIME_INDEX_SUFFIX, 2),
    "no-txnindex": _Refused(
        _without(TRANSACTION_INDEX_SUFFIX), ".txnindex is missing", _WRONG, TRANSACTION_INDEX_SUFFIX
    ),
    "broken-txnindex": _broken(TRANSACTION_INDEX_SUFFIX, 9),
    "no-snapshot": _Refused(_without(SNAPSHOT_SUFFIX), ".snapshot at ", _FAILS, is_early=True),
    "broken-snapshot": _broken(SNAPSHOT_SUFFIX, 3, ".snapshot at "),
    "no-epochs": _Refused(_without_epochs, "leader-epoch-checkpoint has no epoch before ", _FAILS, is_early=True),
    "open-transaction": _Refused(None, "a transaction has been open since offset ", _WAITS),
}
_SOUND: Final = "sound"
_TOPICS: Final = (_SOUND, *_REFUSED)


@dataclass(frozen=True, slots=True)
class _Gated:
    """What the gate said of a broker's log dir, and what the broker then uploaded.

    Attributes:
        inactive: base offsets of segments by topic, but for the active one.
        refused: by topic and base offset, what the gate said.
        uploaded: by topic and base offset, the names of the objects, with their files.
        damaged: the files of the log dir as the gate found them.
    """

    inactive: Mapping[str, list[int]]
    refused: Mapping[tuple[str, int], list[str]]
    uploaded: Mapping[tuple[str, int], Mapping[str, bytes]]
    damaged: Mapping[tuple[str, str], bytes]


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> _Gated:
    """Topics become tiered after they were damaged and judged, while their broker runs: it mends some as it starts."""
    one_each = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    broker = tiered_broker(tmp_path_factory.mktemp("gate") / "broker", one_each, broker_version)
    with broker.running():
        _fill(broker.bootstrap)
    _spoil(broker, is_early=True)
    with broker.running() as run:
        open_transaction = _write(broker.bootstrap, "open-transaction", "left-open")
        inactive = {topic: _base_offsets(broker, topic)[:-1] for topic in _TOPICS}
        _spoil(broker, is_early=False)
        found = verified(broker.log_dir, "--require-tiering", "--topics", "|".join(_TOPICS), code=3)
        refusals = {(each["topic"], each["base_offset"]): each["missing"] for each in found["not_ready"]}
        damaged = {
            (topic, path.name): path.read_bytes()
            for topic in _TOPICS
            for path in (broker.log_dir / f"{topic}-0").iterdir()
        }
        for topic in _TOPICS:
            set_config(broker.bootstrap, topic, {"remote.storage.enable": "true"})
        expected = {
            (topic, offset) for topic in _TOPICS for offset in inactive[topic] if (topic, offset) not in refusals
        } | {(topic, inactive[topic][-1]) for topic, refused in _REFUSED.items() if refused.comes_to == _WRONG}
        failing = {topic for topic, refused in _REFUSED.items() if refused.comes_to == _FAILS}
        _wait(lambda: (expected - _copied(run), failing - _failed(run)))
        copied = _copied(run)
        del open_transaction
    uploaded = {place: _objects(broker, *place) for place in copied}
    return _Gated(inactive, refusals, uploaded, damaged)


def test_what_passes_is_uploaded_and_nothing_else_but_what_is_wrong(gated: _Gated) -> None:
    passed = {(topic, offset) for topic in _TOPICS for offset in gated.inactive[topic]} - gated.refused.keys()
    wrong = {(topic, gated.inactive[topic][-1]) for topic, each in _REFUSED.items() if each.comes_to == _WRONG}
    assert gated.uploaded.keys() == passed | wrong and len(passed) > 2 * len(_TOPICS)
    assert not any(topic == _SOUND for topic, _ in gated.refused)


@pytest.mark.parametrize("topic", _REFUSED)
def test_each_refusal_has_its_reason_and_none_is_uploaded_right(gated: _Gated, topic: str) -> None:
    """The segment that was damaged; of an epoch or a transaction all segments that it is about."""
    refused, last = _REFUSED[topic], gated.inactive[topic][-1]
    of_topic = {offset: missing for (name, offset), missing in gated.refused.items() if name == topic}
    assert last in of_topic and any(each.startswith(refused.says) for each in of_topic[last]), of_topic
    if refused.spoil not in (None, _without_epochs):
        assert of_topic.keys() == {last}, of_topic
    if refused.comes_to != _WRONG:
        assert (topic, last) not in gated.uploaded
        return
    uploaded = gated.uploaded[topic, last].get(refused.wrong)
    if topic in ("no-log", "no-txnindex"):
        assert uploaded is None
    elif topic in ("no-index", "no-timeindex"):
        assert uploaded and not any(uploaded)
    else:
        after = next(_after(gated, topic, last)).removesuffix(LOG_SUFFIX)
        name = segment_file(last, refused.wrong) if refused.wrong != SNAPSHOT_SUFFIX else f"{after}{SNAPSHOT_SUFFIX}"
        assert uploaded == gated.damaged[topic, name]


def _after(gated: _Gated, topic: str, base_offset: int) -> Iterator[str]:
    """The names of a topic's logs after one, in order."""
    names = sorted(name for of, name in gated.damaged if of == topic and name.endswith(LOG_SUFFIX))
    return (name for name in names if (parse_segment_log(name) or 0) > base_offset)


def _spoil(broker: Broker, *, is_early: bool) -> None:
    for topic, refused in _REFUSED.items():
        if refused.spoil is not None and refused.is_early is is_early:
            refused.spoil(broker.log_dir / f"{topic}-0", *_base_offsets(broker, topic)[-2:])


def _fill(bootstrap: str) -> None:
    make_topics(bootstrap, [NewTopic(topic, 1, 1, config=_CONFIG) for topic in _TOPICS])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})
    aborting = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "transactional.id": "aborting"})
    aborting.init_transactions(DEADLINE_SECONDS)
    for _ in range(_BATCHES):
        for topic in _TOPICS:
            producer.produce(topic, os.urandom(_BATCH_BYTES))
        assert producer.flush(DEADLINE_SECONDS) == 0
        aborting.begin_transaction()
        for topic in ("no-txnindex", "broken-txnindex"):
            aborting.produce(topic, os.urandom(_BATCH_BYTES))
        assert aborting.flush(DEADLINE_SECONDS) == 0  # else it would never be sent
        aborting.abort_transaction(DEADLINE_SECONDS)


def _write(bootstrap: str, topic: str, transactional_id: str) -> Producer:
    """A transaction that begins in a segment and goes on in the next ones. It stays open as long as its producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    for _ in range(_BATCHES):
        producer.produce(topic, os.urandom(_BATCH_BYTES))
        assert producer.flush(DEADLINE_SECONDS) == 0
    return producer


def _base_offsets(broker: Broker, topic: str) -> list[int]:
    found = (parse_segment_log(path.name) for path in (broker.log_dir / f"{topic}-0").iterdir())
    return sorted(offset for offset in found if offset is not None)


def _copied(run: BrokerRun) -> set[tuple[str, int]]:
    """What a broker says that it has copied (`RLMCopyTask.copyLogSegment`)."""
    found = set()
    for line in run.lines():
        if "Copied " in line and " to remote storage" in line:
            topic = line.partition("partition=")[2].partition("-0]")[0].rpartition(":")[2]
            offset = parse_segment_log(line.partition("Copied ")[2].split()[0])
            assert offset is not None
            found.add((topic, offset))
    return found


def _failed(run: BrokerRun) -> set[str]:
    """The topics that it says it cannot copy."""
    failed = "Error occurred while copying log segments of partition: "
    return {line.partition(failed)[2].rpartition("-0")[0].rpartition(":")[2] for line in run.lines() if failed in line}


def _wait(missing: Callable[[], tuple[set[tuple[str, int]], set[str]]]) -> None:
    """Until all is copied that is to be, and all copying has failed that is to.

    Args:
        missing: what is not copied yet, and what has not failed yet.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(left := missing()):
        assert time.monotonic() < deadline, f"not copied, and not failed: {left}"
        threading.Event().wait(0.1)


def _objects(broker: Broker, topic: str, base_offset: int) -> dict[str, bytes]:
    """The objects of a segment by their suffixes."""
    places: Iterable[Path] = (broker.directory / "remote").rglob(f"{topic}-0-*")
    [directory] = [place for place in places if place.is_dir()]
    found = directory.glob(f"{base_offset:020d}-*")
    return {path.suffix: path.read_bytes() for path in found}
