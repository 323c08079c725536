"""Segments in an object store are read as those on a disk are."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from kidxlib.errors import LogChangedError
from kidxlib.library.read import count, read
from kidxlib.spark.source import KafkaSegmentSource
from tests.faults.processes import kidx
from tests.support.logs.golden import SAMPLES
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.spark.streams import Stream


def test_objects_are_read_as_files_are(store: ObjectStore) -> None:
    for name in ("txn-mixed-0", "plain-zstd-0"):
        store.upload(SAMPLES / name, f"read/logs/{name}")
    url = f"s3://{BUCKET}/read/logs"
    for isolation in ("read_uncommitted", "read_committed"):
        asked: dict[str, Any] = {"isolation": isolation, "topics": "(txn|plain)-.*"}
        found = read(url, include_headers=True, threads=2, **asked).read_all()
        assert found.equals(read(SAMPLES, include_headers=True, **asked).read_all())
        assert count(url, **asked) == found.num_rows
    part = read(f"{url}/txn-mixed-0", offsets=(5_000, 5_010), columns=["offset"]).read_all()
    assert part.equals(read(SAMPLES / "txn-mixed-0", offsets=(5_000, 5_010), columns=["offset"]).read_all())
    log = "txn-mixed-0/00000000000000000084.log"
    one = read(f"{url}/{log}", columns=["offset"]).read_all()
    assert one.equals(read(SAMPLES / log, columns=["offset"]).read_all())
    reader = read(f"{url}/{log}", columns=["offset"])
    store.put(f"read/logs/{log}", (SAMPLES / log).read_bytes()[:-1])
    with pytest.raises(LogChangedError):
        reader.read_all()


def test_a_catalog_in_the_store_knows_them_as_they_are(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """One that was put there again is scanned for transactions: nothing shows that it is the same."""
    store.upload(SAMPLES / "txn-mixed-0", "known/logs/txn-mixed-0")
    logs, index_dir, catalog = (f"s3://{BUCKET}/known/{name}" for name in ("logs", "index", "catalog"))
    built = kidx("build", logs, "--index-dir", index_dir, "--catalog", catalog)
    assert built.code == 0, built.err
    options: dict[str, Any] = {"isolation": "read_committed", "columns": ["offset"]}
    expected = read(SAMPLES / "txn-mixed-0", **options).read_all()
    log = "txn-mixed-0/00000000000000000084.log"
    for scanned in (0, 1):
        caplog.clear()
        with caplog.at_level(logging.INFO, "kidxlib"):
            assert read(logs, catalog=catalog, **options).read_all().equals(expected)
        assert [f"scanned for transactions: {scanned} log" in line for line in caplog.messages] == [bool(scanned)]
        store.put(f"known/logs/{log}", (SAMPLES / log).read_bytes())


def test_tasks_of_spark_read_them(store: ObjectStore) -> None:
    """From what the driver has planned, which says all that they need to know."""
    store.upload(SAMPLES / "txn-mixed-0", "spark/logs/txn-mixed-0")
    source = KafkaSegmentSource({"path": f"s3://{BUCKET}/spark/logs", "isolation": "read_committed"})
    reader = source.reader(StructType([StructField("offset", LongType())]))
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    found = [offset for task in tasks for rows in reader.read(task) for offset in rows.column("offset").to_pylist()]
    expected = read(SAMPLES / "txn-mixed-0", isolation="read_committed", columns=["offset"]).read_all()
    assert found == expected["offset"].to_pylist()


def test_a_stream_reads_objects_that_are_uploaded_while_it_runs(store: ObjectStore) -> None:
    """An active segment is uploaded again, longer than before."""
    path = store.upload(SAMPLES / "txn-mixed-0", "streams/logs/txn-mixed-0").removesuffix("/txn-mixed-0")
    *_, last = sorted((SAMPLES / "txn-mixed-0").glob("*.log"))
    data, key = last.read_bytes(), f"streams/logs/txn-mixed-0/{last.name}"
    store.put(key, data[: len(data) // 2])
    stream = Stream(path, isolation="read_committed", maxBytesPerTrigger="1000000")
    assert len(stream.run()) == 2
    store.put(key, data)
    assert len(stream.run()) == 1
    expected = read(SAMPLES, topics="txn-mixed", isolation="read_committed", columns=["offset"]).read_all()
    assert [offset for _, offset in stream.rows] == expected["offset"].to_pylist()
