"""The offsets that consumers are to go on at, as `kafka-consumer-groups` takes them from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values, positions_in
from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.answers import OFFSET
from kidxlib.terminal.console import warn

_NAME: Final = ("topic", "partition")
#: Partitions without an offset to reset to that are named on screen.
NAMED_ON_SCREEN: Final = 5


def ensure_unambiguous(asked: pa.Table, held: pa.Table) -> None:
    """Consumers of a partition can go on at one offset alone.

    Args:
        asked: rows of `ASKED`.
        held: rows of `HELD`, all that were asked.

    Raises:
        UsageError: a partition is asked more than one thing, or several sources hold it.
    """
    counts = asked.group_by(list(_NAME), use_threads=False).aggregate([("queries", "sum")])
    for row in counts.filter(pc.field("queries_sum") > 1).slice(0, 1).to_pylist():
        name = f"{row['topic']}-{row['partition']}"
        raise UsageError(f"--consumer-group-csv: {name} has {row['queries_sum']} questions, expected one")
    sources = held.group_by(list(_NAME), use_threads=False).aggregate([("source", "list"), ("source", "count")])
    for row in sources.filter(pc.field("source_count") > 1).slice(0, 1).to_pylist():
        name = f"{row['topic']}-{row['partition']}"
        raise UsageError(f"--consumer-group-csv: {name} is in {', '.join(row['source_list'])}; pick one with --source")


def consumer_offsets(answers: pa.Table, held: pa.Table) -> Values:
    """Where consumers are to go on: the offset that `kafka-consumer-groups` would set; null where that is not known.

    A consumer starts at the offset that was asked for, or at the record that was found. As in Kafka's tool, one that is
    asked to go where the log does not reach goes to its nearer end, and to the end if no record is so young.

    Args:
        answers: rows of `RESULT`, one for each partition.
        held: rows of `HELD`, all that were asked.
    """
    at = positions_in(answers, held, _NAME)
    of_held: Values = pa.array(at, mask=at < 0)
    ends = held.take(of_held)
    # A checkpoint has the log start only where it is above the first segment's base offset.
    start: Values = pc.max_element_wise(ends["log_start_offset"], ends["first_base_offset"], pa.scalar(0, pa.int64()))
    end = ends["log_end_offset"]
    by_offset = pc.equal(answers["query"], pa.scalar(OFFSET))
    inside = pc.min_element_wise(pc.max_element_wise(answers["target"], start), end, skip_nulls=False)
    found = pc.if_else(by_offset, answers["target"], answers["offset"])
    nearest = pc.if_else(by_offset, inside, end)
    offsets: Values = pc.if_else(answers["found"], found, nearest)
    return pc.if_else(answers["answered"], offsets, pa.scalar(None, pa.int64()))


def write_consumer_offsets(
    path: Path, answers: pa.Table, held: pa.Table, not_asked: Sequence[TopicPartition] = ()
) -> bool:
    """Write the offsets that are known, a line for each partition, and warn of the others; whether there are none. A
    consumer group would be reset in part.

    Args:
        not_asked: partitions of the same topics that nobody could ask.

    Raises:
        KidxError: the file cannot be written.
    """
    rows = answers.append_column("goes_on_at", consumer_offsets(answers, held))
    known = np.asarray(rows["goes_on_at"].is_valid().to_numpy())
    topic, partition, offset = (rows[name].filter(known).cast(pa.string()) for name in (*_NAME, "goes_on_at"))
    lines: Values = pc.call_function("binary_join_element_wise", [topic, partition, offset, ","], pc.JoinOptions())
    try:
        with path.open("x") as file:
            file.writelines(f"{line}\n" for line in lines.to_pylist())
    except OSError as error:
        raise KidxError(f"--consumer-group-csv {describe_error(error)}") from error
    left_out = rows.filter(~known)
    if left_out.num_rows:
        named = [f"{row['topic']}-{row['partition']}" for row in left_out.slice(0, NAMED_ON_SCREEN).to_pylist()]
        warn(f"{path}: without {_few(named, left_out.num_rows)}, whose offsets are not known")
    if not_asked:
        named = [each.directory for each in not_asked[:NAMED_ON_SCREEN]]
        warn(
            f"{path}: without {_few(named, len(not_asked))}, which no source that was asked has: a consumer group "
            "would be reset in part"
        )
    return not (left_out.num_rows or not_asked)


def _few(named: Sequence[str], count: int) -> str:
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{', '.join(named)}{more}"
