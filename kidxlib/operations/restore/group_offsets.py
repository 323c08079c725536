"""Offsets that groups have committed behind the ends of restored partitions. A consumer that comes with such an offset
begins where `auto.offset.reset` says; and if new records have been written up to there before, it passes them over and
nobody tells. `__consumer_offsets` is not rewritten: Kafka's own tool sets the offsets, by a file that is written here
(`kafka-consumer-groups --reset-offsets --from-file`).
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import KidxError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.restore.coordinators import CoordinatorLog
from kidxlib.text.words import counted, shell_option

_OPTION: Final = "--reset-offsets"


@dataclass(frozen=True, slots=True, order=True)
class BehindEnd:
    """An offset that a group has committed, or may yet commit by a transaction, behind the end of a log."""

    group: str
    topic_partition: TopicPartition
    committed: int
    end: int

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "committed": self.committed,
            "end": self.end,
        }


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """
    Attributes:
        expected: what each group has committed of a partition, once the offsets behind ends are set back.
        behind: offsets behind the ends, in order.
        not_restored: how many offsets there are of each topic that is not restored.
        missing: the largest offset of each partition that is not restored, and whose topic is.
    """

    expected: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    behind: Sequence[BehindEnd] = ()
    not_restored: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def lines(self) -> Iterator[str]:
        for each in self.behind:
            yield (
                f"{each.group}: committed offset {each.committed} of {each.topic_partition.directory}, which ends at "
                f"{each.end}"
            )
        for topic, count in self.not_restored.items():
            yield (
                f"{counted(count, 'committed offset')} of topic {topic}, which is not restored: delete them before a "
                "topic of that name is made (kafka-consumer-groups --delete-offsets --group GROUP "
                f"{shell_option('--topic', topic)})"
            )

    def why_not(self, path: Path | None) -> Iterator[str]:
        """Why a plan is refused that does not say where the file is to be written."""
        if self.behind and path is None:
            first = self.behind[0]
            yield (
                f"groups have committed {counted(len(self.behind), 'offset')} beyond the ends of partitions, as "
                f"{first.group} has {first.committed} of {first.topic_partition.directory}, which ends at {first.end}: "
                f"they would pass over new records; {_OPTION} FILE writes the file with which kafka-consumer-groups "
                "sets them back"
            )


def group_offsets(read: Iterable[CoordinatorLog], ends: Mapping[TopicPartition, int]) -> GroupOffsets:
    """What the leaders' logs of `__consumer_offsets` say.

    Args:
        ends: where each restored partition ends.
    """
    expected: dict[tuple[str, TopicPartition], int] = {}
    behind: list[BehindEnd] = []
    not_restored: Counter[str] = Counter()
    missing: Counter[TopicPartition] = Counter()
    topics = {partition.topic for partition in ends}
    for log in read:
        expected |= log.offsets
        for (group, partition), offset in log.highest_offsets.items():
            end = ends.get(partition)
            if end is None and partition.topic in topics:
                missing[partition] = max(missing[partition], offset)
            elif end is None:
                not_restored[partition.topic] += 1
            elif offset > end:
                behind.append(BehindEnd(group, partition, offset, end))
                expected[group, partition] = end
    return GroupOffsets(
        dict(sorted(expected.items())),
        sorted(behind),
        dict(sorted(not_restored.items())),
        dict(sorted(missing.items())),
    )


def write_resets(path: Path, behind: Iterable[BehindEnd]) -> None:
    """Write the file for `kafka-consumer-groups --reset-offsets --from-file`: group, topic, partition, offset
    (`CsvUtils.CsvRecordWithGroup`).
    """
    text = io.StringIO()
    rows = ((each.group, *_topic_and_number(each.topic_partition), each.end) for each in behind)
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        path.write_text(text.getvalue())
    except OSError as error:
        raise KidxError(f"{_OPTION} {path}: cannot be written: {error.strerror}; nothing else was written") from error


def _topic_and_number(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition
