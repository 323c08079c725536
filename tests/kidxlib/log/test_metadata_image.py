"""Which records of a copy count, and copies that cannot be read."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import ClusterMetadataError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import AsOf, Assignment, ClusterMetadata, read_cluster_metadata, read_despite_damage
from kidxlib.log.metadata_replica import read_replica
from kidxlib.records.batch_headers import batches, is_crc_valid
from kidxlib.records.reader import Record, records
from kidxlib.storage.log_bytes import WholeLog
from tests.support.cluster_metadata import (
    BROKER,
    change,
    config,
    data,
    leader_change,
    of_broker,
    of_controller,
    partition,
    put_metadata,
    snapshot,
    topic,
    topic_id,
    write_copy,
)

_A, _B = topic_id("a"), topic_id("b")


def image_of(place: Path, values: Sequence[bytes]) -> ClusterMetadata:
    """Of the only voter's copy, in which all counts."""
    return read_cluster_metadata(put_metadata(place, values))


def test_what_is_committed_counts(tmp_path: Path) -> None:
    """Of one voter all is; of three what the snapshot has, and what lies below a high watermark that is given."""
    later = data(3, [config("t", "retention.ms", "2")], 30) + data(4, [config("t", "retention.ms", "3")], 40)
    of_snapshot = {(3, 1): snapshot([topic("t", _A), config("t", "retention.ms", "1")], 20)}
    for voters, high_watermark, value, as_of in (
        ([1], None, "3", AsOf(5, 40)),
        ([1, 2, 3], None, "1", AsOf(3, 20)),
        ([1, 2, 3], 2, "1", AsOf(3, 20)),
        ([1, 2, 3], 4, "2", AsOf(4, 30)),
        ([1, 2, 3], 99, "3", AsOf(5, 40)),
    ):
        log = leader_change(0, voters) + data(1, [topic("t", _A), config("t", "retention.ms", "1")], 20) + later
        # Whether an election is read depends on where the snapshot ends; the quorum's state is there in either case.
        (tmp_path / "quorum-state").write_text(json.dumps({"currentVoters": [{"voterId": voter} for voter in voters]}))
        found = read_cluster_metadata(write_copy(tmp_path, {0: log}, of_snapshot), high_watermark)
        assert (found.topic_configs["t"], found.as_of, found.end_offset) == ({"retention.ms": value}, as_of, 5)


def test_what_leads_to_the_end_of_a_damaged_snapshot_is_read_instead(tmp_path: Path) -> None:
    """The log alone, or an older snapshot and the log; what ends before it says less, and what begins later nothing."""
    values = [topic("t", _A), config("t", "retention.ms", "1")]
    log = leader_change(0, [1, 2, 3]) + data(1, values, 20)
    whole, torn = snapshot(values, 20), snapshot(values, 20)[:-9]
    later = data(3, [config("t", "retention.ms", "2")], 30)
    for name, logs, snapshots, value in (
        ("log", {0: log + later}, {(3, 1): torn}, "1"),
        ("older snapshot", {3: later}, {(3, 1): whole, (4, 1): torn}, "2"),
        ("all are damaged", {3: later}, {(3, 1): torn, (4, 1): torn}, None),
        ("ends before it", {0: log}, {(4, 1): torn}, None),
    ):
        copy = write_copy(tmp_path / name, logs, snapshots)
        with pytest.raises(ClusterMetadataError, match="no whole snapshot"):
            read_cluster_metadata(copy)
        if value is None:
            with pytest.raises(ClusterMetadataError, match="no whole snapshot"):
                read_despite_damage(copy)
        else:
            found = read_despite_damage(copy)
            assert found.topic_configs["t"] == {"retention.ms": value}, f"{name}: the damaged one ended what counts"
            assert found.left_out == max(path.name for path in copy.glob("*.checkpoint"))


