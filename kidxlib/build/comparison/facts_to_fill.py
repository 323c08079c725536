"""Which segments are read for all facts: those that lack some, in the order of the listing, up to a number of bytes."""

from __future__ import annotations

import numpy as np

from kidxlib.build.comparison.known_segments import Matched, flags_of
from kidxlib.build.listed import numbers_in
from kidxlib.build.plan import Plan
from kidxlib.catalog.matching import Flags, Values
from kidxlib.catalog.segments import FillableFacts


def segments_to_fill(plan: Plan, stay: Matched, fill_bytes: int | None) -> Flags:
    """Flags of the listed segments that are read for all facts.

    Args:
        stay: rows of segments that would not be read. Those that are read all lack facts.
        fill_bytes: the most bytes that the logs may have together; None for no segment. A larger log is passed over.
    """
    lack = np.ones(plan.segments.num_rows, np.bool_)
    if fill_bytes is None:
        return ~lack
    lack[stay.listed] = flags_of(stay.known[FillableFacts.names()[-1]].is_null())
    log_bytes, seen = numbers_in(plan.segments["log_bytes"])
    lack &= seen & (log_bytes <= fill_bytes)
    return lack & (np.cumsum(np.where(lack, log_bytes, 0)) <= fill_bytes)


def count_unknown(rows: Values) -> dict[str, int]:
    """How many rows lack each fact.

    Args:
        rows: with the columns of `FillableFacts`.
    """
    return {name: rows[name].null_count for name in FillableFacts.names()}
