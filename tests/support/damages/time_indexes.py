"""Time indexes after restarts and crashes, and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kidxlib.format import layouts
from tests.support.damages.damage import ACTIVE, LARGE_TIMES, SMALL, TIMES, Damage, Entries, file_name
from tests.support.damages.edits import (
    add_to_field,
    changed_entries,
    content_of,
    exactly,
    followed_by,
    preallocated,
    removed,
    set_field,
    twice,
    with_interval,
    without,
)


def _times(change: Callable[[Entries], Entries | None]) -> Callable[[bytes, Path], bytes]:
    return changed_entries(layouts.TIME_INDEX_ENTRY, change)


_LARGEST: Final = 2**62


TIME_INDEXES: Final = [
    Damage("missing", LARGE_TIMES, removed, "broken", "missing"),
    Damage("without entries", LARGE_TIMES, exactly(b""), "broken", "wrong-largest-timestamp"),
    Damage("last entry missing", LARGE_TIMES, _times(without(-1)), "broken", "wrong-largest-timestamp"),
    Damage("first entry missing", LARGE_TIMES, _times(without(0)), "safe", "other-spacing"),
    Damage("an entry missing", LARGE_TIMES, _times(without(30)), "safe", "other-spacing"),
    Damage("every batch", LARGE_TIMES, with_interval(0, times=True), "safe", "other-spacing"),
    Damage("padded with zeros", LARGE_TIMES, followed_by(bytes(24)), "broken", "fails-sanity-check"),
    Damage("nothing but zeros", LARGE_TIMES, exactly(bytes(24)), "broken", "wrong-largest-timestamp"),
    Damage("preallocated", file_name(ACTIVE, TIMES), preallocated(12), "safe", "preallocated"),
    Damage(
        "in a time to come",
        LARGE_TIMES,
        _times(set_field(-1, "timestamp", lambda _: _LARGEST)),
        "broken",
        "wrong-largest-timestamp",
    ),
    Damage("an entry too early", LARGE_TIMES, _times(add_to_field(30, "timestamp", -1)), "safe", "other-spacing"),
    Damage(
        "an entry before what is older",
        LARGE_TIMES,
        _times(set_field(30, "timestamp", lambda _: 1)),
        "broken",
        "misses-records",
    ),
    Damage(
        "an entry too far", LARGE_TIMES, _times(add_to_field(30, "relative_offset", 3000)), "broken", "misses-records"
    ),
    Damage(
        "offset amid a batch, as by a leader up to 3.7.0",
        file_name(SMALL, TIMES),
        _times(add_to_field(1, "relative_offset", -1)),
        "safe",
        "other-spacing",
    ),
    Damage("an entry twice", LARGE_TIMES, _times(twice(5)), "safe", "not-increasing"),
    Damage("5 bytes more", LARGE_TIMES, followed_by(b"abcde"), "broken", "fails-sanity-check"),
    Damage(
        "last offset below the base",
        LARGE_TIMES,
        _times(set_field(-1, "relative_offset", lambda _: -1)),
        "broken",
        "fails-sanity-check",
    ),
    Damage(
        "of another segment",
        LARGE_TIMES,
        lambda _, directory: content_of(directory, SMALL, TIMES),
        "broken",
        "misses-records",
    ),
]
