"""An export that is killed is taken up by the same command, and ends as if nothing had happened."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.records.reader import Record
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import again_if_too_late, kidx, kill_session, running_kidx, while_it_runs
from tests.support.logs import encoded

_PARTITIONS = 6


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of 130 MiB, each a part of its own; the same file."""
    directory = tmp_path_factory.mktemp("kafka-logs")
    batch = encoded.batch_v2([Record(each, 1_700_000_000_000, b"key", bytes(20_000)) for each in range(50)])
    log = directory / "first"
    with log.open("wb") as file:
        for number in range(130 * 1024 * 1024 // len(batch)):
            file.write((50 * number).to_bytes(8) + batch[8:])
    for partition in range(_PARTITIONS):
        (directory / f"topic-{partition}").mkdir()
        os.link(log, directory / f"topic-{partition}" / segment_file(0, LOG_SUFFIX))
    log.unlink()
    return directory


@again_if_too_late
def test_a_killed_export_is_taken_up(log_dir: Path, tmp_path: Path) -> None:
    output = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    staging = output.with_name(f"{output.name}.kidx-export")
    arguments = ("export", log_dir, "--output", output, "--threads", "2")
    with running_kidx(*arguments) as running:
        first = while_it_runs(running.process, lambda: next(staging.glob("part-*.parquet"), None))
        kill_session(running.process)
    assert not output.exists()
    version = first.stat()
    ended = kidx(*arguments, "--json")
    assert ended.code == ExitCode.OK and ended.json["rows"] == read(log_dir, columns=["offset"]).read_all().num_rows
    kept = (output / first.name).stat()
    assert (kept.st_ino, kept.st_mtime_ns) == (version.st_ino, version.st_mtime_ns)
    parts = sorted(output.iterdir())
    assert [path.name for path in parts] == [f"part-{number:05}.parquet" for number in range(_PARTITIONS)]
    offsets = [pq.read_table(path, columns=["partition", "offset"]) for path in parts]
    expected = read(log_dir, columns=["partition", "offset"]).read_all()
    assert pa.concat_tables(offsets).equals(expected) and not staging.exists()
