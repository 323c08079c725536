"""Log dirs with what a catalog should tell apart, and what is in them: found by listing, and by the plain reference."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

from kidxlib.format.layouts import ATTRIBUTE_CODEC, CODECS
from kidxlib.recovery.options import RecoverOptions
from tests.model.recover import Batch as FoundBatch
from tests.model.recover import Recovered, recover_reference
from tests.support.logs.batches import Batch, encode
from tests.support.logs.golden import DATA, SAMPLES

#: Milliseconds since the epoch: the last one that a SQL timestamp shows, and the first that it does not.
YEAR_9999_END: Final = 253_402_300_799_999
YEAR_10000: Final = YEAR_9999_END + 1
LONG_MAX: Final = 2**63 - 1

#: Segments of `clock-0` by base offset: what their one batch gives as its largest timestamp.
CLOCK: Final = {
    0: 1_790_000_000_000,
    10: LONG_MAX,
    20: -1,
    30: -5,
    40: YEAR_10000,
    50: YEAR_9999_END,
    60: 0,
    70: 1_790_000_000_001,
}
#: Segments of `payments-0`, a topic of `samples/tiered`, by base offset: the first is copied, the last is active.
BEHIND: Final = (0, 900_000, 900_001, 900_002)


@dataclass(frozen=True)
class Found:
    """One segment in a log dir."""

    source: str
    topic: str
    partition: int
    base_offset: int
    path: Path
    active: bool

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.source, self.topic, self.partition, self.base_offset

    @property
    def readable(self) -> bool:
        return self.path.is_file()

    @cached_property
    def log_bytes(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def log_mtime_ns(self) -> int:
        return self.path.stat().st_mtime_ns

    @cached_property
    def recovered(self) -> Recovered:
        return recover_reference(self.path.read_bytes() if self.readable else b"", self.base_offset, RecoverOptions())

    @property
    def batches(self) -> list[FoundBatch]:
        """The valid ones."""
        return self.recovered.valid

    @property
    def next_offset(self) -> int | None:
        if not self.readable:
            return None
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    @property
    def records(self) -> int | None:
        """None where wrappers of magic 0 or 1 hide their number."""
        wrappers = any(not batch.is_v2 and batch.header["attributes"] & ATTRIBUTE_CODEC for batch in self.batches)
        counts = [batch.header["records_count"] if batch.is_v2 else 1 for batch in self.batches]
        return sum(counts) if self.readable and not wrappers else None

    @property
    def max_timestamp_ms(self) -> int:
        return max(-1, *(batch.max_timestamp for batch in self.batches))

    @property
    def max_timestamp(self) -> datetime | None:
        """None where Kafka has none, or no calendar."""
        if not 0 <= self.max_timestamp_ms <= YEAR_9999_END:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.max_timestamp_ms)

    @property
    def magics(self) -> list[int]:
        return sorted({batch.header["magic"] for batch in self.batches})

    @property
    def codecs(self) -> set[str]:
        return {CODECS[batch.header["attributes"] & ATTRIBUTE_CODEC] for batch in self.batches}


def find(source: str, log_dir: Path) -> Iterator[Found]:
    """The segments of a log dir, in order."""
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        topic, _, partition = directory.name.rpartition("-")
        logs = sorted(directory.glob("*.log"))
        for path in logs:
            yield Found(source, topic, int(partition), int(path.stem), path, path == logs[-1])


def make_broker(log_dir: Path) -> None:
    """A broker's log dir after a crash: old formats, strange clocks, damage, half of a sample topic."""
    for name, origin in (
        ("old-0", DATA / "logs" / "v0-gzip-0"),
        ("old-1", DATA / "logs" / "v1-snappy-0"),
        ("timeless-0", DATA / "logs" / "v2-nots-0"),
    ):
        shutil.copytree(origin, log_dir / name)
    make_flipped(log_dir)
    for base_offset, timestamp in CLOCK.items():
        put(log_dir / "clock-0", base_offset, [Batch(timestamp=timestamp, leader_epoch=base_offset // 10)])
    put(log_dir / "overflow-0", 0, [Batch(), Batch(offset_step=2**31)])
    (log_dir / "broken-0" / f"{0:020d}.log").mkdir(parents=True)
    copy_segments("txn-mixed-0", (84, 5797), log_dir)
    for number, base_offset in enumerate(BEHIND):
        put(log_dir / "payments-0", base_offset, [Batch(timestamp=1_790_000_100_000 + number)])
    (log_dir / "payments-0" / "partition.metadata").write_text("version: 0\ntopic_id: gt9ucbrrQ22SMvkzd6ayDw")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nclock 0 35\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\ntxn-mixed 0 5800\n")


def make_flipped(log_dir: Path) -> None:
    """A partition of three segments; the first has a wrong byte in it."""
    shutil.copytree(DATA / "logs" / "flip-v2-codecs-0", log_dir / "flipped-0")
    put(log_dir / "flipped-0", 1_000_000, [Batch(timestamp=1), Batch(timestamp=2)])
    put(log_dir / "flipped-0", 1_000_002, [Batch(timestamp=3)])


def make_volume(log_dir: Path) -> None:
    """A volume whose broker stopped cleanly: one segment of the same sample topic, which was recreated since."""
    copy_segments("txn-mixed-0", (84,), log_dir)
    (log_dir / "txn-mixed-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')


def change_broker(log_dir: Path) -> None:
    """Retention deletes a segment, a partition goes, and the active segment of `clock-0` grows."""
    (log_dir / "txn-mixed-0" / f"{5797:020d}.log").unlink()
    shutil.rmtree(log_dir / "timeless-0")
    put(log_dir / "clock-0", 70, [Batch(timestamp=CLOCK[70]), Batch(timestamp=CLOCK[70] + 1)])


def put(directory: Path, base_offset: int, batches: Iterable[Batch]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(b"".join(encode(base_offset, batches)))


def copy_segments(partition: str, base_offsets: Iterable[int], log_dir: Path) -> None:
    (log_dir / partition).mkdir(parents=True)
    for name in ("partition.metadata", *(f"{base_offset:020d}.log" for base_offset in base_offsets)):
        shutil.copy2(SAMPLES / partition / name, log_dir / partition)
