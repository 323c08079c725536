"""The start-up simulation, compared with Kafka's own `LogLoader`."""

from __future__ import annotations

import functools
import itertools
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError

from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import HOLDS_FOR, SegmentRecovery, StartupAction, StartupSimulation
from kidxlib.cli.main import kidx
from kidxlib.format import layouts
from kidxlib.format.kafka_release import NodeRelease
from kidxlib.library.audit_directory import audit_directory
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.opened_log import LogFile
from tests.conftest import Say
from tests.docs.log_dirs import put
from tests.kafka.loaded import load, offsets_go_back, spoil
from tests.support.kafka.classes import Kafka, error_of
from tests.support.kafka.jars import OLDER, with_older_kafkas
from tests.support.logs.batches import Batch
from tests.support.logs.random_logs import write_random_log
from tests.support.logs.snapshots import Producer

#: A magic below 0, or a batch of magic 2 that is too small: Kafka may take what follows for the rest of its header.
_NOT_SIMULATED: Final = re.compile("found magic -|found [0-9]+ bytes, expected 61 or more of magic")


def _recoveries(directory: Path) -> dict[int, SegmentRecovery]:
    """What an audit knows of the logs in a directory when it comes to the start-up simulation."""
    found = {}
    for path in directory.glob("*.log"):
        base_offset, log = int(path.stem), LogFile(str(path))
        found[base_offset] = SegmentRecovery.of(log, recover(log, base_offset, RecoverOptions()), base_offset)
        log.close()
    return found


def _compare(kafka: Kafka, simulated: StartupSimulation, theirs: Path, point: int, start: int, clean: bool) -> str:
    """Let Kafka load the directory; how the two ended."""
    try:
        with kafka.opened_log(theirs, log_start_offset=start, recovery_point=point, clean_shutdown=clean) as log:
            segments = {segment.baseOffset(): segment.size() for segment in kafka.segments_of(log)}
            ends = log.logStartOffset(), log.logEndOffset()
            there = {path.name for path in theirs.iterdir()}
    except Py4JJavaError as thrown:
        assert simulated.fails, (error_of(thrown), simulated)
        return "fails"
    assert not simulated.fails, simulated
    left = {each.base_offset: each.kept_bytes for each in simulated.segments if each.action is not StartupAction.DELETE}
    assert (left or {start: 0}) == segments, simulated
    assert (simulated.log_start_offset, simulated.log_end_offset) == ends, simulated
    deleted = {each.base_offset for each in simulated.segments if each.action is StartupAction.DELETE}
    for name in simulated.removed:
        swapped_in = f"{name}.swap" in simulated.renamed
        # Of a segment that is there still; or that Kafka has marked as deleted itself, with a file of that name.
        rebuilt = any(name.startswith(f"{base_offset:020d}.") for base_offset in {*segments, *deleted})
        assert swapped_in or rebuilt or name not in there, (name, simulated)
    for name in simulated.renamed:
        assert name not in there, (name, simulated)
    return "loads"


