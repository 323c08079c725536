"""What killed runs have staged where only Spark looks is swept by the next one."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.common.spark.engine import spark_engine
from jobs.common.spark.job_session import JobSession
from tests.support.spark.jobs import use_pips_spark


def test_what_is_old_at_a_url_is_swept(tmp_path: Path) -> None:
    use_pips_spark()
    for name in ("old", "young"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.parquet").touch()
    os.utime(tmp_path / "old", (1000, 1000))
    with JobSession("test", None) as session, spark_engine(session, tmp_path.as_uri(), "run") as engine:
        engine.sweep(2_000_000)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]
