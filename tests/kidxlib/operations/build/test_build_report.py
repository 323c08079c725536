"""A build says which facts are not known. Only where it is asked to, it reads logs for them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from deltalake import DeltaTable

from kidxlib.catalog.segments import FillableFacts
from kidxlib.format.checksums import extend_crc64nvme
from kidxlib.java import as_long
from tests.support.logs.golden import DATA, SAMPLES
from tests.support.spark.jobs import Ended, kidx_build_here


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Batches of the magics 1 and 2, with timestamps by producers and by a broker, and a log with an invalid end."""
    for source in (SAMPLES / "append-time-0", SAMPLES / "plain-zstd-0", DATA / "logs" / "cut-v1-gzip-0"):
        shutil.copytree(source, tmp_path / "logs" / source.name)
    return tmp_path / "logs"


def build(log_dir: Path, *more: str) -> Ended:
    root = log_dir.parent
    ended = kidx_build_here(log_dir, "--index-dir", root / "index", "--catalog", root / "catalog", *more)
    assert ended.code == 3, ended.err  # one log is damaged
    return ended


def rows(log_dir: Path) -> dict[str, dict[str, Any]]:
    """Of `segments`, by the log."""
    table = DeltaTable(log_dir.parent / "catalog" / "segments").to_pyarrow_table()
    return {row["log_path"]: row for row in table.to_pylist()}


def files(directory: Path) -> Mapping[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


def test_facts_are_filled(log_dir: Path) -> None:
    log_bytes = {str(path): path.read_bytes() for path in log_dir.rglob("*.log")}
    first = build(log_dir, "--json").json
    assert first["unknown_facts"] == {"log_crc32c": 1, "smallest_timestamp_ms": 3, "log_crc64nvme": 4}
    before, index_files = rows(log_dir), files(log_dir.parent / "index")
    for path, row in before.items():
        assert row["log_crc32c"] == (None if row["magics"] == [1] else google_crc32c.value(log_bytes[path]))
        assert (row["smallest_timestamp_ms"] is None) == ("append-time-0" not in path)
        assert sum(each["records"] for each in row["records_by_hour"] or []) == (row["records"] or 0)
        assert row["offset_digests"]

    again = build(log_dir, "-v")
    assert "not read: 4 unchanged segments" in again.out
    assert "the CRC-32C of 1, the smallest timestamp of 3, the CRC-64/NVME of 4 segments would make" in again.out
    assert build(log_dir, "--fill-facts", "0", "--json").json["segments"] == 0

    some = build(log_dir, "--fill-facts", "900kB", "--json").json
    assert 0 < some["segments"] < 4
    assert some["unknown_facts"]["log_crc64nvme"] == 4 - some["segments"]
    assert some["by_published"]["unchanged"] + some["by_published"].get("none", 0) == some["segments"]
    every = build(log_dir, "--fill-facts", "1TB", "--json").json
    assert every["segments"] == 4 - some["segments"]
    assert every["unknown_facts"] == dict.fromkeys(FillableFacts.names(), 0)
    filled = rows(log_dir)
    for path, row in filled.items():
        assert row["log_crc32c"] == google_crc32c.value(log_bytes[path])
        assert row["log_crc64nvme"] == as_long(extend_crc64nvme(0, log_bytes[path]))
        assert row["smallest_timestamps"][0] == {"position": 0, "timestamp_ms": row["smallest_timestamp_ms"]}
        assert all(each["records"] == each["certain_records"] for each in row["records_by_hour"])
        facts = ("smallest_timestamp_ms", "smallest_timestamps", "records_by_hour", "log_crc32c", "log_crc64nvme")
        of_the_run = ("build_id", *facts)
        assert {**row, **dict.fromkeys(of_the_run)} == {**before[path], **dict.fromkeys(of_the_run)}
    assert files(log_dir.parent / "index") == index_files

    assert build(log_dir, "--fill-facts", "1TB", "--json").json["segments"] == 0
    assert "optional:" not in build(log_dir, "-v").out


def test_where_facts_cannot_be_filled(log_dir: Path) -> None:
    """Without a catalog nothing keeps them; a repair writes what is broken, no more."""
    refused = kidx_build_here(log_dir, "--index-dir", log_dir.parent / "index", "--fill-facts", "1GB")
    assert (refused.code, "--fill-facts: only for a build with a catalog" in refused.err) == (2, True)
    catalog = ("--catalog", log_dir.parent / "catalog")
    refused = kidx_build_here(log_dir, *catalog, "--repair", "--fill-facts", "1GB")
    assert (refused.code, "--fill-facts and --repair: give one of them" in refused.err) == (2, True)
