"""Ends by a time (`--propose-until`): a file for `--until-offsets`, which somebody looks at before it is used."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import KidxError, UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.restore.choose import leader_of
from kidxlib.operations.restore.inventory import OldReplica
from kidxlib.operations.restore.until import RESTORED_WHOLE, kept_segments, log_of
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import Wanted
from kidxlib.terminal import interrupts
from kidxlib.text.times import show_time
from kidxlib.text.words import counted

_OPTION: Final = "--until-offsets"


@dataclass(frozen=True, slots=True)
class ProposedEnd:
    """Where a partition ends by a time.

    Attributes:
        offset: of the first batch whose largest timestamp is above the time; the log's end where there is none.
        end: the log's end.
        later: how many batches behind that offset have no timestamp above the time.
        later_to: the last offset of these.
    """

    topic_partition: TopicPartition
    offset: int
    end: int
    later: int = 0
    later_to: int = -1

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "offset": self.offset,
            "was": self.end,
            "later_batches": self.later,
            "later_to": None if not self.later else self.later_to,
        }

    def warning(self, time_ms: int) -> str | None:
        if not self.later:
            return None
        return (
            f"{self.topic_partition.directory}: {counted(self.later, 'batch', 'batches')} after offset {self.offset} "
            f"are not later than {show_time(time_ms)}, the last with offset {self.later_to}, as producers' times need "
            "not ascend: left out, too; change the offset in the file to keep them"
        )


def propose_ends(partitions: Iterable[Sequence[OldReplica]], time_ms: int, threads: int) -> list[ProposedEnd]:
    """The proposed end of each partition, but of topics that are restored whole. Headers are read from the first log on
    that has a later timestamp.

    Args:
        time_ms: in ms since the epoch.
    """
    leaders = [leader_of(replicas) for replicas in partitions]
    leaders = [
        leader
        for leader in leaders
        if leader.topic_partition.topic not in RESTORED_WHOLE and not leader.forecast.refusals
    ]
    with ThreadPoolExecutor(threads, thread_name_prefix="kidx-ends") as pool:
        return list(pool.map(lambda leader: _proposed_end(leader, time_ms), leaders))


def _proposed_end(leader: OldReplica, time_ms: int) -> ProposedEnd:
    offset: int | None = None
    before, later, later_to = leader.start_offset, 0, -1
    for segment in kept_segments(leader):
        recovery = leader.forecast.recoveries.get(segment.base_offset)
        if offset is None and recovery is not None and recovery.max_timestamp_ms <= time_ms:
            before = max(before, recovery.next_offset)
            continue
        with contextlib.closing(log_of(leader, segment)) as log:
            for table in BatchWalk(log, 0, Wanted(), whole=False).tables():
                is_later, last = table.rows["max_timestamp"] > time_ms, table.rows["last_offset"]
                if offset is None:
                    first = int(is_later.argmax()) if is_later.any() else len(last)
                    before = max(before, int(last[first - 1]) + 1) if first else before
                    if first == len(last):
                        continue
                    offset, is_later, last = before, is_later[first:], last[first:]
                if not is_later.all():
                    later += int((~is_later).sum())
                    later_to = int(last[~is_later][-1])
    end = leader.end_offset
    return ProposedEnd(leader.topic_partition, end if offset is None else offset, end, later, later_to)


def write_proposal(path: Path, proposed: Iterable[ProposedEnd]) -> None:
    """Write the offsets in the form of `kafka-delete-records --offset-json-file`, into a new file.

    Raises:
        UsageError: the file is there already: somebody may have changed it.
    """
    partitions = [{name: each.as_json()[name] for name in ("topic", "partition", "offset")} for each in proposed]
    try:
        with interrupts.stopping(lambda: None), path.open("x") as file:  # a part of it would be in the way
            file.write(json.dumps({"partitions": partitions, "version": 1}, indent=2) + "\n")
            interrupts.tell_from_here(f"{path} is written")
    except FileExistsError as error:
        raise UsageError(f"{_OPTION} {path}: it is there already; name a new file for the proposal") from error
    except OSError as error:
        raise KidxError(f"{_OPTION} {path}: cannot be written: {error.strerror}") from error
