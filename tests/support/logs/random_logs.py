"""Small random logs with all that a search must handle."""

from __future__ import annotations

import os
import random
from pathlib import Path

from kidxlib.format import checkpoint_files, segment_files
from kidxlib.library.recover_directory import recover_file
from kidxlib.records.reader import Record
from kidxlib.recovery.options import RecoverOptions
from tests.support.logs import encoded


def write_random_log(directory: Path, rng: random.Random) -> None:
    """Write a few segments with offset gaps, of any format, with timestamps or without, and files of any age. Their
    indexes are recovery's. A segment may be empty, as compaction leaves it.
    """
    directory.mkdir()
    offset = rng.choice([0, 0, 5])
    epoch = 0
    epochs = []
    for _ in range(rng.randint(1, 5)):
        base_offset, magic, stamped, data = offset, rng.choice([0, 1, 2, 2]), rng.random() < 0.8, b""
        for _ in range(rng.randrange(5)):
            offset += rng.choice([0, 0, 3])
            count = rng.randint(1, 4)
            inside = [
                Record(offset + number, rng.randrange(100, 140) if stamped else -1, b"k", b"v")
                for number in range(count)
            ]
            offset += count
            epoch += rng.random() < 0.2
            if magic == 2:
                epochs += [(epoch, inside[0].offset)]
                data += encoded.batch_v2(inside, *encoded.WAYS[rng.choice(["none", "zstd"])], leader_epoch=epoch)
            else:
                data += b"".join(encoded.message(record, magic) for record in inside)
        log = directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        log.write_bytes(data)
        recovered = recover_file(log, RecoverOptions(interval_bytes=rng.choice([0, 100])))
        log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
        log.with_suffix(segment_files.TIME_INDEX_SUFFIX).write_bytes(recovered.time_index)
        mtime_ns = rng.randrange(90, 150) * 1_000_000 + rng.randrange(1_000_000)
        os.utime(log, ns=(mtime_ns, mtime_ns))
        offset += rng.choice([0, 0, 7]) + (base_offset == offset)
    first = dict(reversed(epochs))  # the first offset of each
    lines = "".join(f"{number} {start}\n" for number, start in sorted(first.items()))
    (directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_text(f"0\n{len(first)}\n{lines}")
