"""What is in a segment's files, item by item: what Kafka's `DumpLogSegments` (`kafka-dump-log`) looks at, as it does.

`dump_file` gives the items of one file in its order, and what does not fit together as a finding among them.
`kidxlib.dump.lines` and `kidxlib.dump.json_lines` make lines of them. Nothing is ever written, and no more is held than
one record, an item of its batch, and an index file.

Where a file is malformed, Kafka throws in the middle of a line. What it has printed by then is given, as an item that
is not complete, before the error is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kidxlib.dump.entries import AbortedEntry, CheckpointEntry, ProducerEntry
from kidxlib.dump.files import content
from kidxlib.dump.index_files import dump_index
from kidxlib.dump.items import DumpItem
from kidxlib.dump.logs import dump_log
from kidxlib.dump.source import DumpOptions, DumpSource, FileKind, base_offset
from kidxlib.format import layouts as formats
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.index.transaction import TransactionIndex
from kidxlib.java import decremented_sequence
from kidxlib.storage.checkpoints import read_epoch_entries


def dump_file(source: DumpSource, options: DumpOptions) -> Iterator[DumpItem]:
    """The items of a file.

    Raises:
        DumpError: the file is malformed; all before that place was given.
        KidxError: it is as a whole, or was changed meanwhile.
        OSError: it cannot be read.
    """
    path = source.path
    match source.kind:
        case FileKind.LOG | FileKind.KRAFT_SNAPSHOT:
            yield from dump_log(path, options)
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
            yield from dump_index(source, options)
        case FileKind.TRANSACTION_INDEX:
            yield from _dump_transaction_index(path)
        case FileKind.SNAPSHOT:
            yield from _dump_snapshot(path)
        case FileKind.LEADER_EPOCHS:
            for entry in read_epoch_entries(path) or ():
                yield CheckpointEntry(entry.epoch, entry.start_offset)


def _dump_transaction_index(path: Path) -> Iterator[DumpItem]:
    entries = content(path)
    TransactionIndex.from_bytes(entries, base_offset(path), name=str(path)).all()  # raises of a version that is newer
    size = formats.ABORTED_TRANSACTION.itemsize
    for entry in np.frombuffer(entries, formats.ABORTED_TRANSACTION, len(entries) // size).tolist():
        version, *fields = entry
        yield AbortedEntry(version >> 8, *fields)  # its higher byte is all that Kafka reads


def _dump_snapshot(path: Path) -> Iterator[DumpItem]:
    for entry in read_snapshot(content(path)).tolist():
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = entry
        has_batch = last_offset >= 0
        yield ProducerEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            current_transaction_first_offset=transaction if transaction >= 0 else None,
            last_timestamp_ms=timestamp,
            first_sequence=decremented_sequence(last_sequence, delta) if has_batch else None,
            last_sequence=last_sequence if has_batch else None,
            last_offset=last_offset if has_batch else None,
            offset_delta=delta if has_batch else None,
        )
