"""Workers look at partitions, and again once all is written: what they find is what one process finds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.engine.local import LocalEngine, Workers
from kidxlib.engine.protocol import Engine
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import LOG_SUFFIX, parse_segment_log
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.operations.recover.forecast import Forecast, ForecastTask, forecast_partition, forecasts_of
from kidxlib.operations.recover.make_ready import rebuild_and_look
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.operations.recover.recovery_plan import RecoverLevel
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.opened_log import SMALL_BYTES, opened_log
from tests.support.logs import golden

_STOP = PartitionStop(clean_shutdown=False, recovery_point=0, log_start_offset=0, high_watermark=0)


@pytest.fixture(scope="module", params=[False, True], ids=["here", "workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """They do the work once they are started; until then the process itself does a little."""
    with Workers(2) as workers:
        workers.are_started = request.param
        yield workers


@pytest.fixture
def engine(workers: Workers, tmp_path: Path) -> Engine:
    return LocalEngine(workers, tmp_path / "staged")


@pytest.fixture
def tasks(tmp_path: Path) -> list[ForecastTask]:
    """A task for each partition of the sample, none of whose segments is flushed."""
    log_dir, scans = tmp_path / "logs", tmp_path / "scans"
    shutil.copytree(golden.SAMPLES, log_dir)
    scans.mkdir()
    found: list[ForecastTask] = []
    for directory in sorted(log_dir.iterdir()):
        topic_partition = parse_partition_directory(directory.name)
        if topic_partition is not None:
            logs = list(directory.glob(f"*{LOG_SUFFIX}"))
            task = ForecastTask(
                number=len(found),
                topic_partition=topic_partition,
                directory=directory,
                options=RecoverOptions(),
                stop=_STOP,
                everything=False,
                trusts=False,
                segments=len(logs),
                log_bytes=sum(log.stat().st_size for log in logs),
                scans=scans,
                small=tuple(offset for log in logs if (offset := parse_segment_log(log.name)) is not None),
            )
            found.append(task)
    assert len(found) > 1
    return found


def _here(task: ForecastTask) -> Forecast:
    return forecast_partition(task.topic_partition, task.directory, task.options, task.stop, LogReader())


def test_forecasts_are_those_of_one_process(tasks: list[ForecastTask], engine: Engine) -> None:
    found = forecasts_of(tasks, engine)
    assert [replace(each, kept_scans=None) for each in found] == [_here(task) for task in tasks]
    assert sum(task.segments for task in tasks) == engine.done().segments


def test_the_scan_of_each_log_is_kept(tasks: list[ForecastTask], engine: Engine) -> None:
    for each in forecasts_of(tasks, engine):
        assert each.kept_scans is not None
        for log in each.directory.glob(f"*{LOG_SUFFIX}"):
            base_offset = parse_segment_log(log.name)
            assert base_offset is not None
            assert (each.kept_scans.pass_of(base_offset) is not None) == (log.stat().st_size <= SMALL_BYTES)
            with opened_log(str(log)) as opened:
                scanned = each.kept_scans.of(base_offset, opened.version, each.options)
            assert scanned is not None
            assert scanned.facts.next_offset == each.recoveries[base_offset].next_offset


def test_nothing_is_kept_for_nobody(tasks: list[ForecastTask], engine: Engine) -> None:
    found = forecasts_of([replace(task, scans=None) for task in tasks], engine)
    assert {each.kept_scans for each in found} == {None}


def test_starts_that_are_the_same(tasks: list[ForecastTask], engine: Engine) -> None:
    """There are no indexes, so with a marker too a broker reads all logs."""
    read_bytes = rebuild_and_look([], [_here(task) for task in tasks], RecoverLevel.MARKER, engine)
    assert read_bytes == sum(task.log_bytes for task in tasks)


def test_a_start_that_differs_is_an_error(tasks: list[ForecastTask], engine: Engine) -> None:
    forecasts = [_here(task) for task in tasks]
    log = max(tasks[-1].directory.glob(f"*{LOG_SUFFIX}"))
    os.truncate(log, log.stat().st_size - 20)
    with pytest.raises(KidxError, match=f"{tasks[-1].directory}: by itself the log would end at offset"):
        rebuild_and_look([], forecasts, RecoverLevel.MARKER, engine)
