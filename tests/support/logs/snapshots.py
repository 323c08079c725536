"""The entries of producer snapshots, for comparison in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kidxlib.format import layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """An entry of a producer snapshot; −1 is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def producers_in(snapshot: bytes) -> frozenset[Producer]:
    """The entries of a producer snapshot, without their order, which is that of a Java hash map."""
    header = np.frombuffer(snapshot, layouts.SNAPSHOT_HEADER, count=1)[0]
    entries = np.frombuffer(snapshot, layouts.SNAPSHOT_ENTRY, offset=layouts.SNAPSHOT_HEADER.itemsize)
    assert len(entries) == header["entries"]
    fields = layouts.SNAPSHOT_ENTRY.names or ()
    return frozenset(Producer(**dict(zip(fields, entry, strict=True))) for entry in entries.tolist())
