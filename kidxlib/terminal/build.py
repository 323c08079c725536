"""The results of a build on screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.filesize import decimal

from kidxlib.format.segment_files import NotASegment
from kidxlib.indexing.build_counts import BuildCounts
from kidxlib.storage.publisher import Published
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.console import rate
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.words import counted

#: Topics and segments shown on screen, and segments in the JSON object; their numbers are always there.
TOPICS_SHOWN: Final = 40
PROBLEMS_SHOWN: Final = 20


def tell_counts(outcome: Outcome, title: str, counts: BuildCounts) -> None:
    """Show a row for each topic, and the segments with problems."""
    topics = counts.largest_topics()
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
    outcome.more(len(topics) - TOPICS_SHOWN, " topics")
    for segment in counts.problems[:PROBLEMS_SHOWN]:
        outcome.line(
            f"{segment.status}: {segment.log_path}: byte {segment.reason_position or 0}: "
            f"{segment.reason}: {segment.reason_detail}"
        )
    outcome.more(counts.problem_count - PROBLEMS_SHOWN, " segments with problems")
    if counts.by_published[Published.KEPT]:
        outcome.line(
            f"kept: the index files of {counted(counts.by_published[Published.KEPT], 'truncated segment')}: beside a "
            "corrupt log a new index would suppress the broker's own truncation at its next clean start "
            "(--accept-truncated writes them all the same)"
        )
    if counts.by_transaction_index[Published.KEPT]:
        outcome.line(
            f"kept: {counted(counts.by_transaction_index[Published.KEPT], '.txnindex file')}: which transactions were "
            "open where the segment begins is not known, and an index that lacks aborted ones "
            "would show their records to read-committed consumers"
        )
    for name in counts.kept[:PROBLEMS_SHOWN]:
        outcome.line(f"kept: {name} stays as it is: what came before the segments at hand is not known")
    outcome.more(len(counts.kept) - PROBLEMS_SHOWN, " files kept")


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
