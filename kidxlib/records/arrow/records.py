"""The records of a log as Arrow tables, a row for each: markers of transactions too, and what was aborted.

The names of the columns are those of `kidx dump --json`, and −1 is none, as in `kidxlib.records.arrow.batches`.

Who asks for no key, value or header gets the rest from the compiled loop (`kidxlib.records.columns`). Else each record
is read in Python, some ten thousand a second: enough to look into a log, and no replacement for a consumer. Checksums
are not looked at, as on a broker's read path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from kidxlib.errors import MalformedRecordsError
from kidxlib.records.arrow.columns import Rows
from kidxlib.records.arrow.parts import OffsetRange, parts_of
from kidxlib.records.batch import Batch
from kidxlib.storage.log_bytes import LogBytes

#: Records that are given out at once, and bytes of their keys, values and headers; one record may have more, and one
#: batch more records.
ROWS_MAX: Final = 64 * 1024
BYTES_MAX: Final = 32 * 1024 * 1024


def record_rows(
    log: LogBytes,
    segment_base_offset: int,
    batches: Iterable[Batch],
    schema: pa.Schema,
    wanted: OffsetRange,
    *,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Rows of a schema that `records_schema` gave, for the records of one segment that are wanted.

    Args:
        log: what the batches were found in.

    Raises:
        MalformedRecordsError: as `kidxlib.records.reader.records`; all batches before that one are given first.
    """
    rows = Rows(segment_base_offset)
    try:
        for batch in batches:
            for part in parts_of(log, batch, schema, rows_max, bytes_max):
                if rows.count and (rows.count + part.count > rows_max or rows.bytes + part.bytes > bytes_max):
                    yield rows.to_arrow(schema)
                    rows = Rows(segment_base_offset)
                rows.add(part.within(wanted))
    except MalformedRecordsError:
        if rows.count:
            yield rows.to_arrow(schema)
        raise
    if rows.count:
        yield rows.to_arrow(schema)
