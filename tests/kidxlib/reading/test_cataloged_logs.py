"""With a catalog the same rows come as without it, and the same were committed, whatever has happened to logs and
indexes since it was written.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import DamagedLogError, UsageError
from kidxlib.format import layouts
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.library.read import count, read
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import ISOLATIONS, read_request
from kidxlib.reading.transactions import LogToScan, ScannedLog, scan_for_transactions
from kidxlib.records.reader import Record
from kidxlib.run.context import existing_catalog_tables
from kidxlib.text.words import counted
from tests.conftest import one_in
from tests.faults.trees import write_log
from tests.support.consumed import Row, rows_until_damage
from tests.support.files import flip
from tests.support.logs import encoded, golden
from tests.support.logs.golden import SAMPLES
from tests.support.logs.random_indexes import damaged
from tests.support.logs.random_logs import write_random_log
from tests.support.logs.transactions import Written, random_transactions
from tests.support.spark.jobs import kidx_build_here

#: Of few examples each asks one of few partitions.
_PARTITIONS: Final = min(40, one_in(6).max_examples)
_MS: Final = st.none() | st.integers(95, 145)
_OFFSETS: Final = st.none() | st.integers(0, 250)

#: Of few examples each asks one of few partitions.
_EVENT_PARTITIONS: Final = min(60, one_in(6).max_examples)
_EVENT_OFFSETS: Final = st.none() | st.integers(0, 70)


def _write_log(directory: Path, rng: random.Random, batches: int = 40) -> None:
    """Segments of many batches whose timestamps increase, more or less."""
    offset, disorder = 0, rng.choice([0, 0, 3, 40])
    for segment in range(3):
        data, base_offset = b"", offset
        for number in range(batches):
            start = 100 + 13 * segment + 12 * number // batches
            inside = [
                Record(offset + each, start - rng.randint(0, disorder), None, bytes(rng.randrange(900)))
                for each in range(rng.randint(1, 3))
            ]
            attributes = layouts.ATTRIBUTE_LOG_APPEND_TIME if disorder == 0 and rng.random() < 0.2 else 0
            data += encoded.batch_v2(inside, attributes=attributes)
            offset += len(inside) + rng.choice([0, 0, 2])
        write_log(directory, base_offset, data)


def _append(log: Path, rng: random.Random) -> None:
    offset = int(log.stem) + 10_000
    with log.open("ab") as file:
        file.write(encoded.batch_v2([Record(offset, rng.randrange(95, 145), None, b"")]))


def _rewrite(log: Path, rng: random.Random) -> None:
    """Another file takes its place."""
    log.with_suffix(".new").write_bytes(encoded.batch_v2([Record(int(log.stem), rng.randrange(95, 145), None, b"")]))
    log.with_suffix(".new").rename(log)


def _cut(log: Path, rng: random.Random) -> None:
    os.truncate(log, rng.randrange(log.stat().st_size + 1))


def _damage_index(suffix: str, layout: Any) -> Callable[[Path, random.Random], None]:
    def change(log: Path, rng: random.Random) -> None:
        index = log.with_suffix(suffix)
        index.write_bytes(damaged(rng, index.read_bytes(), layout))

    return change


def _remove(suffix: str) -> Callable[[Path, random.Random], None]:
    return lambda log, _rng: log.with_suffix(suffix).unlink()


_CHANGES: Final[list[Callable[[Path, random.Random], None]]] = [
    lambda _log, _rng: None,
    lambda _log, _rng: None,
    _append,
    _rewrite,
    _cut,
    _damage_index(OFFSET_INDEX_SUFFIX, layouts.OFFSET_INDEX_ENTRY),
    _damage_index(TIME_INDEX_SUFFIX, layouts.TIME_INDEX_ENTRY),
    _remove(OFFSET_INDEX_SUFFIX),
    _remove(TIME_INDEX_SUFFIX),
]


#: What `_build` is to record besides.
_FACTS: Final = ("--fill-facts", "1GB")


def _build(log_dir: Path, catalog: Path, *options: str) -> None:
    ended = kidx_build_here(log_dir, "--in-place", "--catalog", catalog, *options)
    assert ended.code == 0, ended.err


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log dir, and a catalog of what it was before somebody changed files in it."""
    rng = random.Random(0)
    place = tmp_path_factory.mktemp("known")
    log_dir, catalog = place / "logs", place / "catalog"
    log_dir.mkdir()
    for number in range(_PARTITIONS):
        directory = log_dir / f"topic-{number}"
        if number % 3:
            _write_log(directory, rng, rng.choice([5, 40]))
        else:
            write_random_log(directory, rng)
    _build(log_dir, catalog, *_FACTS, "--interval-bytes", "500")
    for number in range(_PARTITIONS):
        for log in sorted((log_dir / f"topic-{number}").glob(f"*{LOG_SUFFIX}")):
            rng.choice(_CHANGES)(log, rng)
    return log_dir, catalog


