"""Logs to question, in files and in a catalog, and a check that the answers are those of `Log`, which is tested against
Kafka's `UnifiedLog`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.partitions import PartitionToSearch
from kidxlib.catalog.segments import SEGMENTS, SegmentToSearch
from kidxlib.format import checkpoint_files
from kidxlib.log.log import Log
from kidxlib.log.segment import EARLIEST_PENDING_UPLOAD, TimestampAndOffset
from kidxlib.lookup.answers import FAR, GAP, HIDDEN, MARKER
from kidxlib.lookup.searched_partitions import CatalogedPartition
from kidxlib.records import batch_headers, reader
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.opened_log import LogFile
from tests.support.logs.golden import SAMPLES, GoldenSegment, committed

SPECIAL: Final = range(EARLIEST_PENDING_UPLOAD, 0)


def golden_directory(segments: Sequence[GoldenSegment], directory: Path) -> None:
    """Make the directory of golden segments after a broker has recovered them, with their modification times."""
    directory.mkdir()
    for segment in segments:
        data = segment.log.read_bytes()
        segment.write(directory, data[: len(data) - segment.truncated_bytes])
        mtime_ns = segment.log.stat().st_mtime_ns
        os.utime(directory / segment.log.name, ns=(mtime_ns, mtime_ns))
    (directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_bytes(segments[0].leader_epoch_checkpoint)


def sample_directory(directory: Path) -> Path:
    """Make the directory of the sample's `txn-mixed-0` after a broker has recovered it."""
    golden_directory([each for each in committed() if each.log.parent == SAMPLES / "txn-mixed-0"], directory)
    return directory


def cataloged_row(log: Path) -> dict[str, Any]:
    """The row of a segment with its indexes beside the log, as a build records it."""
    recovered, status = recover(LogFile(str(log)), int(log.stem), RecoverOptions()), log.stat()
    return dict.fromkeys(SegmentToSearch.names()) | {
        "base_offset": int(log.stem),
        "status": recovered.end.status,
        "log_path": str(log),
        "log_bytes": status.st_size,
        "valid_bytes": recovered.end.position,
        "log_mtime_ns": status.st_mtime_ns,
        "max_timestamp_ms": recovered.facts.max_timestamp_ms,
        "offset_of_max_timestamp": recovered.facts.offset_of_max_timestamp,
        "index_directory": str(log.parent),
        "offset_index_bytes": len(recovered.offset_index),
        "time_index_bytes": len(recovered.time_index),
    }


def cataloged(*rows: dict[str, Any], log_end_offset: int | None = None) -> CatalogedPartition:
    """A partition of these segments, none of whose columns need be there."""
    place = {"source": "a", "topic": "t", "partition": 0, "directory": rows[0]["index_directory"]}
    schema = pa.schema([field.with_nullable(True) for field in SEGMENTS.schema(SegmentToSearch.names())])
    facts = PartitionToSearch.of({**place, "log_end_offset": log_end_offset})
    return CatalogedPartition(facts, pa.Table.from_pylist(list(rows), schema))


def some_offsets(log: Log, rng: random.Random, count: int) -> list[int]:
    """Sorted offsets of a log, with its ends and the first ones above its start, where a search begins."""
    start, end = log.log_start_offset, log.log_end_offset
    chosen = {start, end, *(rng.randint(start, end) for _ in range(count)), *range(start, min(start + 8, end))}
    return sorted(chosen)


def some_timestamps(log: Log, rng: random.Random, count: int) -> list[int]:
    """Timestamps of records in some batches, the largest of batches, their neighbours, random ones between them, and
    the special targets.
    """
    known = [0]
    for segment in log.segments:
        batches = list(batch_headers.batches(segment.log))
        known += [batch.max_timestamp for batch in batches]
        for batch in rng.sample(batches, min(3, len(batches))):
            known += [record.timestamp for record in reader.records(segment.log, batch)]
    return [
        *(rng.choice(known) + rng.choice([-1, 0, 1]) for _ in range(count // 2)),
        *(rng.randint(min(known) - 1, max(known) + 1) for _ in range(count // 2)),
        *SPECIAL,
    ]


def check_offset(log: Log, offset: int, answer: Mapping[str, Any], remarks: Iterable[str] = ()) -> None:
    """Compare the answer to an offset within the log's bounds with the log's own. Notes may have `remarks` although the
    answer is right.
    """
    place = log.translate_offset(offset)
    assert answer["found"] == (place is not None), (offset, answer)
    if place is None:
        assert answer["note"], (offset, answer)
        return
    segment, batch = place
    expected = segment.base_offset, batch.position, batch.base_offset
    assert (answer["segment_base_offset"], answer["position"], answer["batch_base_offset"]) == expected, offset
    holder = next(batch_headers.batches(segment.log, batch.position))
    assert (-1 if answer["leader_epoch"] is None else answer["leader_epoch"]) == holder.partition_leader_epoch, offset
    assert (answer["offset"], answer["timestamp"]) == (None, None), (offset, answer)
    _check_note(answer, (*remarks, GAP))
    is_behind_a_gap = offset < segment.base_offset
    assert (GAP in (answer["note"] or "")) <= is_behind_a_gap, (offset, answer)


def check_timestamp(log: Log, timestamp: int, answer: Mapping[str, Any], remarks: Iterable[str] = ()) -> None:
    """Compare the answer to a timestamp with the log's own."""
    expected = log.fetch_offset_by_timestamp(timestamp)
    if expected is None or expected.offset < 0:
        assert not answer["found"] and answer["note"], (timestamp, answer)
        return
    record = TimestampAndOffset(answer["timestamp"], answer["offset"], answer["leader_epoch"])
    assert answer["found"] and record == expected, (timestamp, answer, expected)
    _check_note(answer, (*remarks, MARKER, FAR, GAP, HIDDEN))
    if timestamp >= 0:  # the batch holds the record
        by_base_offset = {segment.base_offset: segment for segment in log.segments}
        segment = by_base_offset[answer["segment_base_offset"]]
        holder = next(batch_headers.batches(segment.log, answer["position"]))
        assert record.offset in [inside.offset for inside in reader.records(segment.log, holder)], timestamp
        assert answer["batch_base_offset"] == reader.base_offset(segment.log, holder)
        assert (MARKER in (answer["note"] or "")) == holder.is_control
        is_hiding = log.log_start_offset > log.segments[0].base_offset and record.offset == log.log_start_offset
        assert (HIDDEN in (answer["note"] or "")) == is_hiding, (timestamp, answer)
        assert (FAR in (answer["note"] or "")) == (record.timestamp - timestamp > 3_600_000)


def _check_note(answer: Mapping[str, Any], remarks: Iterable[str]) -> None:
    assert answer["note"] is None or any(remark in answer["note"] for remark in remarks), answer
