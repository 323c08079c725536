"""A fleet of three brokers and a bucket with five problems for the report, and an accepted one."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.records.reader import Record
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.logs import encoded
from tests.support.tiered_sites import SAMPLE

#: The report's time, Thursday, 26 November 2026, 12:00 UTC. Nothing depends on the day on which a test runs.
NOW_MS: Final = 1_795_694_400_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
BUILT_MS: Final = NOW_MS - 2 * _HOUR_MS
_BROKERS: Final = ("broker-1", "broker-2", "broker-3")
_LZ4: Final = 3
#: The topics with problems.
FUTURE, DIVERGED, DAMAGED, SMALL = "sensors", "billing", "invoices", "clicks"
#: A topic with a broken index file that somebody has accepted.
ACCEPTED: Final = "orders"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A catalog, and the places of its sources.

    Attributes:
        log_dirs: by the name of the source.
        bucket: the objects of remote segments, one of which has lost its `.txnindex`.
    """

    catalog: Path
    log_dirs: dict[str, Path]
    bucket: Path


def build_fleet(directory: Path, rng: random.Random) -> Fleet:
    """Write logs, build and damage them, and record builds and audits in a catalog."""
    log_dirs = {broker: directory / broker for broker in _BROKERS}
    for broker, log_dir in log_dirs.items():
        log_dir.mkdir(parents=True)
        for topic, partition, (logs, end) in _partitions(broker):
            place = log_dir / f"{topic}-{partition}"
            place.mkdir()
            for base_offset, log in logs:
                (place / segment_file(base_offset, LOG_SUFFIX)).write_bytes(log)
            checkpoint(log_dir, topic, partition, end)
        run_kidx("build", str(log_dir), "--in-place", "--epochs", "--snapshots")
    damage_index(log_dirs["broker-1"] / f"{DAMAGED}-0" / segment_file(600, OFFSET_INDEX_SUFFIX), rng)
    damage_index(log_dirs["broker-3"] / f"{ACCEPTED}-1" / segment_file(800, OFFSET_INDEX_SUFFIX), rng)
    catalog = directory / "catalog"
    sources = [option for name, place in log_dirs.items() for option in ("--source", f"{name}={place}")]
    at = ("--catalog", str(catalog))
    run_kidx("build", *sources, *at, "--index-dir", str(directory / "index"), "--now", str(BUILT_MS))
    audited = ("--now", str(NOW_MS - _HOUR_MS))
    for name, place in log_dirs.items():
        run_kidx("verify", "--source", f"{name}={place}", *at, "--index-dir", str(place), *audited, codes=(0, 3))
    reason = ("--reason", "the broker is replaced today", "--by", "ops", "--apply")
    run_kidx("accept", *at, "--source", "broker-3", "--topics", ACCEPTED, *reason, *audited)
    bucket = directory / STORAGE_DIRECTORY
    shutil.copytree(SAMPLE.bucket, bucket)
    next(iter(sorted(bucket.rglob(f"*{TRANSACTION_INDEX_SUFFIX}")))).unlink()
    tiered = (f"bucket={bucket}", "--tiered-metadata", str(SAMPLE.log_dir), "--level", "full")
    run_kidx("verify-tiered", *tiered, *at, *audited, codes=(0, 3))
    return Fleet(catalog, log_dirs, bucket)


def run_kidx(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    result = CliRunner().invoke(kidx, list(arguments), standalone_mode=False)
    code = ExitCode.OK if result.return_value is None else result.return_value
    assert result.exception is None and code in codes, f"{arguments}: {code}: {result.output}{result.exception!r}"
    return result.stdout


#: Logs with their base offsets, and the end offset of the last one.
_Logs = tuple[list[tuple[int, bytes]], int]


def _partitions(broker: str) -> Iterator[tuple[str, int, _Logs]]:
    number = _BROKERS.index(broker)
    for partition in range(2):
        yield "orders", partition, _logs(partition, segments=6, batches=40, records=20, value_bytes=300)
    altered = broker == "broker-2"
    yield DIVERGED, 0, _logs(7, segments=4, batches=30, records=10, value_bytes=200, altered=altered)
    if number == 0:
        yield SMALL, 0, _logs(11, segments=3, batches=2_000, records=1, value_bytes=120, codec=0)
        yield DAMAGED, 0, _logs(13, segments=3, batches=60, records=10, value_bytes=500)
    if number == 2:
        yield FUTURE, 0, _logs(17, segments=8, batches=20, records=10, value_bytes=200, future_segment=1)


def _logs(
    seed: int,
    *,
    segments: int,
    batches: int,
    records: int,
    value_bytes: int,
    codec: int = _LZ4,
    altered: bool = False,
    future_segment: int | None = None,
) -> _Logs:
    """Segments of the ten days before the report. If `altered`, one batch in the middle has another value. A batch of
    `future_segment` has a time five years ahead.
    """
    rng = random.Random(seed)
    step_ms = 10 * _DAY_MS // (segments * batches)
    offset, time_ms, logs = 0, NOW_MS - 10 * _DAY_MS - 4 * _HOUR_MS, list[tuple[int, bytes]]()
    compress: Callable[[bytes], bytes] = encoded.lz4 if codec else bytes
    for segment in range(segments):
        parts, base = [], offset
        for batch in range(batches):
            at_ms = time_ms
            if segment == future_segment and batch == batches // 2:
                at_ms = NOW_MS + 5 * 365 * _DAY_MS
            values = [some_json(rng, value_bytes) for _ in range(records)]
            if altered and segment == segments // 2 and batch == batches // 2:
                values[0] = values[0][::-1]
            inside = [
                Record(offset + number, at_ms, f"key-{offset + number}".encode(), value, ())
                for number, value in enumerate(values)
            ]
            parts.append(encoded.batch_v2(inside, codec, compress, leader_epoch=segment // 3))
            offset, time_ms = offset + records, time_ms + step_ms
        logs.append((base, b"".join(parts)))
    return logs, offset


def some_json(rng: random.Random, size: int) -> bytes:
    """Text that compresses about as much as JSON does."""
    words = [f'"{word}":{rng.randrange(10_000)}' for word in ("id", "amount", "customer", "country", "at")]
    text = ",".join(words * (size // 60 + 1)).encode()
    return b"{" + text[: size - 2] + b"}"


def checkpoint(log_dir: Path, topic: str, partition: int, end: int) -> None:
    """Write the checkpoints of a broker that stopped cleanly."""
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        path = log_dir / name
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        lines.append(f"{topic} {partition} {end}")
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def damage_index(path: Path, rng: random.Random) -> None:
    """Let an entry in the middle of an offset index point elsewhere."""
    content = bytearray(path.read_bytes())
    at = len(content) // 16 * 8 + 4
    content[at : at + 4] = (int.from_bytes(content[at : at + 4]) + rng.randrange(1_000, 2_000)).to_bytes(4)
    path.write_bytes(content)