def _found(path: Path, **options: Any) -> tuple[list[Row], str | None]:
    """The rows that come, and what is said to be wrong then."""
    try:
        reader = read(path, threads=1, **options)
    except DamagedLogError as error:
        return [], str(error)  # which transactions were aborted cannot be told
    return rows_until_damage(reader, reader.schema)


@given(
    number=st.integers(0, _PARTITIONS - 1),
    times=st.tuples(_MS, _MS),
    offsets=st.none() | st.tuples(_OFFSETS, _OFFSETS),
    committed=st.booleans(),
)
@one_in(4)
def test_any_range_has_the_same_rows_with_a_catalog(
    number: int,
    times: tuple[int | None, int | None],
    offsets: tuple[int | None, int | None] | None,
    committed: bool,
    changed: tuple[Path, Path],
) -> None:
    """Damage in what is passed over is not met; all that is read is as it is without the catalog."""
    log_dir, catalog = changed
    asked: dict[str, Any] = {"times": _ordered(times), "offsets": None if offsets is None else _ordered(offsets)}
    asked["isolation"] = "read_committed" if committed else "read_uncommitted"
    path = log_dir / f"topic-{number}"
    rows, error = _found(path, **asked)
    found, error_with = _found(path, catalog=catalog, **asked)
    assert found[: len(rows)] == rows
    if error is None:
        assert (found, error_with) == (rows, None)
        assert count(path, catalog=catalog, threads=1, **asked) == len(rows)


def _ordered(limits: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    first, second = limits
    return (second, first) if first is not None and second is not None and second < first else limits


def _plan(path: Path, catalog: Path | None, **options: Any) -> ReadPlan:
    request = read_request(path, to_log_end=False, **options)
    tables = None if catalog is None else existing_catalog_tables("--catalog", str(catalog))
    return plan_reads(request, goes_on=False, catalog=tables)


@pytest.fixture
def ordered(tmp_path: Path) -> tuple[Path, Path]:
    """Three segments with timestamps in order, 100 to 138, and a catalog of them."""
    directory = tmp_path / "logs" / "topic-0"
    for segment in range(3):
        batches = [
            encoded.batch_v2([Record(1_000 * segment + each, 100 + 13 * segment + each // 77, None, bytes(900))])
            for each in range(1_000)
        ]
        write_log(directory, 1_000 * segment, b"".join(batches))
    _build(tmp_path / "logs", tmp_path / "catalog", *_FACTS)
    return directory, tmp_path / "catalog"


def test_times_are_found_without_reading_the_rest(ordered: tuple[Path, Path]) -> None:
    directory, catalog = ordered
    plan = _plan(directory, catalog, times=(118, 120))
    wanted = 2 * 77 * 970
    (only,) = plan.reads
    assert only.base_offset == 1_000 and only.position > 0 and only.end_position < only.version.size
    assert wanted <= plan.log_bytes <= 2 * wanted
    assert len(_plan(directory, None, times=(118, 120)).reads) == 3
    assert _plan(directory, catalog, times=(200, None)).reads == ()
    assert len(_found(directory, catalog=catalog, times=(118, 120))[0]) == 2 * 77


def test_an_early_record_at_the_end_is_there(ordered: tuple[Path, Path]) -> None:
    directory, catalog = ordered
    with (directory / segment_file(2_000, LOG_SUFFIX)).open("ab") as log:
        log.write(encoded.batch_v2([Record(9_000, 101, None, b"early")]))
    shutil.rmtree(catalog)
    _build(directory.parent, catalog, *_FACTS)
    rows, error = _found(directory, catalog=catalog, times=(101, 102))
    assert (len(rows), rows[-1]["offset"], error) == (78, 9_000, None)


def test_records_are_counted_by_the_catalog_alone(ordered: tuple[Path, Path]) -> None:
    """Where all of a log is asked for, and it is the one that was scanned."""
    directory, catalog = ordered
    reads = _plan(directory, catalog).reads
    assert [each.records for each in reads] == [1_000, 1_000, 1_000]
    assert count(directory, catalog=catalog) == 3_000
    assert count(directory, catalog=catalog, offsets=(500, 2_500)) == 2_000
    assert count(directory, catalog=catalog, times=(105, 130)) == count(directory, times=(105, 130)) < 3_000
    os.utime(directory / segment_file(1_000, LOG_SUFFIX))
    assert [each.records for each in _plan(directory, catalog).reads] == [1_000, None, 1_000]


def test_of_transactions_markers_and_what_was_aborted_do_not_count(tmp_path: Path) -> None:
    """Also where no `.txnindex` is there any more."""
    shutil.copytree(SAMPLES, tmp_path / "logs")
    _build(tmp_path / "logs", tmp_path / "catalog", *_FACTS)
    directory = tmp_path / "logs" / "txn-mixed-0"
    for index in directory.glob("*.txnindex"):
        index.unlink()
    for isolation in ("read_uncommitted", "read_committed"):
        options: dict[str, Any] = {"isolation": isolation, "catalog": tmp_path / "catalog"}
        rows, error = _found(directory, **options)
        assert (rows, error) == (_found(directory, isolation=isolation)[0], None)
        assert count(directory, **options) == len(rows)


def test_of_damaged_logs_the_same_is_read_and_told(tmp_path: Path, exhaustive: bool) -> None:
    """Logs as somebody has damaged them, in any format; the last quarter of what is there, and all."""
    uncommitted, committed = ISOLATIONS
    logs = {segment.log for segment in golden.committed() if not segment.log.is_relative_to(SAMPLES)}
    for log in logs:
        directory = tmp_path / "logs" / log.parent.name
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy2(log, directory)
    assert kidx_build_here(tmp_path / "logs", "--in-place", "--catalog", tmp_path / "catalog").code == 3
    told = 0
    for directory in sorted((tmp_path / "logs").glob("*-*")):
        rows, error = _found(directory)
        times = sorted(row["timestamp"] for row in rows)
        late = (times[3 * len(times) // 4], None) if rows else None
        asked = [(late, committed), *([(None, committed), (late, uncommitted)] if exhaustive else [])]
        assert _found(directory, catalog=tmp_path / "catalog") == (rows, error), directory.name
        for limits, isolation in asked:
            options: dict[str, Any] = {"times": limits, "isolation": isolation}
            expected = _found(directory, **options)
            assert _found(directory, catalog=tmp_path / "catalog", **options) == expected, directory.name
        told += error is not None
    assert told > 5


def test_a_log_that_ends_below_its_high_watermark_is_damaged(ordered: tuple[Path, Path]) -> None:
    directory, catalog = ordered
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\ntopic 0 3500\n")
    for times in (None, (100, 101)):
        with pytest.raises(DamagedLogError, match="expected records up to the high watermark 3500"):
            read(directory, catalog=catalog, times=times).read_all()


def test_a_catalog_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"catalog {tmp_path}: no catalog there"):
        read(SAMPLES, catalog=tmp_path)


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
    size = log.stat().st_size
    flip(log, *([rng.randrange(size)] if size else []))  # an empty one is written anew, as others are


def _replace(directory: Path, rng: random.Random) -> None:
    log = rng.choice(_logs(directory))
    shutil.copy2(log, log.with_suffix(".new"))
    log.with_suffix(".new").rename(log)


def _change_indexes(directory: Path, rng: random.Random) -> None:
    for index in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"):
        flip(index, rng.randrange(index.stat().st_size))


def _remove_indexes(directory: Path, _rng: random.Random) -> None:
    for index in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"):
        index.unlink()


_EVENT_CHANGES: Final[list[Callable[[Path, random.Random], None]]] = [
    lambda _directory, _rng: None,
    _delete_first,
    _damage,
    _replace,
    _change_indexes,
    _remove_indexes,
]


@pytest.fixture(scope="module")
def changed_events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log dir, and a catalog of what it was before brokers wrote on, and somebody changed files in it."""
    rng = random.Random(0)
    place = tmp_path_factory.mktemp("known-events")
    log_dir, catalog = place / "logs", place / "catalog"
    log_dir.mkdir()
    histories = [random_transactions(rng, rng.randint(5, 40)) for _ in range(_EVENT_PARTITIONS)]
    starts = [{number for number in range(40) if rng.random() < 0.2} for _ in histories]
    known = [rng.choice([len(each.batches), rng.randint(1, len(each.batches))]) for each in histories]
    for number, written in enumerate(histories):
        written.write(log_dir / f"topic-{number}", starts[number], until=known[number])
    _build(log_dir, catalog)
    for number, written in enumerate(histories):
        written.write(log_dir / f"topic-{number}", starts[number], since=known[number])
        rng.choice(_EVENT_CHANGES)(log_dir / f"topic-{number}", rng)
    watermarks = [f"topic {number} {rng.randint(0, each.next_offset)}" for number, each in enumerate(histories)]
    watermarks = rng.sample(watermarks, _EVENT_PARTITIONS // 2)
    (log_dir / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(watermarks)), *watermarks, ""]))
    return log_dir, catalog


def _found_events(path: Path, **options: Any) -> list[int] | str:
    """The offsets of what was committed, or what is wrong."""
    try:
        reader = read(path, isolation="read_committed", columns=["offset"], threads=1, **options)
        found: list[Any] = reader.read_all()["offset"].to_pylist()
    except DamagedLogError as error:
        return str(error)
    return found


@given(
    number=st.integers(0, _EVENT_PARTITIONS - 1),
    offsets=st.tuples(_EVENT_OFFSETS, _EVENT_OFFSETS),
    to_log_end=st.booleans(),
)
@one_in(4)
def test_any_range_has_the_same_rows_with_known_events(
    number: int, offsets: tuple[int | None, int | None], to_log_end: bool, changed_events: tuple[Path, Path]
) -> None:
    log_dir, catalog = changed_events
    asked: dict[str, Any] = {"offsets": _ordered(offsets), "to_log_end": to_log_end}
    path = log_dir / f"topic-{number}"
    assert _found_events(path, catalog=catalog, **asked) == _found_events(path, **asked)


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
        yield from map(scan_for_transactions, logs)

    request = read_request(path, isolation="read_committed", to_log_end=False, **options)
    plan = plan_reads(request, goes_on=False, scan=scan, catalog=existing_catalog_tables("catalog", str(catalog)))
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
    assert _found_events(directory, catalog=catalog) == _found_events(directory) == [2]
    os.utime(directory / segment_file(3, LOG_SUFFIX))
    assert _scanned(directory, catalog) == [3]
    for file in directory.glob(f"{0:020}.*"):
        file.unlink()
    assert _scanned(directory, catalog) == [3]
    assert _found_events(directory, catalog=catalog) == _found_events(directory) == []
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
    assert _found_events(directory, catalog=catalog) == _found_events(directory) == [2]
