"""Decoded records as JSON, what is said of those that cannot be decoded, and options that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import SnapshotId, kraft_snapshot_file
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CLUSTER_METADATA
from kidxlib.records.reader import Record
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.dump import objects, run
from tests.support.logs import encoded
from tests.support.logs.golden import SAMPLES
from tests.support.messages import encoded as message_bytes
from tests.support.messages import varint

_CONFIG = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "1000"}


def _config_record() -> bytes:
    message = messages_of(CLUSTER_METADATA)["ConfigRecord"]
    assert message.api_key is not None
    return varint(1) + varint(message.api_key) + varint(0) + message_bytes(message, _CONFIG, 0)


def test_keys_and_values_as_json() -> None:
    log = SAMPLES / "__transaction_state-0" / "00000000000000000000.log"
    records = [each for each in objects("--transaction-log-decoder", str(log)) if each["type"] == "record"]
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


def test_two_decoders_are_a_mistake(log: Path) -> None:
    error = run("--offsets-decoder", "--cluster-metadata-decoder", str(log)).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith("--offsets-decoder and --cluster-metadata-decoder: ")


@pytest.mark.parametrize("name", ["1-1.checkpoint", "00000000000000000001-00000000010.checkpoint", ".checkpoint"])
def test_names_of_no_snapshot(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert isinstance(run(str(tmp_path / name)).exception, UsageError)
