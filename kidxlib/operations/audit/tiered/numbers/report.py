"""The numbers of an audit, on screen and as JSON."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kidxlib.operations.audit.tiered.numbers.numbers import Numbers
from kidxlib.operations.audit.tiered.numbers.sizes import CopyLag, TopicSizes
from kidxlib.operations.audit.tiered.numbers.what_if import Deleted, WhatIf
from kidxlib.terminal.console import print_line, print_more
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time

#: Topics and partitions that are shown; JSON has all.
_SHOWN: Final = 10


def numbers_as_json(numbers: Numbers) -> dict[str, Any]:
    """What each topic takes, each partition that is behind, and what other settings would free."""
    return {
        "as_of_ms": numbers.as_of_ms,
        "log_dirs": list(map(str, numbers.log_dirs)),
        "topics": [_topic_as_json(each) for each in numbers.topics],
        "copy_lags": [_lag_as_json(each, numbers.as_of_ms) for each in numbers.lags],
        "what_if": [_what_if_as_json(each) for each in numbers.what_if],
    }


def show_numbers(numbers: Numbers) -> None:
    """Print the largest topics, and the partitions that are behind the longest."""
    largest = sorted(numbers.topics, key=lambda each: -(each.object_bytes + (each.local_bytes or 0)))
    if largest:
        print_table(
            "topics",
            ("topic", "copied segments", "their logs", "all objects", "in log dirs", "to be copied"),
            [
                (
                    each.topic,
                    each.segments,
                    each.log_bytes,
                    each.object_bytes,
                    "-" if each.local_bytes is None else each.local_bytes,
                    "-" if each.lag_bytes is None else each.lag_bytes,
                )
                for each in largest[:_SHOWN]
            ],
            text_columns=1,
        )
        print_more(len(largest) - _SHOWN, "; --json has them all")
    for lag in numbers.lags[:_SHOWN]:
        print_line(
            f"to be copied: {lag.partition.topic}-{lag.partition.partition} from offset {lag.first_offset} on: "
            f"{counted(lag.segments, 'segment')}, {lag.bytes:,} bytes, for {_waiting(lag, numbers.as_of_ms)}"
        )
    print_more(len(numbers.lags) - _SHOWN, "; --json has them all")


def show_what_if(numbers: Numbers, settings: dict[str, int]) -> None:
    """Print what other settings would free, the most first."""
    if not settings:
        return
    said = ", ".join(f"{name}={value}" for name, value in settings.items())
    found = sorted(numbers.what_if, key=lambda each: -(each.freed.remote.bytes + each.freed.local.bytes))
    print_table(
        f"what if {said}, as of {show_time(numbers.as_of_ms)}",
        ("topic", "segments freed in the bucket", "bytes there", "in log dirs", "bytes in these"),
        [
            (
                each.topic,
                each.freed.remote.segments,
                each.freed.remote.bytes,
                each.freed.local.segments,
                each.freed.local.bytes,
            )
            for each in found[:_SHOWN]
        ],
        text_columns=1,
    )
    print_more(len(found) - _SHOWN, "; --json has them all")
    unknown = [each for each in found if each.unknown]
    if unknown:
        print_line(
            f"not known: {', '.join(unknown[0].unknown)} of {counted(len(unknown), 'topic')} (the first: "
            f"{unknown[0].topic}); no limit stands in for them; --server-properties says what brokers were started with"
        )


def _waiting(lag: CopyLag, as_of_ms: int) -> timedelta:
    return timedelta(milliseconds=max(as_of_ms - lag.since_ms, 0))


def _topic_as_json(each: TopicSizes) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "topic_id": each.topic_id,
        "segments": each.segments,
        "log_bytes": each.log_bytes,
        "object_bytes": each.object_bytes,
        "partitions": each.partitions,
        "partitions_with_log": each.partitions_with_log,
        "local_bytes": each.local_bytes,
        "copy_lag_bytes": each.lag_bytes,
    }


def _lag_as_json(each: CopyLag, as_of_ms: int) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "topic_id": each.partition.topic_id,
        "segments": each.segments,
        "bytes": each.bytes,
        "first_offset": each.first_offset,
        "since_ms": each.since_ms,
        "waiting_ms": max(as_of_ms - each.since_ms, 0),
    }


def _what_if_as_json(each: WhatIf) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "topic_id": each.topic_id,
        "due": _deleted_as_json(each.due),
        "freed": _deleted_as_json(each.freed),
        "unknown": list(each.unknown),
    }


def _deleted_as_json(each: Deleted) -> dict[str, Any]:
    return {
        "bucket": {"segments": each.remote.segments, "log_bytes": each.remote.bytes},
        "log_dirs": {"segments": each.local.segments, "log_bytes": each.local.bytes},
    }
