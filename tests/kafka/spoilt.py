"""Directories of partitions after a crash, a broken-off compaction, or a mishap, at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts, segment_files
from kidxlib.records.batch_headers import batches
from kidxlib.records.reader import Record
from kidxlib.recovery.partition_fold import Producers
from kidxlib.storage.opened_log import LogFile
from tests.support.logs import encoded


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
