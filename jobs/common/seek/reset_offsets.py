"""The offsets that consumers are to go on at, as `kafka-consumer-groups` takes them from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jobs.common.seek.executors import Partitions
from jobs.common.seek.queries import Asked
from kidxlib.errors import UsageError
from kidxlib.lookup.columns import OFFSET
from kidxlib.terminal.console import warn


def reset_offsets(
    answers: Iterator[Mapping[str, Any]], ends: Mapping[tuple[str, int], tuple[int, int | None]]
) -> Iterator[tuple[str, int, int | None]]:
    """Where consumers are to go on: topic, partition, and the offset that `kafka-consumer-groups` would set; None where
    that is not known.

    A consumer starts at the offset that was asked for, or at the record that was found. As in Kafka's tool, one that is
    asked to go where the log does not reach goes to its nearer end, and to the end if no record is so young.

    Args:
        answers: rows of a result, one for each partition.
        ends: log start and log end offset of each partition.
    """
    for answer in answers:
        key = answer["topic"], answer["partition"]
        start, end = ends.get(key, (0, None))
        if not answer["answered"]:
            yield *key, None
        elif answer["found"]:
            yield *key, answer["target"] if answer["query"] == OFFSET else answer["offset"]
        elif end is None:
            yield *key, None
        else:
            yield *key, min(max(answer["target"], start), end) if answer["query"] == OFFSET else end


#: Partitions without an offset to reset to that are named on screen.
NAMED_ON_SCREEN: Final = 5


def ensure_unambiguous(wanted: Sequence[Asked], partitions: Partitions) -> None:
    """Consumers of a partition can go on at one offset alone.

    Raises:
        UsageError: a partition is asked more than one thing, or several sources hold it.
    """
    queries = Counter[tuple[str, int]]()
    for each in wanted:
        queries[each.topic, each.partition] += each.queries
    for (topic, partition), count in queries.items():
        if count > 1:
            raise UsageError(f"--consumer-group-csv: {topic}-{partition} has {count} questions, expected one")
        sources = [held.facts.source for held in partitions.get((topic, partition), ())]
        if len(sources) > 1:
            raise UsageError(
                f"--consumer-group-csv: {topic}-{partition} is in {', '.join(sources)}; pick one with --source"
            )


def write_reset_offsets(path: Path, rows: Sequence[Mapping[str, Any]], partitions: Partitions) -> None:
    ends = {
        key: (held[0].facts.log_start_offset or 0, held[0].facts.log_end_offset) for key, held in partitions.items()
    }
    left_out = []
    with path.open("x") as file:
        for topic, partition, offset in reset_offsets(iter(rows), ends):
            if offset is None:
                left_out.append(f"{topic}-{partition}")
            else:
                file.write(f"{topic},{partition},{offset}\n")
    if left_out:
        more = f" and {len(left_out) - NAMED_ON_SCREEN} more" if len(left_out) > NAMED_ON_SCREEN else ""
        warn(f"{path}: without {', '.join(left_out[:NAMED_ON_SCREEN])}{more}, whose offsets are not known")
