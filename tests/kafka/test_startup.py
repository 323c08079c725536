"""The start-up simulation, compared with Kafka's own `LogLoader`."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError

from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import HOLDS_FOR, StartupAction, StartupSimulation
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.format import segment_files
from kidxlib.records.header_walk import batches
from kidxlib.records.record import Record
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.producers import Producers
from kidxlib.recovery.segment import recover
from kidxlib.storage.lazy_log import LogFile
from tests.conftest import Say
from tests.support.kafka.classes import OLDER, Kafka
from tests.support.kafka.results import error_of
from tests.support.logs import encoded
from tests.support.logs.random_logs import write_random_log


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


#: A magic below 0, or a batch of magic 2 that is too small: Kafka may take what follows for the rest of its header.
_NOT_SIMULATED: Final = re.compile("found magic -|found [0-9]+ bytes, expected 61 or more of magic")

#: What may have become of a log.
_LOGS: Final[list[Callable[[bytes, random.Random], bytes]]] = [
    _flip,
    lambda data, rng: data[: rng.randrange(len(data) + 1)],
    lambda data, rng: data + rng.randbytes(rng.randrange(40)),
    lambda data, rng: data + data[: len(data) // 2],  # offsets that go back
]


def _spoil(directory: Path, rng: random.Random) -> None:
    """What a crash, a cleaner, or a person may have left in a partition's directory."""
    logs = sorted(directory.glob("*.log"))
    ways = [_spoil_log, _spoil_log, _spoil_log, _spoil_indexes, _spoil_indexes, _leave_files, _swap_in]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        rng.choice(ways)(rng.choice(logs), rng)


def _spoil_log(log: Path, rng: random.Random) -> None:
    log.write_bytes(rng.choice(_LOGS)(log.read_bytes(), rng))


def _spoil_indexes(log: Path, rng: random.Random) -> None:
    """They are missing, padded, or have entries of another log: below the base offset, or of a version to come."""
    index = log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX)
    match rng.randrange(4):
        case 0:
            index.unlink(missing_ok=True)
        case 1:
            log.with_suffix(segment_files.TIME_INDEX_SUFFIX).unlink(missing_ok=True)
        case 2:
            row = (rng.choice([0, 0, 300]), 1, 0, rng.choice([-5, 10**6]), 0)
            entry = np.array([row], formats.ABORTED_TRANSACTION).tobytes()
            log.with_suffix(segment_files.TRANSACTION_INDEX_SUFFIX).write_bytes(entry)
        case _ if index.exists():
            index.write_bytes(index.read_bytes() + bytes(8 * rng.randint(1, 3)))


def _leave_files(log: Path, rng: random.Random) -> None:
    """Indexes without a log, files that are to be deleted or not yet complete, snapshots that are good and bad."""
    offset = rng.randrange(100)
    suffix = rng.choice([".index", ".timeindex", ".txnindex", ".log.deleted", ".index.cleaned", ".snapshot"])
    content = rng.choice([b"", rng.randbytes(8)])
    if suffix == ".snapshot" and rng.random() < 0.7:
        content = Producers().snapshot()
    log.with_name(segment_files.segment_file(offset, suffix)).write_bytes(content)


def _swap_in(log: Path, rng: random.Random) -> None:
    """A compacted segment is about to take the place of this one, and perhaps of the next."""
    directory, base_offset = log.parent, segment_files.parse_segment_log(log.name) or 0
    offsets = sorted(rng.sample(range(base_offset, base_offset + 30), rng.randint(1, 3)))
    data = b"".join(encoded.batch_v2([Record(offset, 100 + offset, b"k", b"v")]) for offset in offsets)
    if rng.random() < 0.3:
        data = rng.choice(_LOGS)(data, rng)
    for suffix, content in ((".log", data), (".index", b""), (".timeindex", b"")):
        if suffix == ".log" or rng.random() < 0.8:
            (directory / segment_files.segment_file(base_offset, f"{suffix}.swap")).write_bytes(content)
    if rng.random() < 0.2:
        (directory / segment_files.segment_file(base_offset + rng.randrange(2), ".log.cleaned")).touch()


def _recoveries(directory: Path) -> dict[int, Recovery]:
    """What an audit knows of the logs in a directory when it comes to the start-up simulation."""
    found = {}
    for path in directory.glob("*.log"):
        base_offset, log = int(path.stem), LogFile(str(path))
        found[base_offset] = Recovery.of(log, recover(log, base_offset, RecoverOptions()), base_offset)
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
    """Goal: for each segment what becomes of it, and where the log starts and ends, as Kafka then does it.

    Method: random logs are spoilt; the start is simulated, then Kafka loads the same directory.
    """
    say(_simulate_many(kafka, scratch, rng, 3_000 if exhaustive else 250))


@pytest.mark.parametrize("version", OLDER)
def test_simulations_of_older_brokers(
    version: str, scratch: Path, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """The same, with the same assertions, for each older Kafka for which the simulation is said to be valid."""
    if not exhaustive:
        pytest.skip("with --exhaustive: its jars are fetched for this alone")
    assert version.rpartition(".")[0] in HOLDS_FOR
    with Kafka(older=version) as kafka:
        assert kafka.versions["kafka"] == version
        otherwise = version.startswith(("3.", "4.0."))
        say(f"Kafka {version}, {_simulate_many(kafka, scratch, rng, 1_000, searches_otherwise=otherwise)}")


def _offsets_go_back(directory: Path) -> bool:
    """Whether a batch of a log does not come after the one before it: 3.9 and 4.0 search such logs in another way."""
    for path in [*directory.glob("*.log"), *directory.glob("*.log.swap")]:
        log, last = LogFile(str(path)), -1
        try:
            for batch in batches(log):
                if batch.last_offset <= last:
                    return True
                last = batch.last_offset
        except MalformedRecordsError:
            pass
        finally:
            log.close()
    return False


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
        _spoil(directory, rng)
        clean = rng.random() < 0.4
        point, start = rng.choice([0, 0, rng.randrange(60)]), rng.choice([0, 0, 0, rng.randrange(60)])
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        simulated = simulate_startup(
            directory, RecoverOptions(), clean_shutdown=clean, recovery_point=point, log_start_offset=start
        )
        again = simulate_startup(
            directory,
            RecoverOptions(),
            clean_shutdown=clean,
            recovery_point=point,
            log_start_offset=start,
            recoveries=_recoveries(directory),
        )
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
        elif searches_otherwise and _offsets_go_back(directory):
            ends["offsets go back"] += 1
        else:
            ends[_compare(kafka, simulated, directory, point, start, clean)] += 1
        shutil.rmtree(directory, ignore_errors=True)  # Kafka may still be writing a checkpoint
    return f"as Kafka's: {dict(ends)}, segments: {dict(actions)}"
