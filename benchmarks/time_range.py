"""One minute of a day is asked for in a partition of many large segments, with a catalog of them: all of it, and what
was committed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

import kidxlib
from benchmarks.figures import Target, beside, record
from kidxlib.errors import KidxError
from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.reading.request import ISOLATIONS, READ_COMMITTED
from kidxlib.records.reader import Record
from kidxlib.terminal.console import note
from tests.support.logs import encoded
from tests.support.logs.batches import Batch, control

_KIDX: Final = Path(sys.executable).with_name("kidx")
_DAY_MS: Final = 24 * 60 * 60 * 1000
_MINUTE_MS: Final = 60 * 1000
_MIDNIGHT_MS: Final = 1_790_000_000_000 // _DAY_MS * _DAY_MS
_VALUE: Final = bytes(512 * 1024)
#: A transaction has so many batches of one record; one in so many is aborted.
_PER_TRANSACTION: Final = 20
_PER_ABORT: Final = 10
_PRODUCER_ID: Final = 1
_TRANSACTIONAL: Final[dict[str, Any]] = {
    "attributes": layouts.ATTRIBUTE_TRANSACTIONAL,
    "producer_id": _PRODUCER_ID,
    "producer_epoch": 0,
}
#: How often as much may be read as lies in the minute, and how many bytes more.
_TIMES: Final = 2.0
_MORE_BYTES: Final = 1_000_000


@click.command(name="time-range")
@click.option("--segments", type=click.IntRange(2), default=100, show_default=True)
@click.option("--megabytes", type=click.IntRange(8), default=1000, show_default=True, help="Of each segment.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
def time_range(segments: int, megabytes: int, directory: Path, rounds: int) -> None:
    """Read one minute of a day of messages in the order of their timestamps, all of them in transactions. Values are
    holes, and take no room.
    """
    place = directory.resolve() / "time-range"
    shutil.rmtree(place, ignore_errors=True)
    batches = megabytes * 1_000_000 // len(_VALUE)
    note(f"writing {segments} segments of {batches} batches …")
    batch_bytes = _write_partition(place / "logs" / "bench-0", segments, batches)
    note("building …")
    options = ["--index-dir", str(place / "indexes"), "--catalog", str(place / "catalog")]
    subprocess.run([_KIDX, "build", str(place / "logs"), *options], check=True, stdout=subprocess.DEVNULL)
    per_minute = segments * batches * _MINUTE_MS / _DAY_MS
    targets = [Target(name="in one minute", unit="MB", values=[per_minute * batch_bytes / 1e6])]
    for isolation in ISOLATIONS:
        seconds, factors = [], []
        for number in range(rounds + 1):
            start_ms = _MIDNIGHT_MS + (number + 1) * _DAY_MS // (rounds + 3)
            start, asked_before = time.perf_counter(), _bytes_asked()
            records = _records(place, (start_ms, start_ms + _MINUTE_MS), isolation)
            aborted = _PER_TRANSACTION if isolation == READ_COMMITTED else 0  # at most: of one transaction
            if not per_minute - aborted - 1 <= records <= per_minute + 1:
                raise KidxError(f"{records} records in a minute, expected {per_minute:.1f}")
            seconds.append(time.perf_counter() - start)
            factors.append((_bytes_asked() - asked_before - _MORE_BYTES) / (per_minute * batch_bytes))
        targets += [  # the first round loads what was compiled
            Target(
                name=f"{isolation}: bytes read less 1 MB, to those in the minute",
                unit="×",
                values=factors[1:],
                at_most=_TIMES,
            ),
            Target(name=f"{isolation}: one minute", unit="s", values=seconds[1:]),
        ]
    tables = [beside("one minute", targets[1:])]
    record(directory, "time-range", targets, tables, segments=segments, megabytes=megabytes)
    shutil.rmtree(place)


def _write_partition(directory: Path, segments: int, batches: int) -> int:
    """Write batches of one record each, over a day, and return the bytes of a batch."""
    directory.mkdir(parents=True)
    whole, offset = b"", 0
    for segment in range(segments):
        with (directory / segment_file(offset, LOG_SUFFIX)).open("wb") as log:
            for number in range(segment * batches, (segment + 1) * batches):
                timestamp = _MIDNIGHT_MS + number * _DAY_MS // (segments * batches)
                whole = encoded.batch_v2([Record(offset, timestamp, None, _VALUE)], **_TRANSACTIONAL)
                end = log.tell() + len(whole)
                log.write(whole.rstrip(b"\0"))
                log.seek(end)
                offset += 1
                if (number + 1) % _PER_TRANSACTION == 0:
                    aborts = (number + 1) // _PER_TRANSACTION % _PER_ABORT == 0
                    log.write(_marker(offset, timestamp, aborts=aborts))
                    offset += 1
            log.truncate()
    return len(whole)


def _marker(offset: int, timestamp: int, *, aborts: bool) -> bytes:
    """What ends a transaction."""
    control_type = layouts.CONTROL_TYPE_ABORT if aborts else layouts.CONTROL_TYPE_COMMIT
    fields = {**control(control_type.to_bytes(4)), "producer_id": _PRODUCER_ID}
    return Batch(**fields, timestamp=timestamp, base_timestamp=timestamp).encode(offset)


def _records(place: Path, times: tuple[int, int], isolation: str) -> int:
    reader = kidxlib.read(
        place / "logs",
        times=times,
        isolation=isolation,
        index_dir=place / "indexes",
        catalog=place / "catalog",
        columns=["offset", "value"],
    )
    return sum(rows.num_rows for rows in reader)


def _bytes_asked() -> int:
    """Bytes that this process has asked of files so far (proc_pid_io(5))."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.removeprefix("rchar: ") for line in lines if line.startswith("rchar: ")))
