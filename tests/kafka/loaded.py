"""Partitions as a crash, a broken-off compaction or a mishap leaves them, and as Kafka's `LogLoader` makes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from py4j.protocol import Py4JJavaError

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts, segment_files
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from kidxlib.records.batch_headers import batches
from kidxlib.records.reader import Record
from kidxlib.recovery.partition_fold import Producers
from kidxlib.storage.opened_log import LogFile
from tests.kafka.crashed import INDEX_SUFFIXES
from tests.support.kafka.classes import Kafka
from tests.support.logs import encoded
from tests.support.logs.snapshots import Producer, producers_in


@dataclass(frozen=True, slots=True)
class Loaded:
    """A partition as Kafka has loaded it.

    Attributes:
        segments: bytes of logs by base offset.
        ends: log start offset and log end offset.
        logs: files of logs, by name.
        indexes: other files of segments, by name.
        producers: at the end of the log, as Kafka notes them when it closes it.
    """

    segments: Mapping[int, int]
    ends: tuple[int, int]
    logs: Mapping[str, bytes]
    indexes: Mapping[str, bytes]
    producers: frozenset[Producer]


def load(kafka: Kafka, directory: Path, start: int, point: int, *, clean: bool) -> Loaded | None:
    """Let Kafka load a partition; None where it fails.

    Args:
        start, point: log start offset and recovery point, as the log dir's checkpoints say.
        clean: after a clean shutdown.
    """
    try:
        with kafka.opened_log(directory, log_start_offset=start, recovery_point=point, clean_shutdown=clean) as log:
            segments = {segment.baseOffset(): segment.size() for segment in kafka.segments_of(log)}
            ends = log.logStartOffset(), log.logEndOffset()
    except Py4JJavaError:
        return None
    snapshot = directory / segment_file(ends[1], SNAPSHOT_SUFFIX)
    producers = producers_in(snapshot.read_bytes()) if snapshot.exists() else frozenset[Producer]()
    return Loaded(segments, ends, files_of(directory, (LOG_SUFFIX,)), files_of(directory, INDEX_SUFFIXES), producers)


def files_of(directory: Path, suffixes: tuple[str, ...] = ("",)) -> dict[str, bytes]:
    """The files of some kinds, or all of them, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith(suffixes)}


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


#: What may have become of a log.
_LOGS: Final[list[Callable[[bytes, random.Random], bytes]]] = [
    _flip,
    lambda data, rng: data[: rng.randrange(len(data) + 1)],
    lambda data, rng: data + rng.randbytes(rng.randrange(40)),
    lambda data, rng: data + data[: len(data) // 2],  # offsets that go back
]


def spoil(directory: Path, rng: random.Random) -> None:
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
            entry = np.array([row], layouts.ABORTED_TRANSACTION).tobytes()
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


def offsets_go_back(directory: Path) -> bool:
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
