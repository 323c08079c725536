"""What a job works with: no JVM where there is nothing to read, few queries where there is, and who commits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from tests.support.logs import golden
from tests.support.spark.jobs import PROJECT, build_alone, build_here, kidx_build_here

#: What a build by Spark may ask of it, counted as Spark's history server does.
_QUERIES_MAX: Final = 25
_STARTS: Final = b"SparkListenerSQLExecutionStart"
#: Run by itself: other tests of a process may have started a JVM.
_UNCHANGED: Final = """
import sys
from pyspark import SparkContext
from tests.support.spark.jobs import build_alone
ended = build_alone(*sys.argv[1:])
assert ended.code == 0, ended
print(ended.out)
assert SparkContext._gateway is None, "a JVM was started"
"""


def _places(directory: Path) -> tuple[str | Path, ...]:
    return ("--source", golden.SAMPLES, "--index-dir", directory / "index", "--catalog", directory / "catalog")


def test_a_build_with_nothing_to_read_starts_no_jvm(tmp_path: Path) -> None:
    assert kidx_build_here(*_places(tmp_path)).code == 0
    command = [sys.executable, "-c", _UNCHANGED, *map(str, _places(tmp_path)), "--json"]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["unchanged"] == 12


def _settings(directory: Path, text: str) -> tuple[str, Path]:
    file = directory / "settings.toml"
    file.write_text(f"[spark]\n{text}\n")
    return "--settings", file


def _queries(log_dir: Path) -> int:
    """SQL executions in Spark's event logs."""
    files = [path for path in log_dir.rglob("*.zstd") if not path.name.startswith(".")]
    return sum(_decompressed(path).count(_STARTS) for path in files)


def _decompressed(path: Path) -> bytes:
    with pa.OSFile(str(path), "rb") as file, pa.CompressedInputStream(file, "zstd") as stream:
        return bytes(stream.read())


def test_a_new_catalog_takes_few_queries(tmp_path: Path) -> None:
    log_dir = tmp_path / "event logs"
    settings = _settings(tmp_path, f'event_log_dir = "{log_dir}"')
    assert build_alone(*_places(tmp_path), *settings).code == 0
    assert 0 < _queries(log_dir) <= _QUERIES_MAX


def test_delta_rs_commits_to_a_directory(tmp_path: Path) -> None:
    """Delta's history names who did. Spark's commits in a metastore: tests/jobs/build/test_engines.py."""
    assert build_here(*_places(tmp_path)).code == 0
    history = DeltaTable(tmp_path / "catalog" / "segments").history()
    written = [commit for commit in history if commit["operation"] != "CREATE TABLE"]
    assert written and {str(commit["engineInfo"]).startswith("delta-rs") for commit in written} == {True}, history
