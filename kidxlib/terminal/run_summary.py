"""The lines on screen that sum up a run, as several commands have them: topics and segments, what was skipped, how fast
it was, requests to object stores; and records that are lost, and gaps between logs. No kernel is imported: most builds
need none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from rich.filesize import decimal

from kidxlib.audit.finding import Verdict
from kidxlib.audit.gaps import Evidence, FoundGaps
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import NotASegment
from kidxlib.indexing.build_counts import BuildCounts
from kidxlib.storage.log_dir import IN_BUCKET_OR_LOST
from kidxlib.storage.publisher import Published
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.console import MORE_IN_JSON, first_of_each_kind, more_line, rate
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.text.words import counted

#: How many topics a table on screen has.
TOPICS_SHOWN: Final = 40


def tell_build_counts(outcome: Outcome, title: str, counts: BuildCounts) -> None:
    """Show the summary of a build: a row for each topic, and the segments with problems."""
    topics, total = counts.largest_topics(), counts.total
    if topics:
        outcome.table(
            title,
            ("topic", "segments", "bytes", "batches", "entries", "aborted", "written", "unchanged", "kept", "problems"),
            [
                (
                    topic.topic,
                    topic.segments,
                    topic.log_bytes,
                    topic.batches,
                    topic.entries,
                    topic.aborted_transactions,
                    *(topic.by_published[kind] for kind in (Published.WRITTEN, Published.UNCHANGED, Published.KEPT)),
                    topic.problems,
                )
                for topic in topics[:TOPICS_SHOWN]
            ],
            text_columns=1,
        )
    outcome.add_more_line(len(topics) - TOPICS_SHOWN, " topics")
    for segment in counts.problems[:LINES_SHOWN]:
        outcome.line(
            f"{segment.status}: {segment.log_path}: byte {segment.reason_position or 0}: "
            f"{segment.reason}: {segment.reason_detail}"
        )
    outcome.add_more_line(total.problems - LINES_SHOWN, " segments with problems")
    if total.by_published[Published.KEPT]:
        outcome.line(
            f"kept: the index files of {counted(total.by_published[Published.KEPT], 'truncated segment')}: beside a "
            "corrupt log a new index would suppress the broker's own truncation at its next clean start "
            "(--accept-truncated writes them all the same)"
        )
    if total.by_transaction_index[Published.KEPT]:
        outcome.line(
            f"kept: {counted(total.by_transaction_index[Published.KEPT], '.txnindex file')}: which transactions were "
            "open where the segment begins is not known, and an index that lacks aborted ones "
            "would show their records to read-committed consumers"
        )
    for name in counts.kept[:LINES_SHOWN]:
        outcome.line(f"kept: {name} stays as it is: what came before the segments at hand is not known")
    outcome.add_more_line(len(counts.kept) - LINES_SHOWN, " files kept")


def tell_skipped(outcome: Outcome, counts: Iterable[tuple[str, int]]) -> None:
    """Show with -v in one line how many files and directories are no segments, by reason. Unexpected ones have each had
    a warning.
    """
    text = ", ".join(f"{count:,} × {NotASegment(reason).in_words}" for reason, count in sorted(counts))
    if text:
        outcome.detail(f"skipped: {text}")


def tell_rate(outcome: Outcome, log_bytes: int, scan_seconds: float, seconds: float) -> None:
    """Show how fast logs were read, and how long the run took. `scan_seconds` is the time of reading, without the time
    before the first byte.
    """
    read = f"read {decimal(log_bytes)} in {scan_seconds:.1f} s ({rate(log_bytes, scan_seconds)}); " if log_bytes else ""
    outcome.line(f"{read}{seconds:.1f} s in all")


def tell_requests(outcome: Outcome, requests: Requests) -> None:
    """Show the requests to object stores, if there were any."""
    if requests:
        outcome.line(f"requests:    {requests}")


#: How many more losses of a topic are named.
_NAMED: Final = 3


class LossInSummary(Protocol):
    """A lost part of a partition, as the summary of a run needs it. Strings are as in a finding; `brief` names it in a
    list.
    """

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


def lost_lines(lost: Iterable[LossInSummary], what: str, *, many_sources: bool) -> Iterator[str]:
    """The lines in a run's summary about losses, for each topic and reason. `what` is the word for one of them; with
    `many_sources` they are named with their sources.
    """
    topics: defaultdict[tuple[str, str, str], list[LossInSummary]] = defaultdict(list)
    for loss in lost:
        topics[loss.source, loss.topic, loss.reason].append(loss)
    for (source, topic, reason), (first, *others) in list(topics.items())[:LINES_SHOWN]:
        name = f"{f'{source}: ' if many_sources else ''}{topic}-{first.partition}"
        others_named = (
            f"; {counted(len(others), f'more {what}')} of the topic: {_few([loss.brief for loss in others])}"
            if others
            else ""
        )
        yield f"{Verdict.BROKEN}: {name}: {reason}: {first.detail}{others_named}"
        yield f"  {first.consequence}"
    yield from more_line(len(topics) - LINES_SHOWN, MORE_IN_JSON)


def first_logs_not_known(names: Sequence[str]) -> Iterator[str]:
    """The line in a run's summary on partitions whose first logs are in a bucket or were lost: nobody can tell. None
    without one.
    """
    if names:
        what = f"first logs of {counted(len(names), 'partition')}, where {LEADER_EPOCH_CHECKPOINT} begins"
        yield f"not known: {what}: {_few(names)}; {IN_BUCKET_OR_LOST}"


def _few(names: Sequence[str]) -> str:
    left_out = [f"and {len(names) - _NAMED:,} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *left_out])


def gap_lines(gaps: FoundGaps, *, many_sources: bool) -> Iterator[str]:
    """The lines in a run's summary about gaps between logs that are lost, for each topic and reason, and about places
    where nobody can tell. With `many_sources` they are named with their sources.
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
    yield from first_of_each_kind(lines, LINES_SHOWN)
