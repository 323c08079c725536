"""Reads the batches of a topic's sample: the records of each producer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.operations.report.savings.records import RecordsToBe
from kidxlib.operations.report.savings.sample import TopicSample
from kidxlib.reading.bounds import ListedLog, bound_before
from kidxlib.records.bulk.batch_table import BatchTable, BatchWalk
from kidxlib.records.bulk.decode import RecordPlacer
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.location import location
from kidxlib.storage.opened_log import opened_log

_ALL: Final = Wanted()
_CHUNK_BYTES: Final = 512 * 1024
#: What is decompressed at once; one batch may have more.
_ROOM_BYTES: Final = 1024 * 1024
_ROWS: Final = 8 * 1024
#: So many reasons are told of a topic.
_REASONS_MAX: Final = 20

#: Source, partition, and the producer's id, −1 where there is none.
_ProducerKey = tuple[str, int, int]


@dataclass(slots=True)
class ReadSample:
    """What was read of a topic.

    Attributes:
        producers: records by who has sent them.
        segments: how many were read of.
        batches, batch_bytes: that were read, as they are in logs.
        record_bytes: of records from their keys on.
        not_read: what could not be read and why.
    """

    producers: dict[_ProducerKey, RecordsToBe] = field(default_factory=lambda: defaultdict(RecordsToBe))
    segments: int = 0
    batches: int = 0
    batch_bytes: int = 0
    record_bytes: int = 0
    not_read: list[str] = field(default_factory=list)

    def note(self, reason: str) -> None:
        """Note what could not be read; of many reasons the first ones."""
        if len(self.not_read) < _REASONS_MAX:
            self.not_read.append(reason)


def read_sample(sample: TopicSample, places: Mapping[tuple[Any, ...], Mapping[str, Any]], bytes_max: int) -> ReadSample:
    """Read the runs of a sample. What cannot be read is noted, and the others are read.

    Args:
        places: of segments by their keys, with `log_path`, `index_directory` and `log_bytes`.
        bytes_max: how many bytes records may take: shared out among the runs, each of which has one batch at least.
    """
    read, placer = ReadSample(), RecordPlacer(_ROWS, _ROOM_BYTES)
    keys = list(zip(*(sample.rows[name].to_pylist() for name in SEGMENTS.key), strict=True))
    sizes: list[Any] = sample.rows["valid_bytes"].to_pylist()
    read_to: dict[int, int] = {}
    ended_early = False
    for number, run in enumerate(sample.runs):
        if (place := places.get(keys[run.segment])) is None:
            read.note(f"{sample.topic}: a segment is no longer in the catalog; run it again")
            continue
        start = max(run.position, read_to.get(run.segment, 0))
        share = max((bytes_max - read.record_bytes) // (len(sample.runs) - number), 1)
        reader = _RunReader(read, placer, read.record_bytes + share)
        try:
            read_to[run.segment] = reader.read(keys[run.segment], place, sizes[run.segment], start, run.batches)
        except (OSError, LogChangedError, MalformedRecordsError) as error:
            read.note(str(error) if str(place["log_path"]) in str(error) else f"{place['log_path']}: {error}")
        ended_early |= reader.ended_early
    read.segments = len(read_to)
    if ended_early:
        wanted = sum(run.batches for run in sample.runs)
        read.note(
            f"{sample.topic}: {read.batches} of {wanted} batches were read, as their records take {bytes_max} bytes"
        )
    return read


class _RunReader:
    """Reads one run.

    Attributes:
        ended_early: records take as many bytes as they may.
    """

    def __init__(self, read: ReadSample, placer: RecordPlacer, bytes_max: int) -> None:
        self._read, self._placer, self._bytes_max = read, placer, bytes_max
        self.ended_early = False

    def read(self, key: tuple[Any, ...], place: Mapping[str, Any], size: int, start: int, batches: int) -> int:
        """Read the batches of a run, and return the byte after the last one.

        Raises:
            LogChangedError, OSError: the log cannot be read, or is shorter than the catalog has it.
            MalformedRecordsError: a header that no batch has.
        """
        source, _, partition, base_offset = key
        path, left, end = place["log_path"], batches, start
        for table in self._tables(place, base_offset, size, start):
            for number, row in enumerate(table.rows):
                batch = table.only(number)
                records = self._read.producers[source, partition, int(row["producer_id"])]
                if row["magic"] >= formats.MAGIC_V2 and row["attributes"] & formats.ATTRIBUTE_CONTROL:
                    records.end_transaction()
                elif not left or self._read.record_bytes >= self._bytes_max:
                    self.ended_early = left > 0
                    return end
                elif not row["crc_is_right"]:
                    self._read.note(f"{path}: byte {row['position']}: a batch whose checksum is wrong")
                else:
                    self._add(path, batch, records)
                    left -= 1
                end = int(row["position"] + row["size"])
        return end

    def _tables(self, place: Mapping[str, Any], base_offset: int, size: int, start: int) -> Iterator[BatchTable]:
        """The batches that begin at a byte or after it, each checked."""
        path, index_name = location(place["log_path"]), segment_file(base_offset, OFFSET_INDEX_SUFFIX)
        with opened_log(place["log_path"]) as opened:
            if opened.version.size < size:
                raise LogChangedError(
                    f"{place['log_path']}: {opened.version.size} bytes, expected {size} or more, as it was scanned; "
                    "build again"
                )
            index = location(place["index_directory"]) / index_name
            bound = bound_before(ListedLog(path, size, base_offset, None), index, start)
            log = opened.log(size, use_mmap=False, chunk_bytes=_CHUNK_BYTES)
            for table in BatchWalk(log, bound.position, _ALL, checks=True).tables():
                yield table.where(table.rows["position"] >= start)

    def _add(self, path: str, batch: BatchTable, records: RecordsToBe) -> None:
        """Add the records of a batch to those of its producer."""
        try:
            for placed in self._placer.placed(batch, _ALL):
                self._read.record_bytes += records.add(placed.places)
        except MalformedRecordsError as error:
            self._read.note(f"{path}: {error}")
            return
        self._read.batches += 1
        self._read.batch_bytes += int(batch.rows["size"][0])
