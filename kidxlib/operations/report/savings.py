"""Measured savings: how many bytes a producer with a larger `batch.size` or with another codec would have written
(`measure_savings`).

Of each topic some batches are read, in runs of consecutive ones from segments all over the topic, and their records are
laid down again as Java's producer does it (`RecordAccumulator.append`, `ProducerBatch`,
`MemoryRecordsBuilder.hasRoomFor`, `CompressionRatioEstimator`), with a `linger.ms` that lets batches fill: records of
one producer id go together, and without ids those of a partition; batches are closed where the producer closes them,
compressed at each codec's default level by the libraries of Java's producer without their wrappers, as only sizes
matter, and counted with their headers. A transaction's end closes a batch. What was measured are the records that were
read, and nothing is said of others. Where a topic has few of them, larger batches do not fill: `full_batches` says how
many did.

`batch.size` counts compressed bytes, as the producer estimates them by the batches that it has written before. Its
estimate jumps up by 0.05 at the least and goes down by 0.005 a batch, so batches are a little smaller than they may be.
Producers that have run for a while are assumed. Compared with Java's producer and a real broker, bytes and batches were
within 4 % for each codec. Librdkafka counts bytes before they are compressed, so of its batches only those without a
codec are alike.

A batch of a topic with `LogAppendTime` has the broker's time alone. The producers' own times, which take a byte or two
more of each record, are not known.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import lz4.block
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.conditions import PRESENT, Among, scope_of
from kidxlib.catalog.matching import Flags, Longs, Values, positions_in, runs
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.codecs import zstd_module
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.format.topic_partition import INTERNAL_TOPICS
from kidxlib.jit.machine import cores
from kidxlib.operations.report.savings_kernel import (
    ESTIMATION_FACTOR,
    RECORD_OVERHEAD_MAX,
    copy_bodies,
    fill_batch,
    measure_bodies,
)
from kidxlib.reading.positions import ListedLog, bound_before
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.placed_records import RecordPlacer
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import location
from kidxlib.storage.opened_log import opened_log
from kidxlib.tables.protocol import TablesToRead

_KIB: Final = 1024
#: Kafka's default, and larger ones.
BATCH_SIZES: Final = (16 * _KIB, 64 * _KIB, 256 * _KIB, 1024 * _KIB)
#: Bytes of records to read of a topic.
_BYTES_MAX: Final = 4 * 1024 * _KIB
#: The ratio that a producer assumes at its start (`CompressionType.rate`).
NO_ESTIMATE: Final = np.float32(1.0)
_IMPROVING_STEP: Final = np.float32(0.005)
_DETERIORATE_STEP: Final = np.float32(0.05)
_ALL_BATCHES: Final = WantedRecords()
_CHUNK_BYTES: Final = 512 * 1024
#: Bytes that are decompressed at once; one batch may have more.
_ROOM_BYTES: Final = 1024 * 1024
_ROWS_AT_ONCE: Final = 8 * 1024
#: How many reasons a topic has at most in `not_read`.
_REASONS_MAX: Final = 20
#: Source, partition, and the producer's id, −1 where there is none.
_ProducerKey = tuple[str, int, int]
_COUNT_COLUMNS: Final = ("valid_bytes", "batches", "control_batches")
_PLACE_COLUMNS: Final = ("log_path", "index_directory", "log_bytes")
_UNCOMPRESSED: Final = "none"
#: `SnappyOutputStream`: a header, then blocks, each after its size.
_SNAPPY_HEADER_BYTES: Final = 16
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
#: `Lz4BlockOutputStream`: the frame's header, blocks after their sizes, an end mark. What gets larger is stored.
_LZ4_FRAME_BYTES: Final = 7 + 4
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_SIZE_BYTES: Final = 4
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
_ZSTD_LEVEL: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatches:
    """What producers with some settings write of the records that were read.

    Attributes:
        codec: `compression.type`.
        batch_size: `batch.size`, in bytes.
        bytes: of all batches, with headers.
        full_batches: batches that were closed as the next record did not fit.
        filled_batches: whole batches, and the filled part of each producer's last one, which is not full as nothing
            more was read. To be multiplied up where the batches that were read stand for all.
    """

    codec: str
    batch_size: int
    bytes: int
    batches: int
    full_batches: int
    filled_batches: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSavings:
    """What was measured of a topic.

    Attributes:
        segments, batches, log_bytes: all that the catalog knows of and that could have been read: without batches of
            markers, but with their bytes.
        sampled_segments: how many segments batches were read of.
        sampled_batches: how many batches were read, without markers of transactions; each message of magic 0 and 1 is
            one.
        sampled_bytes: of these batches, as they are in the log.
        records: in these batches.
        record_bytes: of these records, decompressed, from their keys on with the sizes of their parts.
        producers: how many producers sent them: different ids, and partitions where there is no id.
        with_settings: in the order of the settings; empty where nothing was read.
        not_read: reasons, a line each.
    """

    topic: str
    segments: int
    batches: int
    log_bytes: int
    sampled_segments: int
    sampled_batches: int
    sampled_bytes: int
    records: int
    record_bytes: int
    producers: int
    with_settings: list[WrittenBatches]
    not_read: list[str]


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive batches of a segment.

    Attributes:
        segment: its number among the topic's.
        position: a byte of its log; the run begins with the first batch that begins there or after.
        batches: how many, without markers of transactions.
    """

    segment: int
    position: int
    batches: int


