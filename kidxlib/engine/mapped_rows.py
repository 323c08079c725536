"""Rows in a file that is mapped into memory: they take none, however many they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable

import pyarrow as pa

from kidxlib.storage.scratch import temporary_place, writing_in


def mapped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of batches as a table. Its file is in `TMPDIR`, or /tmp, has no name any more, and goes with the table.

    Args:
        batches: of the columns of `schema`, held one at a time.

    Raises:
        KidxError: the file cannot be written.
    """
    place = temporary_place()
    with writing_in(place):
        descriptor, path = tempfile.mkstemp(prefix="kidx-", suffix=".arrow", dir=place)
    os.close(descriptor)
    try:
        with writing_in(place):
            sink = pa.OSFile(path, "wb")
        with sink, pa.ipc.new_file(sink, schema) as file:
            for batch in batches:
                rows = batch.cast(schema)
                with writing_in(place):
                    file.write_batch(rows)
        with pa.memory_map(path) as source:
            return pa.ipc.open_file(source).read_all()
    finally:
        os.unlink(path)
