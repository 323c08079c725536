"""The offsets that a reading leaves out, or that are asked for and missing: each with its reason, and a line for each
reason.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.log_dir import IN_BUCKET_OR_LOST
from kidxlib.text.words import counted

#: How to read directories that do not have a partition's name.
COPY_IT: Final = "to read one, copy it to a directory called <topic>-<partition>, and name that"
#: How many partitions a line names.
_NAMED: Final = 5


class Why(enum.StrEnum):
    """Why offsets are not read."""

    BEYOND_HIGH_WATERMARK = "beyond-high-watermark"
    BEYOND_LAST_STABLE_OFFSET = "beyond-last-stable-offset"
    BELOW_LOG_START = "below-log-start"
    HIDDEN_BELOW_LOG_START = "hidden-below-log-start"
    LOG_START_ABOVE_END = "log-start-above-end"
    BEYOND_LOG_END = "beyond-log-end"
    ENDS_BELOW_HIGH_WATERMARK = "log-ends-below-high-watermark"
    ENDS_BEFORE_INDEX = "log-ends-before-its-index"
    BEFORE_FIRST_SEGMENT = "before-first-segment"
    FIRST_LOGS_MISSING = "first-logs-missing"
    FIRST_LOGS_NOT_KNOWN = "first-logs-not-known"
    BETWEEN_LOGS = "between-logs"
    NO_LOG = "no-log"
    NO_DIRECTORY = "no-directory"
    NOT_ANYWHERE = "not-anywhere"
    OTHER_LOG_DIR = "other-log-dir"
    NOT_IN_LOG_DIRS = "not-in-log-dirs"
    OLDER_LOG_DIR = "older-log-dir"
    OTHER_TOPIC_ID = "other-topic-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Offsets of a partition that are not read, or a whole partition, which has no `edge`.

    Attributes:
        end_offset: the offset after the last one; None for no end.
        edge: the high watermark, last stable offset, log start or log end beyond which the offsets lie.
        records: how many records have the offsets; None if these were not counted.
        directory_id: the `directory.id` of the log dir that has the partition by the metadata, where the partition has
            no directory; None if the metadata does not say it.
        aside: for a partition without a directory, one with its records that the broker moves, deletes or has set
            aside, or that somebody has renamed; None for none.
        remedy: what to do about logs that begin among missing offsets and that no broker loads; None for none.
        unmounted: the empty ones of the log dirs that are read, if none of these has the partition; None for none.
        told_by: what shows that a partition is in an older log dir, or has another topic's id.
        is_problem: whether the caller gets less than there is, or not what was asked for; otherwise it is a remark.
    """

    partition: TopicPartition
    why: Why
    first_offset: int = 0
    end_offset: int | None = None
    edge: int = 0
    records: int | None = None
    directory_id: str | None = None
    aside: str | None = None
    remedy: str | None = None
    unmounted: str | None = None
    told_by: str | None = None
    is_problem: bool = True

    @property
    def offsets(self) -> str:
        """The offsets in words."""
        if self.end_offset is None:
            return f"{self.partition.directory} from {self.first_offset} on"
        if self.end_offset == self.first_offset + 1:
            return f"{self.partition.directory} {self.first_offset}"
        return f"{self.partition.directory} {self.first_offset} to {self.end_offset - 1}"


