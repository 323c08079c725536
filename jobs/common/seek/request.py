"""What a run of seek is asked for: options, put together and checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jobs.common.seek.answers import Format
from jobs.common.seek.check_queries import check_queries
from kidxlib.errors import UsageError
from kidxlib.lookup.columns import OFFSET, TIMESTAMP
from kidxlib.run.context import RunContext, absolute
from kidxlib.run.settings import read_settings
from kidxlib.times import parse_milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest:
    """What to answer.

    Attributes:
        question: topic, partition, kind and target of the command line; None where `queries` names a file.
        asked: its time, as it was typed.
        output: where the answers go; None for the screen.
        consumer_group_csv: where offsets to reset to go.
    """

    context: RunContext
    question: tuple[str, int, str, int] | None
    asked: str | None
    queries: str | None
    output: str | None
    consumer_group_csv: Path | None
    source: str | None


def seek_request(
    *,
    catalog: str | None,
    database: str | None,
    source: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    timestamp: str | None,
    queries: str | None,
    output: str | None,
    consumer_group_csv: Path | None,
    settings_file: Path,
) -> SeekRequest:
    """Put options and settings together.

    Raises:
        UsageError: the settings file or an option is wrong, or they ask nothing, or too much.
    """
    if output is not None:
        Format.of(output)
    if consumer_group_csv is not None:
        _ensure_writable(consumer_group_csv)
    if queries is not None:
        if (topic, partition, offset, timestamp) != (None, None, None, None):
            raise UsageError("--queries: the file has the questions; give none beside it")
        if output is None and consumer_group_csv is None:
            raise UsageError("--queries: give --output FILE for the answers")
        question = None
    elif topic is None or partition is None or (offset is None) == (timestamp is None):
        raise UsageError("give --topic, --partition and one of --offset and --timestamp, or --queries FILE")
    elif offset is not None:
        question = topic, partition, OFFSET, offset
    else:
        assert timestamp is not None
        question = topic, partition, TIMESTAMP, parse_milliseconds(timestamp)
    if queries is not None:
        check_queries(absolute(queries))
    return SeekRequest(
        question=question,
        asked=timestamp,
        queries=None if queries is None else absolute(queries),
        output=None if output is None else absolute(output),
        consumer_group_csv=consumer_group_csv,
        source=source,
        context=RunContext.of(read_settings(settings_file), catalog, database, now=None).with_catalog(),
    )


def _ensure_writable(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"--consumer-group-csv {path}: it is there already; expected a new name")
    if not os.path.isdir(path.parent):
        raise UsageError(f"--consumer-group-csv {path}: no directory {path.parent}; expected one that is there")
