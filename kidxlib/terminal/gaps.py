"""Lost records and gaps between logs on screen, as audits and builds find them. No kernel is imported: most builds need
none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from kidxlib.audit.finding import Verdict
from kidxlib.audit.gaps import Evidence, FoundGaps
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.storage.small_files import IN_BUCKET_OR_LOST
from kidxlib.terminal.console import first_of_each_kind, more
from kidxlib.text.words import counted

#: How many topics are named on screen, and how many more losses of each.
SHOWN: Final = 20
_NAMED: Final = 3


class Lost(Protocol):
    """A part of a partition that is missing. Strings are as in a finding; `brief` names it in a list."""

    @property
    def source(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def consequence(self) -> str: ...
    @property
    def brief(self) -> str: ...


def lost_lines(lost: Iterable[Lost], what: str, *, many_sources: bool) -> Iterator[str]:
    """The lines about losses, for each topic and reason. `what` is the word for one of them; with `many_sources` they
    are named with their sources.
    """
    topics: defaultdict[tuple[str, str, str], list[Lost]] = defaultdict(list)
    for loss in lost:
        topics[loss.source, loss.topic, loss.reason].append(loss)
    for (source, topic, reason), (first, *others) in list(topics.items())[:SHOWN]:
        name = f"{f'{source}: ' if many_sources else ''}{topic}-{first.partition}"
        others_named = (
            f"; {counted(len(others), f'more {what}')} of the topic: {_few([loss.brief for loss in others])}"
            if others
            else ""
        )
        yield f"{Verdict.BROKEN}: {name}: {reason}: {first.detail}{others_named}"
        yield f"  {first.consequence}"
    yield from more(len(topics) - SHOWN, "; --json has them all")


def first_logs_not_known(names: Sequence[str]) -> Iterator[str]:
    """The line on partitions whose first logs are in a bucket or were lost: nobody can tell. None without one."""
    if names:
        what = f"first logs of {counted(len(names), 'partition')}, where {LEADER_EPOCH_CHECKPOINT} begins"
        yield f"not known: {what}: {_few(names)}; {IN_BUCKET_OR_LOST}"


def _few(names: Sequence[str]) -> str:
    left_out = [f"and {len(names) - _NAMED:,} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *left_out])


def gap_lines(gaps: FoundGaps, *, many_sources: bool) -> Iterator[str]:
    """The lines about gaps between logs that are lost, for each topic and reason, and about places where nobody can
    tell. With `many_sources` they are named with their sources.
    """
    yield from lost_lines(gaps.lost, "gap", many_sources=many_sources)
    damaged = sum(gap.gaps for gap in gaps.explained if gap.evidence is Evidence.DAMAGED_LOG)
    if unknown := damaged + gaps.unknown_borders:
        logs = counted(unknown, "log that is damaged or was not read", "logs that are damaged or were not read")
        yield f"not known: whether logs are missing behind {logs}"
    lines = (
        f"not known: {place}: whether a gap between its logs is a log that is lost: it is above offset {offset}, up to "
        "which the cleaner of this broker has come; a replica copies such gaps from a leader that has cleaned, and a "
        "broker that was killed as it cleaned leaves them: kidx compare --as replica with another replica tells"
        for place, offset in gaps.above_cleaner
    )
    yield from first_of_each_kind(lines, SHOWN)
