"""Batches of rows, and tasks, are as large as suits Spark, and memory does not depend on what lies in logs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from kidxlib.reading.plan import plan_reads
from kidxlib.reading.request import read_request
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import raise_damage
from kidxlib.records.reader import Record
from kidxlib.spark.source import source_schema
from kidxlib.spark.task_rows import task_rows
from tests.faults.trees import topic_log as _log
from tests.support.logs import encoded
from tests.support.logs.encoded import one_record as _one


def _reads(path: Path) -> tuple[SegmentRead, ...]:
    return plan_reads(read_request(path, to_log_end=False), goes_on=False).reads


def _sizes(path: Path) -> list[tuple[int, int]]:
    """Rows and bytes of each batch."""
    schema = to_arrow_schema(source_schema("records", include_headers=False), timezone="UTC")
    found = task_rows(_reads(path), "records", schema, raise_damage, goes_on=False)
    return [(rows.num_rows, rows.nbytes) for rows in found]


def test_small_batches_of_logs_are_put_together(tmp_path: Path) -> None:
    _log(tmp_path, 0, *(_one(offset, b"") for offset in range(9_000)))
    _log(tmp_path, 9_000, *(_one(offset, b"") for offset in range(9_000, 25_000)))
    sizes = _sizes(tmp_path)
    assert sum(rows for rows, _ in sizes) == 25_000 and all(rows >= 10_000 for rows, _ in sizes[:-1])


@pytest.mark.parametrize("mode", ["records", "batches"])
def test_a_task_tells_a_gap_between_logs(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _log(tmp_path, 0, _one(0, b""))
    _log(tmp_path, 5, _one(5, b""))
    schema = to_arrow_schema(source_schema(mode, include_headers=False), timezone="UTC")
    assert sum(rows.num_rows for rows in task_rows(_reads(tmp_path), mode, schema, raise_damage, goes_on=False)) == 2
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "in no log: 4 offsets of 1 partition between two logs: topic-0 1 to 4"
    ]


def test_large_records_come_a_few_at_once(tmp_path: Path) -> None:
    _log(tmp_path, 0, *(_one(offset, bytes(900_000)) for offset in range(60)))
    sizes = _sizes(tmp_path)
    assert sum(rows for rows, _ in sizes) == 60 and max(size for _, size in sizes) < 17 * 1024 * 1024


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Of a log of 2 MB with 3 GB in it."""
    batch = encoded.batch_v2([Record(each, 0, None, bytes(40_000)) for each in range(100)], 4, encoded.zstd)
    _log(tmp_path, 0, *((100 * each).to_bytes(8) + batch[8:] for each in range(800)))
    script = f"""
        import re
        from pathlib import Path
        from kidxlib.spark.source import KafkaSegmentSource
        source = KafkaSegmentSource({{"path": {str(tmp_path)!r}}})
        reader = source.reader(source.schema())
        rows = size = 0
        for partition in reader.partitions():
            for batch in reader.read(partition):
                rows, size = rows + batch.num_rows, size + batch.nbytes
        assert (rows, size > 3_200_000_000) == (80_000, True), (rows, size)
        print(int(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 512
