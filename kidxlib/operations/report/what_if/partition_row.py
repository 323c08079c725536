"""What the ladder of limits does to one partition, as a worker gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kidxlib.catalog.columns import Int32, column
from kidxlib.catalog.rows import kinds_of, row
from kidxlib.catalog.segment_key import PartitionOfSource

_CELLS: Final = "for each time of the ladder with each size, times first"


@row
class WhatIfRow(PartitionOfSource):
    """One partition with all limits, now and a week later."""

    segments: int = column("segments that are present")
    bytes: int = column("bytes of their logs, as a broker counts them")
    kept: str | None = column("why all of them stay whatever the limits are; null: the limits decide")
    deleted: Sequence[Int32] = column(f"segments that go now, from the first on, {_CELLS}")
    freed: Sequence[int] = column(f"bytes of these, {_CELLS}")
    stays: Sequence[Int32] = column(f"why the first that stays does, by its number in REASONS; -1: none does; {_CELLS}")
    stays_from: Sequence[int] = column(f"first offset that stays, {_CELLS}")
    configured_deleted: Int32 = column("segments that go now by the topic's own policy; 0 where not all of it is known")
    configured_freed: int = column("bytes of these")
    deleted_later: Sequence[Int32] = column(f"segments that go in a week, {_CELLS}")
    freed_later: Sequence[int] = column(f"bytes of these, {_CELLS}")


WHAT_IF: Final = kinds_of(partition=WhatIfRow.columns())
