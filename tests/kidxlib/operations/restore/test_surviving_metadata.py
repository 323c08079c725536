"""Which copy of the metadata is taken, and what of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kidxlib.errors import ClusterMetadataError
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.typed_records import write_framed
from kidxlib.operations.restore.surviving_metadata import surviving_metadata
from tests.kidxlib.operations.restore.formatted_log_dir import formatted_by_4_4, levels, properties, user
from tests.support.cluster_metadata import (
    BROKER,
    change,
    config,
    data,
    leader_change,
    of_broker,
    of_controller,
    snapshot,
    topic,
    topic_id,
    write_copy,
)

_A, _B = topic_id("a"), topic_id("b")
_CLIENT_METRICS = 16


def _data(base_offset: int, values: list[bytes], epoch: int = 1) -> bytes:
    return data(base_offset, values, 10, leader_epoch=epoch)


def _node(path: Path, node_id: int, log: bytes, snapshots: dict[tuple[int, int], bytes] | None = None) -> Path:
    properties(path, node_id)
    start = 0 if snapshots is None else max(end for end, _ in snapshots)
    write_copy(path / METADATA_DIRECTORY, {start: log} if log else {}, snapshots)
    return path


def test_the_newest_copy_is_taken(tmp_path: Path) -> None:
    """By the epoch and then the end, be it a broker's or a controller's, in a log or in a snapshot."""
    long = _node(tmp_path / "long", 1, leader_change(0, [1, 2]) + _data(1, [topic("t", _A)] * 9))
    newer = [topic("t", _B)]
    late = _node(tmp_path / "late", 2, leader_change(0, [1, 2]) + _data(1, newer, epoch=2))
    later = _node(tmp_path / "later", 3, b"", {(3, 2): snapshot(newer, 40)})
    formatted = formatted_by_4_4(tmp_path / "formatted", node_id=4)
    for log_dirs, node_id, topics in (
        ([long, late], 2, {"t": _B}),
        ([late, long, formatted], 2, {"t": _B}),
        ([long, late, later], 3, {"t": _B}),
        ([long], 1, {"t": _A}),
    ):
        surviving = surviving_metadata(log_dirs)
        assert surviving is not None
        assert (surviving.source.node_id, surviving.metadata.topics) == (node_id, topics)
        assert len(surviving.source.older) == len(log_dirs) - 1 - (formatted in log_dirs)
    assert surviving_metadata([formatted, tmp_path]) is None


def test_whether_the_end_is_committed_is_said(tmp_path: Path) -> None:
    for name, voters, is_committed in (("one", [1], True), ("three", [1, 2, 3], False)):
        log_dir = _node(tmp_path / name, 1, leader_change(0, voters) + _data(1, [topic("t", _A)]))
        surviving = surviving_metadata([log_dir])
        assert surviving is not None
        source = surviving.source
        assert (source.is_committed, source.epoch, source.end_offset) == (is_committed, 1, 2)
        assert surviving.metadata.topics == {"t": _A}, "an election would choose the longest, too"


def _quota(entity: str, value: float, *, remove: bool = False) -> bytes:
    of = [{"entityType": "user", "entityName": entity}]
    return change("ClientQuotaRecord", entity=of, key="consumer_byte_rate", value=value, remove=remove)


def _acl(letter: str) -> bytes:
    of: dict[str, Any] = {"resourceType": 2, "resourceName": "t", "patternType": 3, "principal": "User:a", "host": "*"}
    return change("AccessControlEntryRecord", id=topic_id(letter), **of, operation=2, permissionType=3)


def test_what_is_taken_over(tmp_path: Path) -> None:
    """What was set last and not removed, as it was written. Neither nodes nor what only one machine had."""
    kept = [
        _quota("kept", 2.5),
        _acl("k"),
        user("kept", b"2"),
        config("", "log.retention.ms", "7", BROKER),
        config("m", "interval.ms", "5", _CLIENT_METRICS),
    ]
    values = [
        *levels({"metadata.version": 26, "group.version": 0}),
        *levels({"group.version": 1}),
        *(_quota("kept", 1.0), _quota("gone", 1.0), _quota("gone", 0.0, remove=True)),
        *(_acl("g"), change("RemoveAccessControlEntryRecord", id=topic_id("g"))),
        *(user("kept", b"1"), user("gone"), change("RemoveUserScramCredentialRecord", name="gone", mechanism=1)),
        *(config("", "log.retention.ms", "1", BROKER), config("", "log.cleaner.threads", "1", BROKER)),
        config("", "log.cleaner.threads", None, BROKER),
        *(config("1", "advertised.listeners", "PLAINTEXT://old:9092", BROKER), config("2", "x", "1", BROKER)),
        config("2", "x", None, BROKER),
        *(of_broker("RegisterBrokerRecord", 1, [_A]), of_controller(1, "CONTROLLER://c:9093")),
        *(change("ProducerIdsRecord", brokerId=1, brokerEpoch=4, nextProducerId=number) for number in (1000, 3000)),
        *(topic("t", _A), config("t", "retention.ms", "3")),
        *kept,
        *(change("BeginTransactionRecord", name=None), _acl("o")),
    ]
    surviving = surviving_metadata([_node(tmp_path, 1, leader_change(0, [1]) + _data(1, values))])
    assert surviving is not None
    assert set(map(write_framed, surviving.carried)) == set(kept)
    assert Counter(record.message.name for record in surviving.carried) == {
        "AccessControlEntryRecord": 1,
        "ClientQuotaRecord": 1,
        "ConfigRecord": 2,
        "UserScramCredentialRecord": 1,
    }
    assert (surviving.features, surviving.next_producer_id) == ({"metadata.version": 26, "group.version": 1}, 3000)
    assert surviving.metadata.topic_configs == {"t": {"retention.ms": "3"}}
    [left_out] = surviving.left_out
    assert (left_out.kind, left_out.count) == ("settings of single brokers", 1)
    assert "broker 1: advertised.listeners" in left_out.why


def test_copies_that_cannot_be_read(tmp_path: Path) -> None:
    """One beside another is told, as it may be the newest. If there is no other, nothing is made from folders in its
    place; nor is one taken of several clusters.
    """
    torn = _node(tmp_path / "torn", 1, b"", {(3, 2): snapshot([topic("t", _A)], 40)[:-9]})
    good = _node(tmp_path / "good", 2, leader_change(0, [1]) + _data(1, [topic("t", _A)]))
    surviving = surviving_metadata([torn, good])
    assert surviving is not None
    assert surviving.source.node_id == 2
    assert [*surviving.unreadable] == [torn / METADATA_DIRECTORY]
    [line] = surviving.unread_copies
    assert f"{good / METADATA_DIRECTORY} counts instead, as of offset 2, 1970-01-01T00:00:00.010Z: what was" in line
    with pytest.raises(ClusterMetadataError, match=r"no copy of the metadata can be read: .*no whole snapshot"):
        surviving_metadata([torn])
    empty = _node(tmp_path / "empty", 4, bytes(500))
    with pytest.raises(ClusterMetadataError, match="damaged at byte 0, and nothing before that"):
        surviving_metadata([empty])
    other = _node(tmp_path / "other", 3, leader_change(0, [1]) + _data(1, [topic("t", _A)]))
    properties(other, 3, "another")
    with pytest.raises(ClusterMetadataError, match=r"metadata of several clusters \(another, c\)"):
        surviving_metadata([good, other])


def test_batches_behind_damage_are_told(tmp_path: Path) -> None:
    """A node cuts its log there; an append that a kill broke off is nothing to tell of."""
    first, second, third = leader_change(0, [1]), _data(1, [topic("t", _A)]), _data(2, [topic("u", _B)])
    damaged = second[:-1] + bytes([second[-1] ^ 1])
    at = len(first)
    for name, logs, told in (
        ("whole", {0: first + second}, None),
        ("unfinished", {0: first + second[:-1]}, None),
        ("preallocated", {0: first + bytes(90), 1: second}, None),
        (
            "amid",
            {0: first + damaged + third},
            f"a whole batch begins at byte {at + len(second)} of ",
        ),
        ("before a log", {0: first + damaged, 2: third}, f"{2:020d}.log follows"),
    ):
        properties(tmp_path / name, 1)
        write_copy(tmp_path / name / METADATA_DIRECTORY, logs)
        surviving = surviving_metadata([tmp_path / name])
        assert surviving is not None
        assert len(surviving.behind_damage) == (told is not None)
        for line in surviving.behind_damage:
            assert surviving.source.end_offset == 1 and "from offset 1 on is not taken" in line
            assert f"damaged at byte {at}, and {told}" in line
    longer = _node(tmp_path / "longer", 2, first + second + third)
    both = surviving_metadata([tmp_path / "amid", longer])
    assert both is not None and both.source.node_id == 2
    assert len(both.behind_damage) == 1, "of the other copy nobody knows where it ended"
