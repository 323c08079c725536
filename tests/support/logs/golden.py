"""Segments whose indexes Kafka itself has written; tests/data/MANIFEST.md says how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from kidxlib.recovery.options import RecoverOptions

_TESTS: Final = Path(__file__).parents[2]
DATA: Final = _TESTS / "data"
SAMPLES: Final = _TESTS.parent / "samples" / "kafka-logs"

#: The directories whose `index.interval.bytes` is not Kafka's default.
_INTERVAL_BYTES: Final = {"small-interval-0": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSegment:
    """A segment's log, and the results of Kafka's recovery.

    Attributes:
        transaction_index: None: Kafka wrote none.
        snapshot: the producers' state at the base offset; None: Kafka took no snapshot.
        leader_epoch_checkpoint: the whole partition's.
    """

    name: str
    log: Path
    base_offset: int
    options: RecoverOptions
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    snapshot: bytes | None
    leader_epoch_checkpoint: bytes
    truncated_bytes: int

    @property
    def indexes(self) -> dict[str, bytes]:
        """The index files that Kafka wrote, by name."""
        contents = {OFFSET_INDEX_SUFFIX: self.offset_index, TIME_INDEX_SUFFIX: self.time_index}
        if self.transaction_index is not None:
            contents[TRANSACTION_INDEX_SUFFIX] = self.transaction_index
        return {segment_file(self.base_offset, suffix): content for suffix, content in contents.items()}

    def write(self, directory: Path, log: bytes) -> None:
        """Write a log, and beside it the index files and the snapshot."""
        snapshot = {} if self.snapshot is None else {segment_file(self.base_offset, SNAPSHOT_SUFFIX): self.snapshot}
        for name, content in {self.log.name: log, **self.indexes, **snapshot}.items():
            (directory / name).write_bytes(content)


def committed() -> list[GoldenSegment]:
    """The segments in the repository: in tests/data, and in the sample log dir with expected files in tests/data."""
    return _segments("data", DATA / "logs", DATA / "expected") + _segments("samples", SAMPLES, DATA / "expected")


def found_below(directory: Path) -> list[GoldenSegment]:
    """The segments of a larger tree: broker/, synthetic/ and damaged/ have partitions, and expected/ has the results of
    Kafka's recovery.
    """
    parts = ("broker", "synthetic", "damaged")
    return [segment for part in parts for segment in _segments(part, directory / part, directory / "expected")]


def _segments(label: str, logs: Path, expected: Path) -> list[GoldenSegment]:
    return [
        segment
        for directory in sorted(logs.iterdir())
        for segment in _partition(
            f"{label}/{directory.name}", sorted(directory.glob(f"*{LOG_SUFFIX}")), expected / directory.name
        )
    ]


def _partition(name: str, logs: Iterable[Path], expected: Path) -> list[GoldenSegment]:
    rows = [line.split("\t") for line in (expected / "recover.tsv").read_text().splitlines() if line[0] != "#"]
    truncated_bytes = {int(base_offset): int(cut) for base_offset, _bytes, cut, error in rows if not error}
    interval_bytes = _INTERVAL_BYTES.get(expected.name)
    options = RecoverOptions() if interval_bytes is None else RecoverOptions(interval_bytes=interval_bytes)
    segments = []
    for log in logs:
        base_offset = parse_segment_log(log.name)
        assert base_offset is not None, log
        segments.append(
            GoldenSegment(
                name=f"{name}/{base_offset}",
                log=log,
                base_offset=base_offset,
                options=options,
                offset_index=(expected / segment_file(base_offset, OFFSET_INDEX_SUFFIX)).read_bytes(),
                time_index=(expected / segment_file(base_offset, TIME_INDEX_SUFFIX)).read_bytes(),
                transaction_index=_content(expected / segment_file(base_offset, TRANSACTION_INDEX_SUFFIX)),
                snapshot=_content(expected / segment_file(base_offset, SNAPSHOT_SUFFIX)),
                leader_epoch_checkpoint=(expected / LEADER_EPOCH_CHECKPOINT).read_bytes(),
                truncated_bytes=truncated_bytes[base_offset],
            )
        )
    return segments


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
