"""Gaps between logs on screen, as audits and builds find them. No kernel is imported: most builds need none."""

from __future__ import annotations

from typing import Final

from kidxlib.audit.finding import Verdict
from kidxlib.audit.gaps import Evidence, FoundGaps, Gap
from kidxlib.terminal.console import print_line, print_more
from kidxlib.text.counted import counted

#: Topics that are named on screen.
SHOWN: Final = 20


def print_gaps(gaps: FoundGaps, *, many_sources: bool) -> None:
    """Print gaps between logs that are lost, a line for each topic and reason; and of how many places nothing can be
    said.

    Args:
        many_sources: they are named with their sources.
    """
    topics: dict[tuple[str, str, str], list[Gap]] = {}
    for gap in gaps.lost:
        topics.setdefault((gap.source, gap.topic, gap.reason), []).append(gap)
    for (source, _, reason), (first, *others) in list(topics.items())[:SHOWN]:
        name = f"{first.topic}-{first.partition}"
        more = f"; {counted(len(others), 'more gap')} of the topic" if others else ""
        print_line(f"{Verdict.BROKEN}: {f'{source}: ' if many_sources else ''}{name}: {reason}: {first.detail}{more}")
        print_line(f"  {first.consequence}")
    print_more(len(topics) - SHOWN, "; --json has them all")
    damaged = sum(each.gaps for each in gaps.explained if each.evidence is Evidence.DAMAGED_LOG)
    if unknown := damaged + gaps.unknown_borders:
        places = counted(unknown, "damaged or unread log")
        print_line(f"not known: after {places}, whether another log is missing")
