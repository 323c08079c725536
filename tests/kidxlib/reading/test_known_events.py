"""What was committed is the same by a catalog as by a scan of all logs, whatever has become of these since."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import DamagedLogError
from kidxlib.format.segment_files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.reading.plan import plan_reads
from kidxlib.reading.request import read_request
from kidxlib.reading.transactions import LogToScan, ScannedLog, scan_log
from kidxlib.run.catalog_tables import existing_tables
from kidxlib.text.counted import counted
from tests.conftest import one_in
from tests.support.logs.transactions import Written, random_transactions
from tests.support.spark.jobs import kidx_build_here

#: Of few examples each asks one of few partitions.
_PARTITIONS: Final = min(60, one_in(6).max_examples)
_OFFSETS: Final = st.none() | st.integers(0, 70)


def _build(log_dir: Path, catalog: Path) -> None:
    ended = kidx_build_here(log_dir, "--in-place", "--catalog", catalog)
    assert ended.code == 0, ended.err


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{LOG_SUFFIX}"))


def _delete_first(directory: Path, rng: random.Random) -> None:
    """Of some segments all files go, as where retention deletes them."""
    logs = _logs(directory)
    for log in logs[: rng.randrange(len(logs))]:
        for file in directory.glob(f"{log.stem}.*"):
            file.unlink()


def _damage(directory: Path, rng: random.Random) -> None:
    log = rng.choice(_logs(directory))
    data = bytearray(log.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1
    log.write_bytes(data)


def _replace(directory: Path, rng: random.Random) -> None:
    log = rng.choice(_logs(directory))
    shutil.copy2(log, log.with_suffix(".new"))
    log.with_suffix(".new").rename(log)


def _change_indexes(directory: Path, rng: random.Random) -> None:
    for index in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"):
        data = bytearray(index.read_bytes())
        data[rng.randrange(len(data))] ^= 1
        index.write_bytes(data)


def _remove_indexes(directory: Path, _rng: random.Random) -> None:
    for index in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"):
        index.unlink()


_CHANGES: Final[list[Callable[[Path, random.Random], None]]] = [
    lambda _directory, _rng: None,
    _delete_first,
    _damage,
    _replace,
    _change_indexes,
    _remove_indexes,
]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log dir, and a catalog of what it was before brokers wrote on, and somebody changed files in it."""
    rng = random.Random(0)
    place = tmp_path_factory.mktemp("known-events")
    log_dir, catalog = place / "logs", place / "catalog"
    log_dir.mkdir()
    histories = [random_transactions(rng, rng.randint(5, 40)) for _ in range(_PARTITIONS)]
    starts = [{number for number in range(40) if rng.random() < 0.2} for _ in histories]
    known = [rng.choice([len(each.batches), rng.randint(1, len(each.batches))]) for each in histories]
    for number, written in enumerate(histories):
        written.write(log_dir / f"topic-{number}", starts[number], until=known[number])
    _build(log_dir, catalog)
    for number, written in enumerate(histories):
        written.write(log_dir / f"topic-{number}", starts[number], since=known[number])
        rng.choice(_CHANGES)(log_dir / f"topic-{number}", rng)
    watermarks = [f"topic {number} {rng.randint(0, each.next_offset)}" for number, each in enumerate(histories)]
    watermarks = rng.sample(watermarks, _PARTITIONS // 2)
    (log_dir / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(watermarks)), *watermarks, ""]))
    return log_dir, catalog


def _found(path: Path, **options: Any) -> list[int] | str:
    """The offsets of what was committed, or what is wrong."""
    try:
        reader = read(path, isolation="read_committed", columns=["offset"], threads=1, **options)
        found: list[Any] = reader.read_all()["offset"].to_pylist()
    except DamagedLogError as error:
        return str(error)
    return found