def test_simulations(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Random logs are spoilt; the start is simulated, then Kafka loads the same directory."""
    say(_simulate_many(kafka, scratch, rng, 3_000 if exhaustive else 250))


@with_older_kafkas
@pytest.mark.parametrize("version", OLDER)
def test_simulations_of_older_brokers(version: str, scratch: Path, rng: random.Random, say: Say) -> None:
    assert version.rpartition(".")[0] in HOLDS_FOR
    with Kafka(version=version) as kafka:
        assert kafka.versions["kafka"] == version
        otherwise = version.startswith(("3.", "4.0."))
        say(f"Kafka {version}, {_simulate_many(kafka, scratch, rng, 1_000, searches_otherwise=otherwise)}")


def _simulate_many(
    kafka: Kafka, scratch: Path, rng: random.Random, count: int, *, searches_otherwise: bool = False
) -> str:
    """Compare so many simulations with a Kafka; what was tried.

    Args:
        searches_otherwise: leave out logs whose offsets go back.
    """
    ends, actions = Counter[str](), Counter[str]()
    for number in range(count):
        directory = scratch / f"test-{number}"
        write_random_log(directory, rng)
        spoil(directory, rng)
        clean = rng.random() < 0.4
        point, start = rng.choice([0, 0, rng.randrange(60)]), rng.choice([0, 0, 0, rng.randrange(60)])
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        simulate = functools.partial(
            simulate_startup,
            directory,
            RecoverOptions(),
            clean_shutdown=clean,
            recovery_point=point,
            log_start_offset=start,
            kafka=NodeRelease(kafka.release),
        )
        simulated, again = simulate(), simulate(recoveries=_recoveries(directory))
        for with_all, without in zip(again.segments, simulated.segments, strict=True):
            if without.lost_records is None:  # as it did not have to be read
                with_all.lost_records = None
            if without.lost_batches is None:
                with_all.lost_batches = None
        assert again == simulated, "what comes of logs that were read before is the same"
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before  # nothing was changed
        actions.update(segment.action.value for segment in simulated.segments)
        if any(segment.action is StartupAction.SPLIT for segment in simulated.segments):
            ends["split"] += 1
        elif any(
            _NOT_SIMULATED.search(why)
            for why in (*(each.detail or "" for each in simulated.segments), *simulated.failures)
        ):
            ends["malformed, and perhaps read over"] += 1
        elif searches_otherwise and offsets_go_back(directory):
            ends["offsets go back"] += 1
        else:
            ends[_compare(kafka, simulated, directory, point, start, clean)] += 1
        shutil.rmtree(directory, ignore_errors=True)  # Kafka may still be writing a checkpoint
    return f"as Kafka's: {dict(ends)}, segments: {dict(actions)}"


def _snapshots(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.snapshot"))


def _keep_snapshots(directory: Path, *kept: Path) -> None:
    for path in _snapshots(directory):
        if path not in kept:
            path.unlink()


def _lose_an_index_too(directory: Path) -> None:
    _keep_snapshots(directory)
    (directory / f"{4:020d}.index").unlink()


_END: Final = 9
#: What becomes of producer snapshots at 4, 8 and the log's end, and whether a broker that stopped cleanly then forgets.
_LOST_SNAPSHOTS: Final[Mapping[str, tuple[Callable[[Path], object], bool]]] = {
    "none": (lambda directory: None, False),
    "the last": (lambda directory: _keep_snapshots(directory, *_snapshots(directory)[:-1]), False),
    "all but the first": (lambda directory: _keep_snapshots(directory, _snapshots(directory)[0]), False),
    "all": (_keep_snapshots, True),
    "all are damaged": (lambda directory: [path.write_bytes(b"?") for path in _snapshots(directory)], False),
    "all but one that belongs to no segment": (
        lambda directory: _keep_snapshots(
            directory, _snapshots(directory)[-1].rename(directory / f"{6:020d}.snapshot")
        ),
        True,
    ),
    "all, and an index": (_lose_an_index_too, False),
}


def _producers(kafka: Kafka, directory: Path, *, clean: bool) -> frozenset[Producer]:
    """What Kafka knows of producers once it has loaded a partition."""
    loaded = load(kafka, directory, 0, _END, clean=clean)
    assert loaded is not None and loaded.ends == (0, _END)
    return loaded.producers


def test_producers_are_forgotten_where_no_snapshot_is_left(kafka: Kafka, scratch: Path) -> None:
    """After a clean stop, and only if none is left. One that kidx makes of the log mends that."""
    whole, now = scratch / "whole" / "orders-0", time.time_ns() // 10**6
    other = Batch(timestamp=now, base_timestamp=now)
    by_9 = replace(other, producer_id=9, producer_epoch=0, base_sequence=0)
    in_transaction = replace(by_9, producer_id=7, attributes=layouts.ATTRIBUTE_TRANSACTIONAL)
    put(whole, 0, [by_9, other, other, other])
    put(whole, 4, [in_transaction, other, other, other])
    put(whole, 8, [replace(by_9, base_sequence=1)])
    known = _producers(kafka, whole, clean=False)
    assert {each.producer_id: each.current_transaction_first_offset for each in known} == {7: 4, 9: -1}
    for (case, (lose, forgets)), clean in itertools.product(_LOST_SNAPSHOTS.items(), (True, False)):
        log_dir = scratch / f"{case}, {clean}"
        directory = log_dir / "orders-0"
        shutil.copytree(whole, directory)
        lose(directory)
        if clean:
            (log_dir / CLEAN_SHUTDOWN_FILE).touch()
        [audited] = audit_directory(log_dir).partitions
        is_forgotten = forgets and clean
        assert [each[:20] for each in audited.simulation.failures] == ["no producer snapshot"] * is_forgotten, case
        if is_forgotten:
            made = shutil.copytree(log_dir, scratch / f"{case}, made")
            assert CliRunner().invoke(kidx, ["build", str(made), "--in-place", "--snapshots"]).exit_code == 0
            assert _producers(kafka, made / "orders-0", clean=True) == known
        assert _producers(kafka, directory, clean=clean) == (frozenset() if is_forgotten else known), case
