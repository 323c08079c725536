"""Plans of log dirs with usual options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kidxlib.indexing.plan import Plan, find_segments
from kidxlib.indexing.source import IndexPlace, Source
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions


def plan_of(sources: Sequence[Source], index_dir: Path | None, topics: str = ".*") -> Plan:
    """The segments of sources; of several, each has its own part of the index directory."""
    index_place = IndexPlace(index_dir=index_dir, by_source=len(sources) > 1)
    return find_segments(sources, re.compile(topics), index_place, lambda _: OptionsOfTopic(RecoverOptions()))
