"""The source, called as Spark calls it, without Spark's Java; a stream with a checkpoint, and a sink that takes a
micro-batch once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kidxlib.spark.source import KafkaSegmentReader, KafkaSegmentSource, KafkaSegmentStreamReader

Places = list[tuple[str, int]]


def source_of(path: Path | str, **options: str) -> KafkaSegmentSource:
    """The source of a path, or of the `paths` among the options."""
    place = {} if "paths" in options else {"path": str(path)}
    given: Any = CaseInsensitiveDict({**place, **options})
    return KafkaSegmentSource(given)


def reader_of(path: Path | str, **options: str) -> KafkaSegmentReader:
    source = source_of(path, **options)
    return source.reader(source.schema())


class Stream:
    """One query, from its beginning or from a checkpoint.

    Attributes:
        offsets: the checkpoint's end offsets of planned micro-batches, in JSON.
        sunk: the rows of written micro-batches, by the batch's number.
    """

    def __init__(self, path: Path | str, **options: str) -> None:
        self.offsets: list[str] = []
        self.sunk: list[Places] = []
        self._path = path
        self.start_again(**options)

    def start_again(self, **options: str) -> None:
        """Start anew from the checkpoint, without the state of the process that ended."""
        source = source_of(self._path, **options)
        self.reader: KafkaSegmentStreamReader = source.streamReader(source.schema())
        self._schema_names = source.schema().names
        if len(self.sunk) < len(self.offsets):
            self.write()

    def plan(self, *, all_available: bool = False) -> bool:
        limit = ReadAllAvailable() if all_available else self.reader.getDefaultReadLimit()
        start = self._start(len(self.offsets))
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if self.offsets and end == start:
            return False
        self.offsets.append(end)
        return True

    def write(self) -> None:
        """Read the last planned micro-batch, and write it."""
        number = len(self.offsets) - 1
        start, end = json.loads(self._start(number)), json.loads(self.offsets[number])
        written: Places = []
        for partition in self.reader.partitions(start, end):
            for rows in self.reader.read(partition):
                rows.validate(full=True)
                columns = (rows[name].to_pylist() for name in ("topic", "partition", self._place))
                written += [(f"{topic}-{number}", offset) for topic, number, offset in zip(*columns, strict=True)]
        self.sunk.append(written)

    def run(self) -> list[Places]:
        """Write all micro-batches that there are now, and return their rows."""
        before = len(self.sunk)
        while self.plan():
            self.write()
        return self.sunk[before:]

    @property
    def rows(self) -> Places:
        return [place for batch in self.sunk for place in batch]

    @property
    def _place(self) -> str:
        return "offset" if "offset" in self._schema_names else "last_offset"

    def _start(self, number: int) -> str:
        return self.offsets[number - 1] if number else json.dumps(self.reader.initialOffset())
