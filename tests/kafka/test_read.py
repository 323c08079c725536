"""`kidxlib.read` gives the records that Kafka's `kafka-dump-log` prints, in formats that no broker of today writes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from kidxlib.library.read import read
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump
from tests.support.logs.golden import DATA

_TYPES: Final = {b"NoTimestampType": -1, b"CreateTime": 0, b"LogAppendTime": 1}
_RECORD: Final = re.compile(rb"\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) ")
#: An offset, a type of timestamp, a timestamp, a key and a value.
_Row = tuple[int, int, int, bytes | None, bytes | None]


#: Partitions with batches of magic 0 and 1.
_OLD: Final = sorted(path.name for path in (DATA / "logs").iterdir() if path.name.startswith(("v0-", "v1-", "mixed-")))


@pytest.mark.parametrize("directory", _OLD)
def test_records_are_those_of_kafka_dump_log(kafka: Kafka, directory: str, scratch: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(DATA / "logs" / directory, scratch / directory)
    dump = KafkaDump(kafka, tmp_path)
    logs = sorted(copy.glob("*.log"))
    printed = [line for log in logs for line in dump("--print-data-log", "--files", str(log)).lines]
    expected = [_row(line) for line in printed if line.startswith(b"| ")]
    columns = ["offset", "timestampType", "timestamp", "key", "value"]
    found = read(copy, columns=columns).read_all().to_pydict()
    found["timestamp"] = [round(each.timestamp() * 1_000) for each in found["timestamp"]]
    assert [*zip(*found.values(), strict=True)] == expected and expected


def _row(line: bytes) -> _Row:
    """What a line says of a record; its sizes tell how long key and value are."""
    match = _RECORD.match(line)
    assert match is not None, line
    key_size, value_size = int(match[4]), int(match[5])
    value = line[len(line) - value_size :] if value_size >= 0 else None
    rest = line[: len(line) - len(b" payload: ") - value_size] if value_size >= 0 else line
    key = rest[len(rest) - key_size :] if key_size >= 0 else None
    return int(match[1]), _TYPES[match[2]], int(match[3]), key, value
