"""Logs of one partition that hold the same offsets. A broker never writes overlapping logs (`UnifiedLog.roll`: a log
begins where the log before it ends), so one of them is another partition's, or was copied there.

A broker loads all of them, and reads an offset from the log with the next lower base offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file

#: How the words about an overlap end, which `kidx verify` leaves out.
TELLS_MORE: Final = "; kidx verify tells more"


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets of a log, which other logs may overlap.

    Attributes:
        end_offset: the offset after the last one.
    """

    base_offset: int
    end_offset: int

    @property
    def name(self) -> str:
        """The file's name, by which the words about an overlap call the log."""
        return segment_file(self.base_offset, LOG_SUFFIX)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A log that may belong to another partition.

    Attributes:
        why: which offsets it shares with which logs, for messages.
        end_offset: the offset after the log's last one.
        is_between: the other logs follow one another without this one. Else it is unknown which log is wrong.
    """

    why: str
    end_offset: int
    is_between: bool


def overlaps_of(logs: Sequence[LogRange]) -> Mapping[int, Overlap]:
    """The logs that may belong to another partition, by base offset.

    A chain of overlapping logs belongs to the partition if each log begins where the one before ends, and the chain
    fills the offsets between the log before the group and the log after it. If there is not exactly one such chain,
    any log of the group may be wrong.

    Args:
        logs: all logs of a partition, in order.
    """
    overlaps: dict[int, Overlap] = {}
    for first, end in _groups(logs):
        group = logs[first:end]
        before = max((log.end_offset for log in logs[:first]), default=None)
        after = logs[end].base_offset if end < len(logs) else None
        chains = list(_chains(group, before, after))
        if len(chains) == 1:
            outside = [log for log in group if log not in chains[0]]
            overlaps |= {
                log.base_offset: Overlap(_why_between(log), log.end_offset, is_between=True) for log in outside
            }
        else:
            why = _why_unknown(group)
            overlaps |= {log.base_offset: Overlap(why, log.end_offset, is_between=False) for log in group}
    return overlaps


def _groups(logs: Sequence[LogRange]) -> Iterator[tuple[int, int]]:
    """The groups of overlapping logs, as ranges of positions in a list of all logs."""
    first, end_offset = 0, -1
    for number, log in enumerate(logs):
        if log.base_offset >= end_offset:
            if number - first > 1:
                yield first, number
            first = number
        end_offset = max(end_offset, log.end_offset)
    if len(logs) - first > 1:
        yield first, len(logs)


def _chains(group: Sequence[LogRange], before: int | None, after: int | None) -> Iterator[list[LogRange]]:
    """The chains of logs in which each begins where the one before ends. The first begins at offset `before` and the
    last ends at `after`; a chain of one log needs at least one of the two.
    """
    by_base = {log.base_offset: log for log in group}
    ends = {log.end_offset for log in group}
    for log in group:
        if log.base_offset != before if before is not None else log.base_offset in ends:
            continue
        chain = [log]
        while chain[-1].end_offset in by_base and chain[-1].end_offset > chain[-1].base_offset:
            chain.append(by_base[chain[-1].end_offset])
        fits = after is None or chain[-1].end_offset == after
        if fits and (before is not None or after is not None or len(chain) > 1):
            yield chain


def _why_between(log: LogRange) -> str:
    return (
        f"its offsets {log.base_offset} to {log.end_offset - 1} are in other logs, too, which follow one another "
        f"without it: it may be another partition's{TELLS_MORE}"
    )


def _why_unknown(group: Sequence[LogRange]) -> str:
    last = max(log.end_offset for log in group) - 1
    names = f"{group[0].name} to {group[-1].name}" if len(group) > 2 else f"{group[0].name} and {group[-1].name}"
    return (
        f"{names} overlap, with offsets {group[0].base_offset} to {last}, and nobody can tell here which of them may "
        f"be another partition's{TELLS_MORE}"
    )
