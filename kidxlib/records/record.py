"""A record as a consumer gets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record.

    Attributes:
        key: its name. What of it is no UTF-8 is read as U+FFFD, as in Java.
        value: None is null.
    """

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer would get it; also a marker of a control batch.

    Attributes:
        offset: its offset in the partition.
        timestamp: in ms since the epoch: its producer's or, in a batch with LogAppendTime, the broker's; −1 is none.
        key, value: None is null; a null value is a tombstone.
        headers: its headers, in their order.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