@pytest.mark.parametrize("state", [None, '{"leaderId": 1, "data_version": 1}'])
def test_where_nobody_says_who_votes_only_a_snapshot_counts(tmp_path: Path, state: str | None) -> None:
    if state is not None:
        (tmp_path / "quorum-state").write_text(state)
    write_copy(tmp_path, {0: data(0, [topic("t", _A)], 10)})
    found = read_cluster_metadata(tmp_path)
    assert (found.topics, found.as_of, found.end_offset) == ({}, AsOf(0, None), 1)
    assert read_cluster_metadata(tmp_path, 1).topics == {"t": _A}


@pytest.mark.parametrize("voters", ["null", "[1]", '[{"id": 1}]', "7"])
def test_a_state_of_the_quorum_that_no_node_writes(tmp_path: Path, voters: str) -> None:
    (tmp_path / "quorum-state").write_text(f'{{"currentVoters": {voters}}}')
    write_copy(tmp_path, {0: data(0, [topic("t", _A)], 10)})
    with pytest.raises(ClusterMetadataError, match=r"quorum-state: currentVoters is .*; expected objects with voterId"):
        read_cluster_metadata(tmp_path)


def test_a_quorum_that_was_larger_is_no_single_voter(tmp_path: Path) -> None:
    """The change to one voter may not be committed itself."""
    write_copy(tmp_path, {0: leader_change(0, [1, 2]) + leader_change(1, [1]) + data(2, [topic("t", _A)])})
    assert read_cluster_metadata(tmp_path).topics == {}


def test_transactions_count_when_they_end(tmp_path: Path) -> None:
    begin, end = change("BeginTransactionRecord", name=None), change("EndTransactionRecord")
    abort = change("AbortTransactionRecord", reason=None)
    values = [begin, topic("committed", _A), end, begin, topic("aborted", _B), abort, begin, topic("open", _B)]
    assert image_of(tmp_path, values).topics == {"committed": _A}


def test_log_dirs_are_those_that_a_broker_named_last(tmp_path: Path) -> None:
    """A change that names none changes none; a version that a newer Kafka writes is passed over."""

    values = [
        *(of_broker("RegisterBrokerRecord", 1, [_A, _B]), of_broker("RegisterBrokerRecord", 2, [_A])),
        *(of_broker("BrokerRegistrationChangeRecord", 1, []), of_broker("BrokerRegistrationChangeRecord", 2, [_B])),
        *(of_broker("RegisterBrokerRecord", 3, [_A]), change("UnregisterBrokerRecord", brokerId=3, brokerEpoch=1)),
        b"\x01\x00\x63 of a newer Kafka",
    ]
    assert image_of(tmp_path, values).log_dirs == {1: (_A, _B), 2: (_B,)}


def test_a_node_is_of_the_kafka_as_which_it_registered_last(tmp_path: Path) -> None:
    """A node that is both registers twice. Who is unregistered, or names no level, is of none that is known."""
    values = [
        *(of_broker("RegisterBrokerRecord", 1, [_A], level=33), of_controller(1, "C://h:1", level=33)),
        *(of_broker("RegisterBrokerRecord", 2, [_A], level=30), of_broker("RegisterBrokerRecord", 2, [_A], level=33)),
        *(of_broker("RegisterBrokerRecord", 3, [_A], level=30), of_broker("RegisterBrokerRecord", 4, [_A])),
        *(of_controller(5, "C://h:5", level=33), change("UnregisterControllerRecord", controllerId=5)),
        *(of_controller(6, "C://h:6", level=30), of_broker("RegisterBrokerRecord", 7, [_A], level=33)),
        change("UnregisterBrokerRecord", brokerId=7, brokerEpoch=1),
    ]
    found = image_of(tmp_path, values)
    assert found.releases == {1: (4, 4), 2: (4, 4), 3: (4, 3), 6: (4, 3)}
    assert found.controllers.keys() == {1, 6}