def lines_of_left_out(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """A line for each reason, and for each sign that partitions are not as they should be."""
    by_reason: dict[Why, dict[str | None, list[LeftOut]]] = {}
    for left in left_out:
        by_reason.setdefault(left.why, {}).setdefault(left.told_by, []).append(left)
    for why in Why:
        for told_by, group in by_reason.get(why, {}).items():
            yield _line(why, group) if told_by is None else _line_told_by(why, told_by, group)


#: The words about offsets, by reason: what they are, what they lie beyond, and what to do.
_OF_OFFSETS: Final = {
    Why.BEYOND_HIGH_WATERMARK: (
        f"not read: {{}} beyond the high watermark that {HIGH_WATERMARK_CHECKPOINT} has",
        "the high watermark is",
        "; --to-log-end (in Python to_log_end=True, in Spark toLogEnd=true) reads them",
    ),
    Why.BEYOND_LAST_STABLE_OFFSET: (
        "not read: {} from the last stable offset on, where a transaction begins that has not ended",
        "the last stable offset is",
        "; isolation read_uncommitted reads them",
    ),
    Why.BELOW_LOG_START: ("asked for and not there: offsets below the log start", "the log starts at", ""),
    Why.HIDDEN_BELOW_LOG_START: (
        f"not read: {{}} below the log start that {LOG_START_OFFSET_CHECKPOINT} has",
        "the log start is",
        "",
    ),
    Why.LOG_START_ABOVE_END: (
        f"not read: {{}}, as the log start that {LOG_START_OFFSET_CHECKPOINT} has is above the log end",
        "the log start is",
        "; kidx verify says what is wrong",
    ),
    Why.BEYOND_LOG_END: ("asked for and not there: offsets beyond the log end", "the log ends at", ""),
    Why.ENDS_BELOW_HIGH_WATERMARK: (
        "missing: {} below the high watermark, before which the log ends",
        "the high watermark is",
        "; look for a replica or a copy that has them",
    ),
    Why.ENDS_BEFORE_INDEX: (
        "missing: {} or more behind the end of the log, which its .index has",
        "the log ends at",
        "; look for a replica or a copy that has them",
    ),
    Why.BEFORE_FIRST_SEGMENT: (
        "not in this log dir: {} between the log start and the first segment",
        "the first segment begins at",
        "; of a topic with tiered storage read its bucket, too",
    ),
    Why.FIRST_LOGS_MISSING: (
        f"missing: {{}} before the first log, though {LEADER_EPOCH_CHECKPOINT} begins there, which a broker that "
        "deletes logs cuts",
        "the first log begins at",
        "; look for a replica or a copy that has them",
    ),
    Why.FIRST_LOGS_NOT_KNOWN: (
        f"not known: {{}} before the first log, where {LEADER_EPOCH_CHECKPOINT} begins",
        "the first log begins at",
        f"; {IN_BUCKET_OR_LOST}",
    ),
    Why.BETWEEN_LOGS: (
        "in no log: {} between two logs",
        "the next log begins at",
        "; unless the topic is compacted, a segment is missing: kidx verify looks for who has it",
    ),
}
#: The words about whole partitions, by reason: what they are, and what to do.
_OF_PARTITIONS: Final = {
    Why.NO_LOG: ("no .log in the directory of {}", "if there was one, look for a copy of it"),
    Why.NO_DIRECTORY: (
        "no directory of {} that the cluster's metadata gives to this broker",
        "look for a copy of it",
    ),
    Why.NOT_ANYWHERE: ("asked for and not there: {}", "see that the names are right"),
    Why.OTHER_LOG_DIR: ("in other log dirs of the broker: {}", "name all log dirs to read them"),
    Why.NOT_IN_LOG_DIRS: (
        "in none of these log dirs, by the numbers of those that are: {}",
        "name all log dirs of the broker: one of them has the cluster's metadata, which says where they are",
    ),
}


#: The words about partitions that are read although something shows that they are not as they should be.
_AS_TOLD: Final = {Why.OLDER_LOG_DIR: "in an older log dir", Why.OTHER_TOPIC_ID: "with another topic id"}


def mount_remedy(unmounted: str) -> str:
    return f"nothing is in {unmounted}: is the disk mounted? Mount it, and run this again"


def _line_told_by(why: Why, told_by: str, group: list[LeftOut]) -> str:
    names = _first_few([left.partition.directory for left in group])
    return f"{_AS_TOLD[why]}: {counted(len(group), 'partition')}: {names}; {told_by}"


def _line(why: Why, group: list[LeftOut]) -> str:
    if why in _OF_PARTITIONS:
        what, to_do = _OF_PARTITIONS[why]
        names = _first_few([left.partition.directory for left in group])
        aside = [left.aside for left in group if left.aside is not None]
        folders = f"; perhaps all that is left is {_first_few(aside)}: {COPY_IT}" if aside else ""
        if group[0].unmounted is not None:
            to_do = mount_remedy(group[0].unmounted)
        return f"{what.format(counted(len(group), 'partition'))}: {names}; {to_do}{folders}{_remedies(group)}"
    what, edge, to_do = _OF_OFFSETS[why]
    names = _first_few([f"{left.offsets} ({edge} {left.edge})" for left in group])
    return f"{what.format(_sizes(group))}: {names}{to_do}{_remedies(group)}"


def _remedies(group: list[LeftOut]) -> str:
    remedies = [left.remedy for left in group if left.remedy is not None]
    return f"; {_first_few(remedies)}" if remedies else ""


def _sizes(group: list[LeftOut]) -> str:
    """The number of offsets, and of records if all were counted."""
    sizes = [None if left.end_offset is None else left.end_offset - left.first_offset for left in group]
    offsets = "offsets" if None in sizes else counted(sum(size or 0 for size in sizes), "offset")
    records = [left.records for left in group if left.records is not None]
    of_records = f" ({counted(sum(records), 'record')})" if len(records) == len(group) else ""
    return f"{offsets}{of_records} of {counted(len(group), 'partition')}"


def _first_few(texts: list[str]) -> str:
    more = f", and {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more
