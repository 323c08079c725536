"""Segments of any size, written in seconds and valid down to the records: what the benchmarks read.

Batch sizes vary by a quarter around the nominal one, and timestamps go back now and then, as with several producers.
What a batch holds is drawn once per `CYCLE_BYTES` of file and then repeated under new offsets, timestamps and
checksums.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import click
import numpy as np
import pyarrow as pa

from kidxlib.errors import UsageError
from kidxlib.format import layouts
from kidxlib.format.checksums import extend_crc32, extend_crc32c
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.terminal.console import print_line

#: Enough that the contents of two equal batches never lie in the CPU's cache together.
CYCLE_BYTES: Final = 64 * 1024 * 1024
#: A batch holds records of about this size, or a single smaller one.
RECORD_BYTES: Final = 1000
FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
#: How far batch timestamps stray from their order.
DISORDER_MS: Final = 100

_MESSAGE_V0: Final = np.dtype(
    [(name, layouts.MESSAGE_V1[name]) for name in layouts.MESSAGE_V1.names or () if name != "timestamp"]
)
_HEADERS: Final = {0: _MESSAGE_V0, 1: layouts.MESSAGE_V1, layouts.MAGIC_V2: layouts.BATCH_V2}


#: Those that Arrow writes as Kafka does; its snappy has no frames.
Codec = Literal["none", "gzip", "lz4", "zstd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContent:
    """What a generated segment holds. The same content and size give the same bytes.

    Attributes:
        magic: 0, 1 or 2.
        batch_bytes: nominal size of a batch, or of a message of magic 0 and 1, before compression.
        codec: magic 0 and 1 know none only.
        batches_a_transaction: after so many batches of one producer, all transactional, comes a commit marker; 0 for no
            producer. Magic 2 only.
        seed: of the random numbers.
    """

    magic: int
    batch_bytes: int
    codec: Codec = "none"
    batches_a_transaction: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.magic < layouts.MAGIC_V2 and (self.codec != "none" or self.batches_a_transaction):
            raise UsageError(f"magic {self.magic} with a codec or transactions: expected magic 2, or neither")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--mib", type=click.IntRange(1, 2047), default=1024, show_default=True, help="Size of the segment.")
@click.option("--base-offset", type=click.IntRange(0), default=0, show_default=True)
@click.option("--magic", type=click.IntRange(0, 2), default=2, show_default=True)
@click.option("--batch-bytes", type=click.IntRange(200), default=16 * 1024, show_default=True, help="Uncompressed.")
@click.option("--codec", type=click.Choice(get_args(Codec)), default="none", show_default=True, help="Magic 2 only.")
@click.option(
    "--batches-a-transaction",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="After so many a commit marker; 0 for no producer. Magic 2 only.",
)
@click.option("--seed", type=int, default=0, show_default=True)
def generate(directory: Path, mib: int, base_offset: int, **content: Any) -> None:
    """Write a valid segment into a partition's directory, for measurements of one's own."""
    wanted = SegmentContent(**content)
    log = directory / segment_file(base_offset, LOG_SUFFIX)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_segment(log, wanted, mib * 1024**2, base_offset)
    except OSError as error:
        raise UsageError(
            f"{log}: not written: {error.strerror}; give a directory that can be made, and {mib} MiB of room"
        ) from error
    print_line(str(log))


def write_segment(path: Path, content: SegmentContent, file_bytes: int, base_offset: int = 0) -> int:
    """Write a segment of at most `file_bytes`, in whole batches; interrupted, it leaves no `path`.

    It is on disk when this returns: writing back hundreds of megabytes would disturb what is measured next.

    Returns:
        The offset at which the next segment of the partition begins.
    """
    random = np.random.default_rng(content.seed)
    cycle = _Cycle(content, min(file_bytes, CYCLE_BYTES), random)
    partial = path.with_suffix(".part")
    position, offset, whole = 0, base_offset, True
    with partial.open("wb") as file:
        while whole:
            data = cycle.continued(offset, random)
            batches = int(np.searchsorted(cycle.ends, file_bytes - position, side="right"))
            position += file.write(data[: cycle.ends[batches - 1] if batches else 0])
            offset += int(cycle.counts[:batches].sum())
            whole = batches == len(cycle.ends)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    return offset


class _Cycle:
    """A section of batches that is written again and again, each time with the headers that follow on the last.

    Attributes:
        ends: where each batch ends within the section.
        counts: how many records, and offsets, each batch takes up.
    """

    def __init__(self, content: SegmentContent, nominal_bytes: int, random: np.random.Generator) -> None:
        layout = _HEADERS[content.magic]
        nominal = np.full(max(1, nominal_bytes // content.batch_bytes), content.batch_bytes)
        sizes = random.integers(nominal * 3 // 4, nominal * 5 // 4, endpoint=True) - layout.itemsize
        contents = [_records(content, max(1, int(size)), random) for size in sizes]
        if every := content.batches_a_transaction:
            for place in range(len(contents) // every * every, 0, -every):
                contents.insert(place, (_MARKER, 1))
        is_marker = np.array([data is _MARKER for data, _ in contents])
        counts = np.array([count for _, count in contents])
        lengths = np.array([layout.itemsize + len(data) for data, _ in contents])

        self.ends = np.cumsum(lengths)
        self._starts = self.ends - lengths
        self._magic = content.magic
        self.counts = counts
        self._first_offsets = np.cumsum(counts) - counts
        self._headers = _constant_headers(content, lengths, counts, is_marker)
        self._header_bytes = self._starts[:, np.newaxis] + np.arange(layout.itemsize)
        self._data = np.frombuffer(bytearray().join(bytes(layout.itemsize) + data for data, _ in contents), np.uint8)

    def continued(self, offset: int, random: np.random.Generator) -> bytes:
        """The section, starting at this offset."""
        headers = self._headers
        offsets = offset + self._first_offsets
        timestamps = FIRST_TIMESTAMP_MS + offsets + random.integers(0, DISORDER_MS, len(offsets))
        if self._magic >= layouts.MAGIC_V2:
            headers["base_offset"] = offsets
            headers["base_timestamp"] = timestamps
            headers["max_timestamp"] = timestamps + self.counts - 1
            checksum, covered = extend_crc32c, layouts.field_position(layouts.BATCH_V2, "attributes")
        else:
            headers["offset"] = offsets
            if self._magic == 1:
                headers["timestamp"] = timestamps
            checksum, covered = extend_crc32, layouts.field_position(layouts.MESSAGE_V1, "magic")
        self._place_headers()
        data = self._data.tobytes()
        headers["crc"] = [
            checksum(0, data[start + covered : end]) for start, end in zip(self._starts, self.ends, strict=True)
        ]
        self._place_headers()
        return self._data.tobytes()

    def _place_headers(self) -> None:
        self._data[self._header_bytes] = self._headers.view(np.uint8).reshape(self._header_bytes.shape)


def _constant_headers(
    content: SegmentContent,
    lengths: np.ndarray[Any, Any],
    counts: np.ndarray[Any, Any],
    is_marker: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """Headers with all that does not depend on the offset; sequence numbers start again in each section."""
    headers = np.zeros(len(lengths), _HEADERS[content.magic])
    headers["magic"] = content.magic
    if content.magic < layouts.MAGIC_V2:
        headers["size"] = lengths - layouts.LOG_OVERHEAD
        return headers
    headers["batch_length"] = lengths - layouts.LOG_OVERHEAD
    headers["attributes"] = layouts.CODECS.index(content.codec)
    headers["last_offset_delta"] = counts - 1
    headers["records_count"] = counts
    for field in ("producer_id", "producer_epoch", "base_sequence"):
        headers[field] = -1
    if content.batches_a_transaction:
        headers["producer_id"], headers["producer_epoch"] = _PRODUCER_ID, 0
        headers["base_sequence"] = np.where(is_marker, layouts.NO_SEQUENCE, np.cumsum(counts) - counts)
        headers["attributes"] = np.where(is_marker, layouts.ATTRIBUTE_CONTROL, headers["attributes"])
        headers["attributes"] |= layouts.ATTRIBUTE_TRANSACTIONAL
    return headers


def _records(content: SegmentContent, size: int, random: np.random.Generator) -> tuple[bytes, int]:
    """About `size` bytes of records, as they follow the header, and how many they are."""
    letters = random.integers(ord("a"), ord("z"), size, np.uint8, endpoint=True).tobytes()
    if content.magic < layouts.MAGIC_V2:
        value = letters[8:]
        return (-1).to_bytes(4, "big", signed=True) + len(value).to_bytes(4, "big") + value, 1
    values = [letters[start : start + RECORD_BYTES - 10] for start in range(0, size, RECORD_BYTES)]
    records = b"".join(itertools.starmap(_record_v2, enumerate(values)))
    if content.codec != "none":
        records = pa.compress(records, codec=content.codec, asbytes=True)
    return records, len(values)


def _record_v2(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    """A `DefaultRecord` without headers; `delta` is that of its offset and of its timestamp."""
    no_attributes, no_headers = b"\0", _varint(0)
    key_field = _varint(-1) if key is None else _varint(len(key)) + key
    record = no_attributes + _varint(delta) * 2 + key_field + _varint(len(value)) + value + no_headers
    return _varint(len(record)) + record


def _varint(value: int) -> bytes:
    """A zigzag varint of 32 bits."""
    rest, encoded = (value << 1) ^ (value >> 31), bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


_PRODUCER_ID: Final = 1
#: What the batch of a commit marker holds: `EndTransactionMarker` of coordinator epoch 0.
_MARKER: Final = _record_v2(
    0,
    bytes(layouts.MARKER_VALUE_BYTES),
    key=bytes(2) + layouts.CONTROL_TYPE_COMMIT.to_bytes(layouts.CONTROL_KEY_BYTES - 2),
)