def test_replicas_are_where_the_last_change_has_left_them(tmp_path: Path) -> None:
    """What a change does not name stays; a topic that goes takes its partitions along."""

    def changed(number: int, **values: Any) -> bytes:
        return change("PartitionChangeRecord", 1, topicId=_A, partitionId=number, **values)

    values = [
        *(topic("t", _A), topic("u", _B)),
        partition(_A, 0, [1], ["A" * 22]),
        partition(_A, 1, [1, 2], ["A" * 22, _B]),
        partition(_B, 0, [1], ["A" * 22]),
        changed(0, leader=1),
        changed(1, replicas=[2], directories=[_B]),
        change("RemoveTopicRecord", topicId=_B),
    ]
    found = image_of(tmp_path, values)
    assert found.assignments == {
        TopicPartition("t", 0): Assignment((1,), ("A" * 22,), leader_epoch=1, last_leader=1, led_epoch=1, in_sync=(1,)),
        TopicPartition("t", 1): Assignment((2,), (_B,), last_leader=1, led_epoch=0, in_sync=(1, 2)),
    }


def test_changes_are_made_in_their_order(tmp_path: Path) -> None:
    """A topic that is deleted takes its settings with it; a setting that is null is none; other records are passed."""
    values = [
        *(topic("t", _A), config("t", "retention.ms", "1"), config("t", "retention.bytes", "1")),
        *(config("", "log.retention.ms", "5", BROKER), config("1", "log.retention.ms", "6", BROKER)),
        *(change("RemoveTopicRecord", topicId=_A), topic("t", _B), config("t", "cleanup.policy", "compact")),
        *(config("1", "log.retention.ms", None, BROKER), change("NoOpRecord"), config("g", "x", "y", 32)),
    ]
    found = image_of(tmp_path, values)
    assert found.topics == {"t": _B}
    assert found.topic_configs == {"t": {"cleanup.policy": "compact"}}
    assert found.broker_configs == {"": {"log.retention.ms": "5"}, "1": {}}


def test_a_log_ends_at_a_torn_batch(tmp_path: Path) -> None:
    """Also where a later segment follows, which a node would not have read."""
    first, last = leader_change(0, [1]) + data(1, [topic("t", _A)], 10), data(2, [topic("u", _B)], 20)
    broken = last[:-1] + bytes([last[-1] ^ 1])
    for logs in ({0: first + broken}, {0: first + last[:-3]}, {0: first + broken, 3: data(3, [topic("v", _B)])}):
        found = read_cluster_metadata(write_copy(tmp_path, logs))
        assert (found.topics, found.end_offset, found.as_of) == ({"t": _A}, 2, AsOf(2, 10))


_NO_OP = change("NoOpRecord")
#: The values of a batch, and fields of its header that are not as usual.
_BATCHES: list[tuple[list[bytes], dict[str, Any]]] = [
    ([_NO_OP], {}),
    ([_NO_OP], {"leader_epoch": 7}),
    ([_NO_OP], {"magic": 3}),
    ([_NO_OP], {"last_offset_delta": 2}),
    ([_NO_OP], {"attributes": layouts.CODEC_ZSTD}),
    ([_NO_OP], {"records": 2}),
    ([_NO_OP, _NO_OP], {}),
    ([_NO_OP[:-1] + b"\1"], {}),
    ([topic("t", _A)], {}),
]


def _is_other(record: Record) -> bool:
    return record.value != _NO_OP


def _batches_of(copy: Path) -> Any:
    """The batches of a copy's log, each with its place and its records, and where it is torn; or why there is none."""
    try:
        replica = read_replica(copy, _is_other)
    except ClusterMetadataError:
        return None
    places = [(batch.last_offset, batch.epoch, batch.timestamp_ms, [*batch.records]) for batch in replica.log]
    return places, None if replica.torn_at is None else replica.torn_at[1]


