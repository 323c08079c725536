"""The segments of a partition, listed while a broker may be at work on them."""

from __future__ import annotations

import time
from typing import Final

from kidxlib.build.listed import FoundSegment
from kidxlib.build.listing import list_segments
from kidxlib.build.skipped import Skipped
from kidxlib.build.source import PartitionDirectory
from kidxlib.format.not_segments import NotASegment

#: A broker that runs takes some milliseconds; one that has ended amid that leaves it so.
_TRIES: Final = 20
_PAUSE_SECONDS: Final = 0.05


def settled_segments(directory: PartitionDirectory) -> list[FoundSegment]:
    """The segments in their order.

    When the cleaner has compacted some, it renames these to `.deleted`, and then its own from `.log.swap` to `.log`
    (`LocalLog.replaceSegments`). Whoever lists them in between sees neither, so this waits a moment.

    Raises:
        OSError: as `list_segments`.
    """
    for _ in range(_TRIES):
        skipped = Skipped()
        found = sorted(list_segments(directory, skipped))
        if not skipped.counts[NotASegment.SWAP]:
            break
        time.sleep(_PAUSE_SECONDS)
    return found
