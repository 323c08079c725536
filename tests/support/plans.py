"""Plans of log dirs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kidxlib.indexing.plan import Plan, find_segments
from kidxlib.indexing.source import IndexPlace, Source
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Location


def plan_of(
    sources: Sequence[Source], index_dir: Location | None, topics: str = ".*", options: RecoverOptions | None = None
) -> Plan:
    """The segments of sources; of several, each has its own part of the index directory."""
    of_each = OptionsOfTopic(options or RecoverOptions())
    index_place = IndexPlace(index_dir=index_dir, by_source=len(sources) > 1)
    return find_segments(sources, re.compile(topics), index_place, lambda _: of_each)