@dataclass(frozen=True, slots=True)
class TopicSample:
    """What to read of a topic.

    Attributes:
        batches, log_bytes: of the whole topic; batches without markers.
        runs: in the order of partitions and offsets.
        rows: the segments that `Run.segment` numbers: columns of the key and `valid_bytes`.
    """

    topic: str
    batches: int
    log_bytes: int
    runs: Sequence[Run]
    rows: pa.Table


def compressed_bytes(codec: str, content: memoryview) -> int:
    """The size of a batch's content as a simulated producer compresses it, by one of `CODECS`."""
    return _COMPRESSED_SIZES[codec](content)


def _gzip_bytes(content: memoryview) -> int:
    """`GZIPOutputStream` at `Deflater.DEFAULT_COMPRESSION`."""
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return len(stream.compress(content)) + len(stream.flush())


def _snappy_bytes(content: memoryview) -> int:
    codec = pa.Codec("snappy")
    blocks = _split_into_blocks(content, _SNAPPY_BLOCK_BYTES)
    return _SNAPPY_HEADER_BYTES + sum(_SIZE_BYTES + codec.compress(pa.py_buffer(block)).size for block in blocks)


def _lz4_bytes(content: memoryview) -> int:
    """`LZ4Factory.fastCompressor`, each block by itself."""
    blocks = _split_into_blocks(content, _LZ4_BLOCK_BYTES)
    sizes = [min(len(lz4.block.compress(block, store_size=False)), len(block)) for block in blocks]
    return _LZ4_FRAME_BYTES + sum(_SIZE_BYTES + size for size in sizes)


def _zstd_bytes(content: memoryview) -> int:
    """A stream whose length is not known when it begins, as of `ZstdOutputStream`: that decides on its parameters."""
    stream = zstd_module().ZstdCompressor(level=_ZSTD_LEVEL)
    return len(stream.compress(content)) + len(stream.flush(stream.FLUSH_FRAME))


def _split_into_blocks(content: memoryview, block_bytes: int) -> list[memoryview]:
    return [content[at : at + block_bytes] for at in range(0, len(content), block_bytes)]


_COMPRESSED_SIZES: Final[dict[str, Callable[[memoryview], int]]] = {
    _UNCOMPRESSED: len,
    "gzip": _gzip_bytes,
    "snappy": _snappy_bytes,
    "lz4": _lz4_bytes,
    "zstd": _zstd_bytes,
}
#: Codecs that look back no further than 64 KiB: larger batches are compressed no better.
_CODECS_WITH_SMALL_WINDOW: Final = frozenset({"gzip", "snappy", "lz4"})
#: Names of `compression.type`.
CODECS: Final = tuple(_COMPRESSED_SIZES)


