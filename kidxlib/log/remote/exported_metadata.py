"""Records of `__remote_log_metadata` in Parquet files, as `kidx export` and Spark's Kafka source write them.

Of its columns `partition`, `offset`, `timestamp` and `value` are read, and `topic` where it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.log.remote.metadata_record import REMOTE_LOG_METADATA_TOPIC, MetadataRecord, read_record
from kidxlib.storage.location import Location, entries_in
from kidxlib.storage.store.s3 import input_file

EXPORT_SUFFIX: Final = ".parquet"
_COLUMNS: Final = ("partition", "offset", "timestamp", "value")


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """A partition as an export has it.

    Attributes:
        path: of the export.
        end: its last offset and how many records there are: of two copies the one with more has read further.
        start_offset: the first offset that is there.
        rows: `offset` (int64), `timestamp` (ms since the epoch) and `value` of its records, by offset, each once.
    """

    number: int
    path: Location
    end: tuple[int, int]
    start_offset: int
    rows: pa.Table = field(compare=False)

    @property
    def log_start_offset(self) -> int:
        """The log start of an export: it has what a consumer was given."""
        return self.start_offset

    def records(self) -> Iterator[MetadataRecord]:
        """Its records, in order.

        Raises:
            RemoteLogMetadataError: a value is no record of this topic.
        """
        for batch in self.rows.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                offset, value = row["offset"], row["value"]
                yield MetadataRecord(offset, row["timestamp"], read_record(self.path, offset, value))


def exported_partitions(path: Location) -> Iterator[ExportedPartition]:
    """The partitions that an export has records of.

    Args:
        path: a file, or a directory of some.

    Raises:
        RemoteLogMetadataError: a file is none of an export.
        OSError: one cannot be read.
    """
    files = [path] if path.is_file() else [each for each in entries_in(path) if each.name.endswith(EXPORT_SUFFIX)]
    if not files:
        return
    rows = pa.concat_tables([_read(file) for file in files]).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    numbers: list[int] = np.unique(rows["partition"].to_numpy()).tolist()
    for number in numbers:
        of_partition = rows.filter(pc.equal(rows["partition"], pa.scalar(number, pa.int32())))
        offsets: Any = of_partition["offset"].to_numpy()
        is_first = [True, *(offsets[1:] != offsets[:-1])]
        once = of_partition.filter(pa.array(is_first)).drop_columns(["partition"])
        yield ExportedPartition(number, path, (int(offsets[-1]), once.num_rows), int(offsets[0]), once)


def _read(path: Location) -> pa.Table:
    import pyarrow.parquet as pq  # who has log dirs does not wait for it

    try:
        source: Any = path if isinstance(path, Path) else input_file(path)
        with pq.ParquetFile(source) as file:
            names = file.schema_arrow.names
            missing = [name for name in _COLUMNS if name not in names]
            if missing:
                raise RemoteLogMetadataError(
                    f"{path}: no column {missing[0]}; expected what kidx export writes of {REMOTE_LOG_METADATA_TOPIC}"
                )
            rows = file.read(columns=[*_COLUMNS, *(["topic"] if "topic" in names else [])])
        if "topic" in names:
            rows = rows.filter(pc.equal(rows["topic"].cast(pa.string()), pa.scalar(REMOTE_LOG_METADATA_TOPIC)))
        return pa.table(
            {
                "partition": rows["partition"].cast(pa.int32()),
                "offset": rows["offset"].cast(pa.int64()),
                "timestamp": _milliseconds(rows["timestamp"]),
                "value": rows["value"].cast(pa.binary()),
            }
        )
    except pa.ArrowException as error:
        raise RemoteLogMetadataError(f"{path}: {error}; export it again") from error


def _milliseconds(times: Any) -> Any:
    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    return times.cast(pa.int64())
