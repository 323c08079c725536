"""What a run of seek is asked for: options, put together and checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import INTERNAL_TOPICS
from kidxlib.lookup.answers import OFFSET, TIMESTAMP
from kidxlib.operations.seek.output import Format
from kidxlib.run.catalog_place import absolute
from kidxlib.storage.location import ensure_text
from kidxlib.terminal.console import warn
from kidxlib.text.times import parse_milliseconds, show_time

#: From 12 January 1970 to 3 March 1973 in milliseconds, and from 2001 on in seconds.
_MAYBE_SECONDS: Final = range(10**9, 10**11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of a command line.

    Attributes:
        topic, partition: None for all topics, but for those that brokers keep for themselves, or all of a topic's
            partitions: only for a time.
        query: `offset` or `timestamp`.
        asked: its time, as it was typed.
    """

    topic: str | None
    partition: int | None
    query: str
    target: int
    asked: str | None

    @property
    def is_wide(self) -> bool:
        """Whether it may be of many partitions."""
        return self.partition is None

    def means(self, topic: str, partition: int) -> bool:
        """Whether it is of a partition."""
        if self.topic is None:
            return topic not in INTERNAL_TOPICS
        return topic == self.topic and self.partition in (None, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest:
    """What to answer.

    Attributes:
        question: None where `queries` names a file.
        queries: absolute path or URL of a file or a table.
        output: where the answers go, an absolute path or a URL; None for the screen.
        consumer_group_csv: where offsets to reset to go.
        source: the only one to be asked; None for each.
    """

    question: Question | None
    queries: str | None
    output: str | None
    consumer_group_csv: Path | None
    source: str | None


def seek_request(
    *,
    source: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    timestamp: str | None,
    queries: str | None,
    output: str | None,
    consumer_group_csv: Path | None,
) -> SeekRequest:
    """Put options together."""
    if output is not None and Format.of(output) is Format.DELTA:
        ensure_text("--output ", output)
    if consumer_group_csv is not None:
        _ensure_writable(consumer_group_csv)
    question = None
    if queries is None:
        question = _question(topic, partition, offset, timestamp)
    elif (topic, partition, offset, timestamp) != (None, None, None, None):
        raise UsageError("--queries: the file has the questions; give none beside it")
    elif output is None and consumer_group_csv is None:
        raise UsageError("--queries: give --output FILE for the answers")
    return SeekRequest(
        question=question,
        queries=None if queries is None else absolute(queries),
        output=None if output is None else absolute(output),
        consumer_group_csv=consumer_group_csv,
        source=source,
    )


def _question(topic: str | None, partition: int | None, offset: int | None, timestamp: str | None) -> Question:
    if offset is not None and timestamp is not None:
        raise UsageError("--offset and --timestamp: give one of them, not both")
    given = {"--topic": topic, "--partition": partition, "--offset or --timestamp": (offset, timestamp)}
    if timestamp is not None:  # of a topic, or of all, too
        given = {"--topic": topic} if partition is not None else {}
    missing = [option for option, value in given.items() if value in (None, (None, None))]
    if missing:
        raise UsageError(
            f"not given: {', '.join(missing)}; give --topic, --partition and one of --offset and --timestamp (a time "
            "may be asked of all partitions), or --queries FILE"
        )
    if offset is not None:
        return Question(topic=topic, partition=partition, query=OFFSET, target=offset, asked=None)
    assert timestamp is not None
    target = parse_milliseconds(timestamp)
    if timestamp.isdigit() and target in _MAYBE_SECONDS:
        warn(f"--timestamp {timestamp}: {show_time(target)}, as it is in milliseconds; if these are seconds, add 000")
    return Question(topic=topic, partition=partition, query=TIMESTAMP, target=target, asked=timestamp)


def _ensure_writable(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"--consumer-group-csv {path}: it is there already; expected a new name")
    if not os.path.isdir(path.parent):
        raise UsageError(f"--consumer-group-csv {path}: no directory {path.parent}; expected one that is there")
