"""Puts what was made into a bucket, where the cluster and everybody else have left it as it was found.

A cluster goes on working meanwhile: right before, the metadata is read again. Once all is done it is read once more: a
segment that was deleted in between does not take what was put with it.
"""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from kidxlib.errors import PublishError
from kidxlib.format.checksums.crc import crc32c
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.log.remote.objects import object_name
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.audit.tiered.plan import TieredPlan
from kidxlib.operations.audit.tiered.remote_metadata import MetadataReader
from kidxlib.operations.build.tiered.rows import RemadeRow
from kidxlib.operations.build.tiered.work import partition_directory
from kidxlib.storage.directory import read_file
from kidxlib.storage.location import Location
from kidxlib.storage.publisher import Owner, Published, publish_if
from kidxlib.storage.store.at_once import AT_ONCE, in_order

#: States by topic id, partition and segment id.
_States: TypeAlias = Mapping[tuple[str, int, str], str]
_FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED.name


class Outcome(enum.StrEnum):
    """What became of an object that is missing or broken."""

    TO_PUT = "to-put"  # it is in the mirror, and --apply would put it
    PUT = "put"
    SAME = "same-bytes"  # somebody else has put what was made
    CONFLICT = "conflict"  # somebody else has put something else, or removed it
    NOT_PUT = "not-put"  # its segment is not to be touched any more, or the run was interrupted
    LEFT_OVER = "left-over"  # its segment was deleted while it was put
    FAILED = "failed"  # it could not be put
    NOT_MADE = "not-made"  # what it should be is not certain
    RIGHT = "right"  # by its log nothing is wrong with it

    @property
    def is_mended(self) -> bool:
        return self in (Outcome.PUT, Outcome.SAME, Outcome.RIGHT)


@dataclass(frozen=True, slots=True)
class Mended:
    """An object, what became of it, and why."""

    row: RemadeRow
    outcome: Outcome
    why: str | None = None


def as_planned(row: RemadeRow) -> Mended:
    """What becomes of an object before anything is put."""
    if row.reason is None:
        return Mended(row, Outcome.RIGHT)
    if row.why_not is not None:
        return Mended(row, Outcome.NOT_MADE, row.why_not)
    return Mended(row, Outcome.TO_PUT)


@dataclass(frozen=True, slots=True)
class Putting:
    """Puts objects from a mirror into a bucket.

    Attributes:
        interrupted: no further object is begun once this is set.
    """

    plan: TieredPlan
    reader: MetadataReader
    mirror: Location
    interrupted: threading.Event

    def put(self, rows: Sequence[RemadeRow]) -> Iterator[Mended]:
        """Put some objects, in any order.

        Raises:
            RemoteLogMetadataError, OSError: the metadata cannot be read again.
        """
        done: list[Mended] = []
        for start in range(0, len(rows), AT_ONCE):
            group = rows[start : start + AT_ONCE]
            if self.interrupted.is_set():
                done += [Mended(row, Outcome.NOT_PUT, "the run was interrupted") for row in group]
                continue
            done += in_order(partial(self._put, self._states()), group)
        if any(each.outcome is Outcome.PUT for each in done):
            done = list(in_order(partial(self._after, self._states()), done))
        yield from done

    def _states(self) -> _States:
        rows = self.reader.read().segments.select(["topic_id", "partition", "segment_id", "state"]).to_pylist()
        return {(row["topic_id"], row["partition"], row["segment_id"]): row["state"] for row in rows}

    def _put(self, states: _States, row: RemadeRow) -> Mended:
        partition = _partition(row)
        content = read_file(partition_directory(self.mirror, self.plan.layout, partition), row.name)
        if content is None or (len(content), crc32c(content)) != (row.made_bytes, row.made_crc32c):
            return Mended(row, Outcome.FAILED, "the mirror does not have what was made: another run writes to it")
        try:
            if (why_not := self._why_not(states, row)) is not None:
                return Mended(row, Outcome.NOT_PUT, why_not)
            directory = partition_directory(self.plan.bucket, self.plan.layout, partition)
            published = publish_if(directory, row.name, content, row.is_as_seen, self._owner(row))
        except PublishError as error:
            return Mended(row, Outcome.FAILED, str(error))
        except OSError as error:
            return Mended(row, Outcome.FAILED, f"{self._log(row)}: {error.strerror or error}")
        if published is Published.KEPT:
            return Mended(row, Outcome.CONFLICT, "it is not what was read: somebody else has written or removed it")
        return Mended(row, Outcome.PUT if published is Published.WRITTEN else Outcome.SAME)

    def _why_not(self, states: _States, row: RemadeRow) -> str | None:
        """Why a segment is not to be touched; None where it may be.

        Raises:
            OSError: its log cannot be asked for.
        """
        state = states.get((row.topic_id, row.partition, row.segment_id))
        if state != _FINISHED:
            return f"its segment is {state} by now" if state else "the metadata has no such segment any more"
        try:
            size = self._log(row).stat().st_size
        except FileNotFoundError:
            return "its .log has gone: the segment was deleted, and the metadata does not say so yet"
        return None if size == row.log_bytes else f"its .log has {size:,} bytes by now, not {row.log_bytes:,}"

    def _after(self, states: _States, mended: Mended) -> Mended:
        """What became of an object that was put, in the end."""
        if mended.outcome is not Outcome.PUT:
            return mended
        try:
            why = self._why_not(states, mended.row)
        except OSError:
            return mended  # it was put; what became of the segment then, the next audit says
        if why is None:
            return mended
        return replace(mended, outcome=Outcome.LEFT_OVER, why=f"{why}; nobody will delete what was put")

    def _log(self, row: RemadeRow) -> Location:
        return self.plan.directory(_partition(row)) / object_name(row.start_offset, row.segment_id, LOG_SUFFIX)

    def _owner(self, row: RemadeRow) -> Owner | None:
        log = self._log(row)
        return Owner.of(os.lstat(log)) if isinstance(log, Path) else None


def _partition(row: RemadeRow) -> TopicIdPartition:
    return TopicIdPartition(row.topic_id, row.topic, row.partition)