def measure_savings(
    tables: TablesToRead,
    sample: int,
    seed: int = 0,
    *,
    topics: Collection[str] | None = None,
    sources: Collection[str] | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    codecs: Sequence[str] = CODECS,
    bytes_max: int = _BYTES_MAX,
) -> list[TopicSavings]:
    """Read some batches of each topic, and write their records again as producers with other settings would. The result
    has a row for each topic with batches, by name, with settings in the order of codecs, then of sizes.

    Logs are read at their paths in the catalog; missing and changed logs are named in `not_read`. Kafka's internal
    topics are left out.

    At most `sample` batches of each topic are read, without markers of transactions: the same ones each time for the
    same catalog and `seed`, and fewer where the records take more than `bytes_max`, decompressed.
    """
    samples = _choose_samples(tables, sample, seed, topics, sources)
    places = _paths_by_segment(tables, samples)
    settings = [(codec, batch_size) for codec in codecs for batch_size in batch_sizes]
    measure = partial(_topic_savings, places=places, settings=settings, bytes_max=bytes_max)
    with ThreadPoolExecutor(cores(), thread_name_prefix="kidx-savings") as pool:
        return list(pool.map(measure, samples))


def _choose_samples(
    tables: TablesToRead, sample: int, seed: int, topics: Collection[str] | None, sources: Collection[str] | None
) -> list[TopicSample]:
    """The samples, by topic. Topics that brokers write themselves are left out."""
    named = [("topic", topics), ("source", sources)]
    where = [Among(name, sorted(values)) for name, values in named if values is not None]
    left_out = Among("topic", sorted(INTERNAL_TOPICS), negated=True)
    rows = tables.read(SEGMENTS, (*SEGMENTS.key, *_COUNT_COLUMNS), [PRESENT, left_out, *where])
    has_data: Values = pc.greater(rows["batches"], pc.coalesce(rows["control_batches"], pa.scalar(0, pa.int64())))
    rows = rows.filter(has_data.fill_null(False))
    if not rows.num_rows:
        return []
    order = ("topic", "source", "partition", "base_offset")
    rows = rows.sort_by([(name, "ascending") for name in order]).combine_chunks()
    topic_runs = runs([rows["topic"].combine_chunks()])
    return [_choose_sample(rows.slice(start, end - start), sample, seed) for start, end in topic_runs]


def _choose_sample(rows: pa.Table, sample: int, seed: int) -> TopicSample:
    topic = str(rows["topic"][0].as_py())
    zero = pa.scalar(0, pa.int64())
    columns: list[Any] = [pc.coalesce(rows[name], zero) for name in _COUNT_COLUMNS]
    log_bytes, of_all, of_markers = (column.to_numpy() for column in columns)
    batches = of_all - of_markers
    total = int(batches.sum())
    if total <= sample:
        chosen = [Run(number, 0, int(count)) for number, count in enumerate(batches)]
    else:
        chosen = list(_random_runs(log_bytes, batches, sample, random.Random(f"{seed} {topic}")))
    return TopicSample(topic, total, int(log_bytes.sum()), chosen, rows)


