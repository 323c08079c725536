"""What answers leave out: partitions that a question means and that nobody asked, as they are in none of the places
that were named; and what was written since to such as are in an older log dir than others of their broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kidxlib.errors import KidxError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.read import ClusterMetadata
from kidxlib.operations.seek.request import Question
from kidxlib.reading.absent import (
    absent_partitions,
    log_dirs_without_metadata,
    may_be_elsewhere,
    numbered_below,
)
from kidxlib.reading.brokers_metadata import BrokersMetadata, not_of_one_time
from kidxlib.reading.left_out import COPY_IT, LeftOut, Why, lines_of
from kidxlib.storage.location import Location
from kidxlib.terminal.console import note, warn


@dataclass(frozen=True, slots=True)
class NotAsked:
    """What a question means besides what the partitions that were asked have answered.

    Attributes:
        left_out: partitions that the cluster's metadata gives to the brokers of the log dirs; and those that were asked
            in older log dirs.
        without_metadata: log dirs of which nobody can tell what else their brokers have.
        of_topics: all partitions that are known to be of the topics, whichever broker has them, and were not asked.
        of_another_time: log dirs that may be older than others of their broker, a line each.
    """

    left_out: Sequence[LeftOut] = ()
    without_metadata: Sequence[Location] = ()
    of_topics: Sequence[TopicPartition] = ()
    of_another_time: Sequence[str] = ()

    @property
    def is_problem(self) -> bool:
        """Whether a log dir that was asked ought to have one, or another one has it of a topic that was named; or an
        answer rests on an older log dir.
        """
        return any(each.is_problem for each in self.left_out)

    def show(self) -> None:
        """Say it, a line for each kind."""
        for line in lines_of(each for each in self.left_out if not each.is_problem):
            note(line)
        for log_dir in self.without_metadata:
            note(may_be_elsewhere(log_dir))
        for line in self.of_another_time:
            warn(line)
        for line in lines_of(each for each in self.left_out if each.is_problem):
            warn(line)

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"topic": each.partition.topic, "partition": each.partition.partition, "why": each.why}
            for each in self.left_out
        ]

    def with_times(self, brokers: BrokersMetadata, asked: Iterable[tuple[TopicPartition, Location]]) -> NotAsked:
        """With what tells that log dirs are not of one time.

        Args:
            brokers: of all log dirs at hand.
            asked: the partitions that were asked, with their log dirs.
        """
        left_out, of_another_time = not_of_one_time(brokers, asked)
        return replace(self, left_out=[*self.left_out, *left_out], of_another_time=of_another_time)

    def why_not_in(self, partition: TopicPartition) -> str | None:
        """Where a partition is that was asked for; None where nobody says it."""
        for each in self.left_out:
            if each.partition == partition and each.why is Why.OTHER_LOG_DIR:
                name = "" if each.directory_id is None else f" (directory.id {each.directory_id})"
                return (
                    f"no partition {partition.directory} in it; by the cluster's metadata it is in another log dir of "
                    f"the broker{name}: name that one"
                )
            if each.partition == partition and each.aside is not None:
                return f"no partition {partition.directory} in it; there is {each.aside}: {COPY_IT}"
        return None


def find_not_asked(
    question: Question, log_dirs: Collection[Location], brokers: BrokersMetadata, there: Collection[TopicPartition]
) -> NotAsked:
    """Look for partitions that a question means in what log dirs know of their brokers.

    Args:
        log_dirs: those that were asked as a whole.
        brokers: of all log dirs at hand, one of which may have the cluster's metadata.
        there: partitions that were asked, or that have a directory.
    """

    def means(partition: TopicPartition) -> bool:
        return question.means(partition.topic, partition.partition)

    known = []
    for log_dir in log_dirs:
        with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
            owner = brokers.owner(log_dir)
            if owner.cluster_id is not None and (metadata := brokers.of_cluster(owner.cluster_id)) is not None:
                known.append(metadata.to_end)
    asked = set(there)
    of_topics = {each for each in _of_topics(known, there) if means(each)} - asked
    left_out = absent_partitions(log_dirs, means, brokers, asked, by_name=question.topic is not None)
    return NotAsked(left_out, log_dirs_without_metadata(log_dirs, brokers), sorted(of_topics))


def _of_topics(known: Iterable[ClusterMetadata], there: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """Partitions that there are by the metadata, and by the numbers of others: a topic's begin at 0 and lack none."""
    for metadata in known:
        yield from metadata.assignments
    yield from numbered_below(there)
