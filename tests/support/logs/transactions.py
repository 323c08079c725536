"""Logs of transactions, and the records that consumers of committed records get."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.records.reader import Record
from tests.support.logs import encoded
from tests.support.logs.batches import Batch, control

_PRODUCERS: Final = 3


@dataclass(slots=True)
class Written:
    """A log, batch by batch, and the fates of its records.

    Attributes:
        batches: their base offsets and bytes.
        open: the offsets of open transactions, by producer.
        fates: by the offset of a data record, the offset of the marker that decided on it, and whether that aborted;
            None outside of transactions, and (−1, False) as long as the transaction is open.
    """

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    open: dict[int, list[int]] = field(default_factory=dict)
    fates: dict[int, tuple[int, bool] | None] = field(default_factory=dict)
    next_offset: int = 0

    def data(self, producer: int | None, count: int) -> None:
        offsets = list(range(self.next_offset, self.next_offset + count))
        records = [Record(offset, 0, None, b"v") for offset in offsets]
        if producer is None:
            fields: dict[str, Any] = {}
            self.fates |= dict.fromkeys(offsets)
        else:
            fields = {"attributes": layouts.ATTRIBUTE_TRANSACTIONAL, "producer_id": producer, "producer_epoch": 0}
            self.open.setdefault(producer, []).extend(offsets)
            self.fates |= dict.fromkeys(offsets, (-1, False))
        self.batches.append((self.next_offset, encoded.batch_v2(records, **fields)))
        self.next_offset += count

    def marker(self, producer: int, *, aborts: bool) -> None:
        key = layouts.CONTROL_TYPE_ABORT if aborts else layouts.CONTROL_TYPE_COMMIT
        batch = Batch(**{**control(key.to_bytes(4)), "producer_id": producer})
        for offset in self.open.pop(producer, []):
            self.fates[offset] = self.next_offset, aborts
        self.batches.append((self.next_offset, batch.encode(self.next_offset)))
        self.next_offset += 1

    def committed(self, end_offset: int) -> list[int]:
        """The offsets that a consumer of committed records gets if the log ends at an offset."""
        decided = {offset: fate for offset, fate in self.fates.items() if fate is None or 0 <= fate[0] < end_offset}
        undecided = [offset for offset in self.fates if offset not in decided and offset < end_offset]
        stable = min([end_offset, *undecided])
        return sorted(offset for offset, fate in decided.items() if offset < stable and not (fate and fate[1]))

    def write(self, directory: Path, starts: set[int], *, since: int = 0, until: int | None = None) -> None:
        """Write the batches from `since` to before `until`; segments begin at batch 0 and at those in `starts`."""
        directory.mkdir(exist_ok=True)
        log = max(directory.glob(f"*{LOG_SUFFIX}"), default=directory / segment_file(0, LOG_SUFFIX))
        if not since:
            log.touch()
        for number, (base_offset, data) in enumerate(self.batches[:until]):
            if number < since:
                continue
            if number in starts:
                log = directory / segment_file(base_offset, LOG_SUFFIX)
            with log.open("ab") as file:
                file.write(data)


def random_transactions(rng: random.Random, steps: int, first_offset: int = 0) -> Written:
    written = Written(next_offset=first_offset)
    for _ in range(steps):
        producer = rng.randrange(_PRODUCERS)
        match rng.randrange(5):
            case 0:
                written.data(None, rng.randint(1, 3))
            case 1 | 2:
                written.data(producer, rng.randint(1, 3))
            case _:
                written.marker(producer, aborts=rng.random() < 0.5)
    return written