def _batches_one_by_one(content: bytes) -> Any:
    """The same, of the log's bytes."""
    log, places, read_to, end = WholeLog(np.frombuffer(content, np.uint8)), list[Any](), 0, 0
    with contextlib.suppress(MalformedRecordsError):
        for batch in batches(log):
            if not is_crc_valid(log, batch):
                break
            try:
                others = [record for record in records(log, batch) if _is_other(record)]
            except MalformedRecordsError:
                return None
            if batch.last_offset >= end:
                places.append((batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp, others))
                end = batch.last_offset + 1
            read_to = batch.next_position
    return places, read_to if read_to < len(content) else None


@given(st.lists(st.tuples(st.sampled_from(_BATCHES), st.integers(-1, 99))), st.integers(0, 99))
def test_batches_of_an_idle_cluster_are_read_as_others(
    of_log: Sequence[tuple[tuple[list[bytes], dict[str, Any]], int]], bytes_lost: int
) -> None:
    content, end = bytearray(), 0
    for (values, fields), timestamp_ms in of_log:
        content += data(end, values, timestamp_ms, **fields)
        end += 1 + fields.get("last_offset_delta", len(values) - 1)
    kept = bytes(content[: max(len(content) - bytes_lost, 0)])
    with tempfile.TemporaryDirectory() as directory:
        assert _batches_of(write_copy(Path(directory), {0: kept})) == _batches_one_by_one(kept)


def test_each_bit_of_an_idle_batch_counts(tmp_path: Path) -> None:
    batch, before, after = data(2, [_NO_OP], 20), data(1, [topic("t", _A)], 10), data(3, [_NO_OP], 30)
    for bit in range(8 * len(batch)):
        changed = bytearray(batch)
        changed[bit // 8] ^= 1 << bit % 8
        content = before + changed + after
        assert _batches_of(write_copy(tmp_path, {0: content})) == _batches_one_by_one(content), f"bit {bit}"


def test_segments_follow_one_another(tmp_path: Path) -> None:
    """Those that the snapshot covers are not read, and the one that it ends in from there on."""
    logs = {
        0: b"whatever",
        2: data(2, [config("t", "a", "old")]) + data(3, [config("t", "a", "1")]),
        4: data(4, [config("t", "b", "2")], 40),
    }
    (tmp_path / "quorum-state").write_text('{"currentVoters": [{"voterId": 1}]}')
    found = read_cluster_metadata(write_copy(tmp_path, logs, {(3, 1): snapshot([topic("t", _A)], 20)}))
    assert (found.topic_configs["t"], found.as_of) == ({"a": "1", "b": "2"}, AsOf(5, 40))


@pytest.mark.parametrize(
    ("logs", "snapshots", "message"),
    [
        ({}, {}, "neither a .log nor a snapshot is in it; expected __cluster_metadata-0"),
        ({5: data(5, [topic("t", _A)])}, {}, "its log begins at offset 5, and there is no snapshot"),
        ({5: b""}, {(3, 1): snapshot([], 0)}, "begins at offset 5, and the latest snapshot ends at 3"),
        ({}, {(3, 1): snapshot([topic("t", _A)], 0)[:-1]}, "no whole snapshot"),
        ({}, {(3, 1): data(0, [topic("t", _A)])}, "no whole snapshot"),
        ({0: data(0, [None])}, {}, "offset 0: found None, expected bytes, not null"),
        ({0: data(0, [b"\2\4\0"])}, {}, r"found b'\\x02\\x04\\x00', expected frame version 1, not 2"),
        ({0: data(0, [topic("t", _A)[:-1]])}, {}, "expected more bytes"),
        ({0: data(0, [b"\1\4\x07" + config("t", "a", "b")[3:]])}, {}, "ConfigRecord of version 7, expected 0 to 0"),
    ],
)
def test_what_is_no_copy(
    tmp_path: Path, logs: dict[int, bytes], snapshots: dict[tuple[int, int], bytes], message: str
) -> None:
    with pytest.raises(ClusterMetadataError, match=message):
        read_cluster_metadata(write_copy(tmp_path, logs, snapshots), 1_000)
