"""Decoded records as JSON, what is said of those that cannot be decoded, and options that do not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kidxlib.dump.decoders import DECODERS
from kidxlib.errors import UsageError
from kidxlib.format.kafka_release import KAFKA_4_3, NEWEST
from kidxlib.format.segment_files import SnapshotId, kraft_snapshot_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import Values
from kidxlib.messages.interpreter import unsigned_varint as varint
from kidxlib.messages.interpreter import write_message as message_bytes
from kidxlib.messages.typed_records import CLUSTER_METADATA, TRANSACTION_STATE
from kidxlib.records.reader import Record
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.trees import write_log
from tests.support.cluster_metadata import change, of_broker, put_metadata, topic_id
from tests.support.dump import objects, run
from tests.support.logs import encoded
from tests.support.logs.golden import SAMPLES

_STATES_LOG = SAMPLES / "__transaction_state-0" / "00000000000000000000.log"
_CONFIG = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "1000"}


def _config_record() -> bytes:
    message = messages_of(CLUSTER_METADATA)["ConfigRecord"]
    assert message.api_key is not None
    return varint(1) + varint(message.api_key) + varint(0) + message_bytes(message, _CONFIG, 0)


def test_keys_and_values_as_json() -> None:
    records = [each for each in objects("--transaction-log-decoder", str(_STATES_LOG)) if each["type"] == "record"]
    assert {record["key"]["data"]["transactionalId"] for record in records} >= {"tx-a", "tx-b"}
    assert all(record["value"]["version"] == "1" and record["headers"] == [] for record in records)


def test_a_snapshot_of_metadata_as_json(tmp_path: Path) -> None:
    snapshot = tmp_path / kraft_snapshot_file(SnapshotId(1234, 5))
    snapshot.write_bytes(encoded.batch_v2([Record(0, 1, None, _config_record())]))
    start, batch, record = objects("--cluster-metadata-decoder", str(snapshot))
    assert start == {"file": str(snapshot), "type": "kraft_snapshot", "end_offset": 1234, "epoch": 5}
    assert batch["type"] == "batch"
    assert (record["key"], record["value"]) == (None, {"type": "CONFIG_RECORD", "version": 0, "data": _CONFIG})


def test_records_that_cannot_be_decoded_are_counted(log: Path) -> None:
    sound = _config_record()
    records = [Record(7 + number, 1, None, value) for number, value in enumerate((sound, sound[:-1], b""))]
    log.write_bytes(encoded.batch_v2(records))
    for options in ((), ("--json",)):
        result = run("--cluster-metadata-decoder", *options, str(log))
        assert result.return_value == ExitCode.PROBLEMS_FOUND
        assert result.stderr == (
            f"{log}: 2 of 3 records could not be decoded, the first at offset 8, in the batch at byte 0\n"
        )


_ASSUMED = "shown as kafka-dump-log of Kafka 4.4 does; up to 4.3 it prints some of this differently"


def _states(*options: str, log: Path = _STATES_LOG) -> tuple[set[str | int], bool]:
    """The states of transactions in the values, and whether a note says that the release is assumed."""
    result = run("--json", "--transaction-log-decoder", *options, str(log))
    records = [each for each in map(json.loads, result.stdout.splitlines()) if each["type"] == "record"]
    values = (record["value"] for record in records)
    return {
        value["data"]["transactionStatus"] for value in values if isinstance(value, dict)
    }, _ASSUMED in result.stderr


def test_states_of_transactions_have_names_since_4_4() -> None:
    named, is_assumed = _states()
    assert is_assumed
    assert {"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"} <= named
    assert _states("--kafka-version", "4.4.0") == (named, False)
    numbers, is_assumed = _states("--kafka-version", "4.3.1")
    assert not is_assumed
    assert {0, 1, 4, 5} <= numbers
    assert len(numbers) == len(named)


def test_a_log_dir_is_shown_as_its_node_does(tmp_path: Path) -> None:
    """The node's own registration counts, not another's; without it the release is assumed, and the note says so."""
    log = write_log(tmp_path / "__transaction_state-0", 0, _STATES_LOG.read_bytes())
    nodes = [of_broker("RegisterBrokerRecord", node, [topic_id("a")], level=30 + 3 * (node > 1)) for node in (1, 2)]
    put_metadata(tmp_path, nodes)
    for node, has_names, is_assumed in ((1, False, False), (2, True, False), (3, True, True), (None, True, True)):
        (tmp_path / "meta.properties").write_text("" if node is None else f"version=1\nnode.id={node}\n")
        states, said = _states(log=log)
        assert ("CompleteCommit" in states, said) == (has_names, is_assumed), node
    (tmp_path / METADATA_DIRECTORY / "00000000000000000000.log").unlink()
    assert _states(log=log)[1]


def test_a_note_is_printed_where_lines_differ_alone(log: Path) -> None:
    """A record that only one release knows, and one that none can read."""
    unregistered, damaged = change("UnregisterControllerRecord", controllerId=7), _config_record()[:-1]
    for values, is_assumed in (([_config_record()], False), ([damaged], False), ([damaged, unregistered], True)):
        log.write_bytes(encoded.batch_v2([Record(7 + at, 1, None, value) for at, value in enumerate(values)]))
        assert (_ASSUMED in run("--cluster-metadata-decoder", str(log)).stderr) == is_assumed
    *_, last = objects("--cluster-metadata-decoder", str(log))
    assert last["value"] == {"type": "UNREGISTER_CONTROLLER_RECORD", "version": 0, "data": {"controllerId": 7}}
    *_, last = objects("--cluster-metadata-decoder", "--kafka-version", "4.3.1", str(log))
    assert last["value"].endswith("UnsupportedVersionException: Unknown metadata id 29")


def test_a_state_that_kafka_does_not_know() -> None:
    _, decode = DECODERS["--transaction-log-decoder"]
    key, value = (messages_of(TRANSACTION_STATE)[f"TransactionLog{part}"] for part in ("Key", "Value"))
    values: Values = {
        "producerId": 1,
        "producerEpoch": 0,
        "transactionTimeoutMs": 1,
        "transactionStatus": 9,
        "transactionPartitions": [],
        "transactionLastUpdateTimestampMs": 1,
        "transactionStartTimestampMs": 1,
    }
    key_bytes = bytes(2) + message_bytes(key, {"transactionalId": "t"}, 0)
    record = Record(0, 1, key_bytes, bytes(2) + message_bytes(value, values, 0))
    shown = [decode(record, release).value for release in (KAFKA_4_3, NEWEST)]
    assert [part and part.fields["data"]["transactionStatus"] for part in shown] == [9, "9"]


@pytest.mark.parametrize("version", ["3.8", "4.5", "four"])
def test_versions_that_are_not_known(log: Path, version: str) -> None:
    error = run("--kafka-version", version, str(log)).exception
    assert isinstance(error, UsageError)
    assert str(error) == f"--kafka-version {version}: expected a version of Kafka from 3.9 to 4.4"


def test_two_decoders_are_a_mistake(log: Path) -> None:
    error = run("--offsets-decoder", "--cluster-metadata-decoder", str(log)).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith("--offsets-decoder and --cluster-metadata-decoder: ")


@pytest.mark.parametrize("name", ["1-1.checkpoint", "00000000000000000001-00000000010.checkpoint", ".checkpoint"])
def test_names_of_no_snapshot(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert isinstance(run(str(tmp_path / name)).exception, UsageError)