def _random_runs(log_bytes: Any, batches: Any, sample: int, rng: random.Random) -> Iterator[Run]:
    """Runs at random places, one in each of equal parts of the bytes. There are about as many runs as batches in a run:
    many see more of the topic, and long ones fill large batches.
    """
    count = max(math.isqrt(sample), 1)
    ends = np.cumsum(log_bytes)
    for number in range(count):
        wanted = sample // count + (number < sample % count)
        place = int((number + rng.random()) * int(ends[-1]) / count)
        segment = min(int(np.searchsorted(ends, place, "right")), len(ends) - 1)
        size, holds = int(log_bytes[segment]), int(batches[segment])
        latest = size - (wanted + 1) * -(-size // holds)  # the first batch begins half a batch later on average
        within = place - (int(ends[segment]) - size)
        yield Run(segment, max(min(within, latest), 0), wanted)


def _paths_by_segment(
    tables: TablesToRead, samples: Sequence[TopicSample]
) -> Mapping[tuple[Any, ...], Mapping[str, Any]]:
    chosen = [
        sample.rows.select(SEGMENTS.key).take(pa.array(sorted({run.segment for run in sample.runs})))
        for sample in samples
    ]
    if not chosen:
        return {}
    keys = pa.concat_tables(chosen)
    rows = tables.read(SEGMENTS, (*SEGMENTS.key, *_PLACE_COLUMNS), scope_of({"chosen": keys}, SEGMENTS.key))
    rows = rows.filter(positions_in(rows, keys, SEGMENTS.key) >= 0)
    return {tuple(row[name] for name in SEGMENTS.key): row for row in rows.to_pylist()}


@dataclass(frozen=True, slots=True)
class SampledRecords:
    """Records of one producer, in the order in which it sent them.

    Attributes:
        bodies: from the keys on, as in magic 2, one after the other.
        ends: of shape (n + 1,): where each record begins, and where the last one ends.
        timestamps: ms since the epoch, of shape (n,).
        begins: which records may not follow another in its batch, as a transaction has ended between them.
        is_closed: a transaction has ended after the last record.
    """

    bodies: NDArray[np.uint8]
    ends: Longs
    timestamps: Longs
    begins: Flags
    is_closed: bool


@dataclass(slots=True)
class SampledRecordsBuilder:
    """Collects records of one producer as they are read."""

    #: Bodies, their sizes, timestamps and `begins`.
    _parts: list[tuple[NDArray[np.uint8], Longs, Longs, Flags]] = field(default_factory=list)
    _transaction_has_ended: bool = False

    def end_transaction(self) -> None:
        """The next record begins a new batch."""
        self._transaction_has_ended = True

    def add(self, places: NDArray[np.void]) -> int:
        """Add records (of `PLACE`), and return their bytes."""
        ends = np.empty(len(places) + 1, np.int64)
        measure_bodies(places, ends)
        bodies = np.empty(int(ends[-1]), np.uint8)
        copy_bodies(places, ends, bodies)
        begins = np.zeros(len(places), np.bool_)
        begins[:1] = self._transaction_has_ended
        self._transaction_has_ended = False
        self._parts.append((bodies, np.diff(ends), places["timestamp"].copy(), begins))
        return len(bodies)

    def records(self) -> SampledRecords:
        bodies, sizes, timestamps, begins = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        return SampledRecords(bodies, ends, timestamps, begins, is_closed=self._transaction_has_ended)

    def __len__(self) -> int:
        return sum(len(part[1]) for part in self._parts)


@dataclass(slots=True)
class SimulatedBatches:
    """Batches of the records of each producer, and their compressed sizes. Each batch is compressed once, though
    producers with several `batch.size` may write it.

    Attributes:
        rooms: memory for a batch with all records of each producer; its last batch was laid down there.
    """

    records: Sequence[SampledRecords]
    rooms: list[NDArray[np.uint8]] = field(init=False)
    _sizes: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = (len(each.bodies) + len(each.timestamps) * RECORD_OVERHEAD_MAX for each in self.records)
        self.rooms = [np.empty(size, np.uint8) for size in sizes]

    def batch(self, producer: int, first: int, codec: str, batch_size: int, ratio: np.float32) -> tuple[int, int, int]:
        """Lay down a batch from the producer's record `first` on, which estimates `ratio` compressed bytes of a byte.
        Returns the number of the record after the last one, and the bytes after the header, plain and compressed.
        """
        records, room = self.records[producer], self.rooms[producer]
        of_records = records.bodies, records.ends, records.timestamps, records.begins
        after, plain = fill_batch(*of_records, first, batch_size, ratio, codec != _UNCOMPRESSED, room)
        key = codec, producer, first, after
        if key not in self._sizes:
            self._sizes[key] = compressed_bytes(codec, room[:plain].data)
        return after, plain, self._sizes[key]


class SimulatedProducer:
    """A producer with some settings, and what it has written. `ratio` is its first estimate of compressed bytes of a
    byte.
    """

    def __init__(self, codec: str, batch_size: int, ratio: np.float32 = NO_ESTIMATE) -> None:
        self._codec, self._batch_size, self._ratio = codec, batch_size, ratio
        self._observed: np.float32 | None = None
        self._plain_bytes = self._bytes = self._batches = self._full_batches = 0
        self._missing = 0.0  # of batches that end as there are no more records

    def write(self, contents: SimulatedBatches, producer: int) -> None:
        """Write all records of a producer, the last batch too, which may not be full."""
        records = contents.records[producer]
        first, count = 0, len(records.timestamps)
        while first < count:
            ratio = self._ratio
            # The batch before is closed, and its ratio known, only after this one has begun.
            if self._observed is not None:
                self._ratio = updated_ratio(self._ratio, self._observed)
            first, plain, compressed = contents.batch(producer, first, self._codec, self._batch_size, ratio)
            self._observed = np.float32(compressed / plain)
            self._plain_bytes += plain
            self._bytes += layouts.BATCH_V2_BYTES_MIN + compressed
            self._batches += 1
            self._full_batches += first < count and not records.begins[first]
            if first == count and not records.is_closed:
                self._missing += max(1 - self._estimated_batch_bytes(plain, ratio) / max(self._batch_size, 1), 0)

    def _estimated_batch_bytes(self, plain: int, ratio: np.float32) -> float:
        factor = 1 if self._codec == _UNCOMPRESSED else float(ratio * ESTIMATION_FACTOR)
        return layouts.BATCH_V2_BYTES_MIN + plain * factor

    @property
    def settled_ratio(self) -> np.float32:
        """The estimate of a producer that has written such batches for a while."""
        return _settled_ratio((self._bytes - self._batches * layouts.BATCH_V2_BYTES_MIN) / self._plain_bytes)

    @property
    def written(self) -> WrittenBatches:
        return WrittenBatches(
            codec=self._codec,
            batch_size=self._batch_size,
            bytes=self._bytes,
            batches=self._batches,
            full_batches=self._full_batches,
            filled_batches=self._batches - self._missing,
        )


def updated_ratio(ratio: np.float32, observed: np.float32) -> np.float32:
    """The compression ratio that a simulated producer estimates after a batch
    (`CompressionRatioEstimator.updateEstimation`).
    """
    if observed > ratio:
        return np.float32(max(ratio + _DETERIORATE_STEP, observed))
    return np.float32(max(ratio - _IMPROVING_STEP, observed))


def settled_ratio(contents: SimulatedBatches, producer: int, codec: str, batch_size: int) -> np.float32:
    """The compression ratio that a simulated producer estimates after a while, from its first records."""
    if codec == _UNCOMPRESSED:
        return NO_ESTIMATE
    ratio = NO_ESTIMATE
    for _ in range(2):  # the first batch is small
        _, plain, compressed = contents.batch(producer, 0, codec, batch_size, ratio)
        ratio = np.float32(compressed / plain)
    return _settled_ratio(float(ratio))


def _settled_ratio(ratio: float) -> np.float32:
    """The middle of the estimates, which go up and down around the ratio of the batches."""
    return np.float32(ratio + _DETERIORATE_STEP / 2)


@dataclass(slots=True)
class ReadSample:
    """What was read of a topic.

    Attributes:
        batches, batch_bytes: as they are in logs.
        record_bytes: of records from their keys on.
        not_read: reasons.
    """

    producers: dict[_ProducerKey, SampledRecordsBuilder] = field(
        default_factory=lambda: defaultdict(SampledRecordsBuilder)
    )
    segments: int = 0
    batches: int = 0
    batch_bytes: int = 0
    record_bytes: int = 0
    not_read: list[str] = field(default_factory=list)

    def note(self, reason: str) -> None:
        """Only the first reasons are kept."""
        if len(self.not_read) < _REASONS_MAX:
            self.not_read.append(reason)


def _read_sample(
    sample: TopicSample, places: Mapping[tuple[Any, ...], Mapping[str, Any]], bytes_max: int
) -> ReadSample:
    """Read the runs of a sample. A run that cannot be read is noted, and the others are read. `bytes_max` of records
    are shared out among the runs, each of which has one batch at least.
    """
    read, placer = ReadSample(), RecordPlacer(_ROWS_AT_ONCE, _ROOM_BYTES)
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
    """Reads one run. It is `ended_early` once records take as many bytes as they may."""

    def __init__(self, read: ReadSample, placer: RecordPlacer, bytes_max: int) -> None:
        self._read, self._placer, self._bytes_max = read, placer, bytes_max
        self.ended_early = False

    def read(self, key: tuple[Any, ...], place: Mapping[str, Any], size: int, start: int, batches: int) -> int:
        """Read one run of batches of a topic's sample for the report's savings. Return the byte after the last one."""
        source, _, partition, base_offset = key
        path, left, end = place["log_path"], batches, start
        for table in self._checked_batches(place, base_offset, size, start):
            for number, row in enumerate(table.rows):
                batch = table.only(number)
                records = self._read.producers[source, partition, int(row["producer_id"])]
                if row["magic"] >= layouts.MAGIC_V2 and row["attributes"] & layouts.ATTRIBUTE_CONTROL:
                    records.end_transaction()
                elif not left or self._read.record_bytes >= self._bytes_max:
                    self.ended_early = left > 0
                    return end
                elif not row["crc_is_right"]:
                    self._read.note(f"{path}: byte {row['position']}: a batch whose checksum is wrong")
                else:
                    self._add_batch(path, batch, records)
                    left -= 1
                end = int(row["position"] + row["size"])
        return end

    def _checked_batches(
        self, place: Mapping[str, Any], base_offset: int, size: int, start: int
    ) -> Iterator[BatchTable]:
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
            for table in BatchWalk(log, bound.position, _ALL_BATCHES, checks=True).tables():
                yield table.filtered(table.rows["position"] >= start)

    def _add_batch(self, path: str, batch: BatchTable, records: SampledRecordsBuilder) -> None:
        try:
            for placed in self._placer.placed(batch, _ALL_BATCHES):
                self._read.record_bytes += records.add(placed.places)
        except MalformedRecordsError as error:
            self._read.note(f"{path}: {error}")
            return
        self._read.batches += 1
        self._read.batch_bytes += int(batch.rows["size"][0])


def _topic_savings(
    sample: TopicSample,
    places: Mapping[tuple[Any, ...], Mapping[str, Any]],
    settings: Sequence[tuple[str, int]],
    bytes_max: int,
) -> TopicSavings:
    read = _read_sample(sample, places, bytes_max)
    contents = SimulatedBatches([records.records() for records in read.producers.values() if len(records)])
    return TopicSavings(
        topic=sample.topic,
        segments=sample.rows.num_rows,
        batches=sample.batches,
        log_bytes=sample.log_bytes,
        sampled_segments=read.segments,
        sampled_batches=read.batches,
        sampled_bytes=read.batch_bytes,
        records=sum(map(len, read.producers.values())),
        record_bytes=read.record_bytes,
        producers=len(contents.records),
        with_settings=_batches_with_settings(contents, settings),
        not_read=read.not_read,
    )


def _batches_with_settings(contents: SimulatedBatches, settings: Sequence[tuple[str, int]]) -> list[WrittenBatches]:
    if not contents.records:
        return []
    most = max(range(len(contents.records)), key=lambda number: len(contents.records[number].bodies))
    written, before = [], dict[str, SimulatedProducer]()
    for codec, batch_size in settings:
        if codec in _CODECS_WITH_SMALL_WINDOW and codec in before:  # to try it anew takes as long as to write
            ratio = before[codec].settled_ratio
        else:
            ratio = settled_ratio(contents, most, codec, batch_size)
        producer = before[codec] = SimulatedProducer(codec, batch_size, ratio)
        for number in range(len(contents.records)):
            producer.write(contents, number)
        written.append(producer.written)
    return written