@given(number=st.integers(0, _PARTITIONS - 1), offsets=st.tuples(_OFFSETS, _OFFSETS), to_log_end=st.booleans())
@one_in(4)
def test_any_range_has_the_same_rows_with_a_catalog(
    number: int, offsets: tuple[int | None, int | None], to_log_end: bool, changed: tuple[Path, Path]
) -> None:
    log_dir, catalog = changed
    first, until = offsets
    if first is not None and until is not None and until < first:
        first, until = until, first
    asked: dict[str, Any] = {"offsets": (first, until), "to_log_end": to_log_end}
    path = log_dir / f"topic-{number}"
    assert _found(path, catalog=catalog, **asked) == _found(path, **asked)


# ---- what is scanned ----


@pytest.fixture
def four_segments(tmp_path: Path) -> tuple[Path, Path]:
    """A partition whose segments begin at 0, 3, 5 and 7, and its catalog: an abort over two of them, and a transaction
    that is open from 6 on.
    """
    written = Written()
    written.data(1, 2)
    written.data(2, 1)
    written.data(1, 1)  # 3
    written.marker(2, aborts=False)
    written.marker(1, aborts=True)  # 5
    written.data(3, 1)
    written.data(None, 2)  # 7
    (tmp_path / "logs").mkdir()
    written.write(tmp_path / "logs" / "topic-0", {2, 4, 6})
    assert len(_logs(tmp_path / "logs" / "topic-0")) == 4
    _build(tmp_path / "logs", tmp_path / "catalog")
    return tmp_path / "logs" / "topic-0", tmp_path / "catalog"


def _scanned(path: Path, catalog: Path, **options: Any) -> list[int]:
    """Base offsets of the segments whose logs are scanned; the plan's last note tells how many these are."""
    found: list[int] = []

    def scan(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
        found.extend(log.base_offset for log in logs)
        yield from map(scan_log, logs)

    asked: dict[str, Any] = {"offsets": None, "times": None, "index_dir": None, "to_log_end": False, **options}
    request = read_request(path, topics=re.compile(".*"), isolation="read_committed", **asked)
    plan = plan_reads(request, goes_on=False, scan=scan, catalog=existing_tables("catalog", str(catalog)))
    sizes = [(path / segment_file(base_offset, LOG_SUFFIX)).stat().st_size for base_offset in found]
    told = f"scanned for transactions: {counted(len(found), 'log')}, {sum(sizes):,} bytes"
    assert plan.notes[1:] == ((told,) if found else ())
    return found


def test_logs_that_are_known_are_not_scanned(four_segments: tuple[Path, Path]) -> None:
    """Whatever has become of transaction indexes; others are."""
    directory, catalog = four_segments
    assert _scanned(directory, catalog) == []
    _remove_indexes(directory, random.Random(0))
    assert _scanned(directory, catalog) == []
    assert _found(directory, catalog=catalog) == _found(directory) == [2]
    os.utime(directory / segment_file(3, LOG_SUFFIX))
    assert _scanned(directory, catalog) == [3]
    for file in directory.glob(f"{0:020}.*"):
        file.unlink()
    assert _scanned(directory, catalog) == [3]
    assert _found(directory, catalog=catalog) == _found(directory) == []
    shutil.copy2(directory / segment_file(5, LOG_SUFFIX), directory / segment_file(9, LOG_SUFFIX))
    assert _scanned(directory, catalog, offsets=(3, 4)) == [3]


def test_events_that_a_catalog_has_lost_do_not_mean_that_nothing_was_aborted(four_segments: tuple[Path, Path]) -> None:
    directory, catalog = four_segments
    DeltaTable(str(catalog / "producer_events")).delete("base_offset = 5")
    assert _scanned(directory, catalog) == [5]
    DeltaTable(str(catalog / "producer_events")).delete("kind = 'commit'")
    assert _scanned(directory, catalog) == [3, 5]
    shutil.rmtree(catalog / "producer_events")
    assert _scanned(directory, catalog) == [0, 3, 5]
    assert _found(directory, catalog=catalog) == _found(directory) == [2]
