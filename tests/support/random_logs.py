"""Small logs with all that a search has to mind."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from kidxlib import names
from kidxlib.records import Record
from kidxlib.recover import RecoverOptions, recover
from kidxlib.storage import WholeLog
from tests.kidxlib import encoded


def write_random_log(folder: Path, rng: random.Random) -> None:
    """A few segments with holes, of any format, with timestamps or without, and files of any age.

    Their indexes are what recovery makes of them. A segment may be empty; compaction leaves such.
    """
    folder.mkdir()
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
        log = folder / names.segment_file(base_offset, names.LOG_SUFFIX)
        log.write_bytes(data)
        recovered = recover(
            WholeLog(np.frombuffer(data, np.uint8)), base_offset, RecoverOptions(interval_bytes=rng.choice([0, 100]))
        )
        log.with_suffix(names.OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
        log.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(recovered.time_index)
        mtime_ns = rng.randrange(90, 150) * 1_000_000 + rng.randrange(1_000_000)
        os.utime(log, ns=(mtime_ns, mtime_ns))
        offset += rng.choice([0, 0, 7]) + (base_offset == offset)
    first = dict(reversed(epochs))  # where each began
    lines = "".join(f"{number} {start}\n" for number, start in sorted(first.items()))
    (folder / names.LEADER_EPOCH_CHECKPOINT).write_text(f"0\n{len(first)}\n{lines}")
