"""Logs of one partition that have the same offsets. A broker never writes such (`UnifiedLog.roll`: a log begins where
the one before it ends), so one of them is another partition's, or was copied there.

A broker that starts takes all of them, and answers from the one whose base offset is next below what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file

_VERIFY: Final = "kidx verify tells more"


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets of a log.

    Attributes:
        end_offset: behind the last one.
    """

    base_offset: int
    end_offset: int

    @property
    def name(self) -> str:
        return segment_file(self.base_offset, LOG_SUFFIX)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Why a log may not be the partition's.

    Attributes:
        end_offset: behind its last one.
        is_between: the logs beside it follow one another without it. Else nobody can tell which of them is not the
            partition's.
    """

    why: str
    end_offset: int
    is_between: bool


def overlaps_of(logs: Sequence[LogRange]) -> Mapping[int, Overlap]:
    """The logs that may not be the partition's, by their base offsets.

    Of logs that overlap, those are the partition's that follow one another to the offset, from the end of the log
    before them to the begin of the one behind them, where these are there. With more or fewer than one such row, none
    of them is known to be.

    Args:
        logs: all of a partition, in their order.
    """
    found: dict[int, Overlap] = {}
    for first, end in _groups(logs):
        group = logs[first:end]
        before = max((log.end_offset for log in logs[:first]), default=None)
        behind = logs[end].base_offset if end < len(logs) else None
        rows = list(_rows(group, before, behind))
        if len(rows) == 1:
            others = [log for log in group if log not in rows[0]]
            found |= {log.base_offset: Overlap(_why_between(log), log.end_offset, is_between=True) for log in others}
        else:
            why = _why_unknown(group)
            found |= {log.base_offset: Overlap(why, log.end_offset, is_between=False) for log in group}
    return found


def _groups(logs: Sequence[LogRange]) -> Iterator[tuple[int, int]]:
    """Where logs that overlap begin and end in a list of all."""
    first, end_offset = 0, -1
    for number, log in enumerate(logs):
        if log.base_offset >= end_offset:
            if number - first > 1:
                yield first, number
            first = number
        end_offset = max(end_offset, log.end_offset)
    if len(logs) - first > 1:
        yield first, len(logs)


def _rows(group: Sequence[LogRange], before: int | None, behind: int | None) -> Iterator[list[LogRange]]:
    """The rows of logs that follow one another, and that fit to what is before and behind; in one place at least."""
    by_base = {log.base_offset: log for log in group}
    ends = {log.end_offset for log in group}
    for log in group:
        if log.base_offset != before if before is not None else log.base_offset in ends:
            continue
        row = [log]
        while row[-1].end_offset in by_base and row[-1].end_offset > row[-1].base_offset:
            row.append(by_base[row[-1].end_offset])
        fits = behind is None or row[-1].end_offset == behind
        if fits and (before is not None or behind is not None or len(row) > 1):
            yield row


def _why_between(log: LogRange) -> str:
    return (
        f"its offsets {log.base_offset} to {log.end_offset - 1} are in other logs, too, which follow one another "
        f"without it: it may be another partition's; {_VERIFY}"
    )


def _why_unknown(group: Sequence[LogRange]) -> str:
    last = max(log.end_offset for log in group) - 1
    names = f"{group[0].name} to {group[-1].name}" if len(group) > 2 else f"{group[0].name} and {group[-1].name}"
    return (
        f"{names} overlap, with offsets {group[0].base_offset} to {last}, and nobody can tell here which of them may "
        f"be another partition's; {_VERIFY}"
    )
