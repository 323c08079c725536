"""What is said of a replica: how it compares with another one of its partition, and which partitions its source lacks,
where another source has most of the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.tables.protocol import TablesToRead

#: So many are named.
_NAMED = 20


class Verdict(StrEnum):
    """How a replica compares with another. What stands further up is said where several are true.

    Attributes:
        DIFFERS: it has other batches in a range of offsets.
        EPOCHS_DISAGREE: it has the same batches, of other leader epochs; in compacted topics, of epochs that cannot
            both be right.
        LACKS: it has no batches in a range of offsets before its end.
        NOT_COMPARABLE: nothing could be compared, or not all, as a log is damaged or not known; `reason` says why.
        BEHIND: it has the same as far as it was compared, and ends earlier.
        SAME_UP_TO: all that was compared is the same, and that is not all: see `compared_to`.
        SAME: it was compared to its end, and is the same.
    """

    DIFFERS = "differs"
    EPOCHS_DISAGREE = "epochs-disagree"
    LACKS = "lacks"
    NOT_COMPARABLE = "not-comparable"
    BEHIND = "behind"
    SAME_UP_TO = "same-up-to"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """A byte of a log.

    Attributes:
        log_path: the `.log`.
        position: of the first byte of a batch.
    """

    log_path: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two replicas begin to differ.

    Attributes:
        first_offset, last_offset: the first range of offsets whose digests differ, as narrow as the catalog tells it.
        ranges: how many such ranges there are.
        offset: the first offset that differs, by the headers of batches: one of the two has a batch there that the
            other has not. None where the logs were not read.
        place: the batch there, or the one that stands where it should be; None at the end of the log.
        other_place: the same of the other replica.
        note: why the logs do not tell the first offset; None where they do.
    """

    first_offset: int
    last_offset: int
    ranges: int
    offset: int | None = None
    place: LogPlace | None = None
    other_place: LogPlace | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Offsets of which a replica has no batch, before its end.

    Attributes:
        source: which lacks them.
        first_offset, last_offset: from the first range that it lacks to the last one.
        ranges: how many there are.
    """

    source: str
    first_offset: int
    last_offset: int
    ranges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDifference:
    """Where leader epochs of two replicas begin to disagree.

    Attributes:
        offset: the first offset at which they do.
        epoch, other_epoch: of the batches there; −1 is none.
    """

    offset: int
    epoch: int
    other_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaVerdict:
    """How a replica compares with another one of its partition.

    Attributes:
        topic_id: None where neither source says it.
        source: which has the replica.
        compared_with: the source that it is compared with: one of those that agree.
        agreeing: the sources that agree with that one, that one among them.
        has_majority: these are more than half of the sources that have the partition; else nobody knows which of two
            replicas that differ is right.
        compacted: how it is known that the topic is compacted, in which case leader epochs and counts of records alone
            are compared; None of others.
        first_offset, end_offset: the offsets that both should have: from the first on, up to below the end. None where
            there are none.
        undecided_offsets: how many of these digests could not tell of.
        compared_to, log_end_offset: up to which offset it was compared, of how many its log has.
        lacks: what one of the two has no batch of; None where that is nothing.
        behind_offsets: by how many offsets its log ends before that of the other; 0 where it does not.
        records, other_records: in all of its segments, and in all of the other's; None where not all are known.
        difference: None where digests do not differ.
        epochs: None where leader epochs do not disagree.
        reason: why nothing could be compared, or why some offsets are undecided; None where there is nothing to say.
    """

    topic: str
    partition: int
    topic_id: str | None
    source: str
    compared_with: str
    agreeing: list[str]
    has_majority: bool
    verdict: Verdict
    compacted: str | None
    first_offset: int | None
    end_offset: int | None
    undecided_offsets: int
    compared_to: int | None
    log_end_offset: int
    lacks: Lack | None
    behind_offsets: int
    records: int | None
    other_records: int | None
    difference: Difference | None
    epochs: EpochDifference | None
    reason: str | None

    def sentence(self) -> str:
        """What is said of a replica, in one line."""
        if self.verdict is Verdict.DIFFERS and self.difference is not None:
            difference = self.difference
            first = "" if difference.offset is None else f", first at offset {difference.offset}"
            ranges = f" and {difference.ranges - 1:,} more ranges" if difference.ranges > 1 else ""
            right = "" if self.has_majority else "; which is right, the catalog does not know"
            return (
                f"source {self.source} has other batches than {', '.join(self.agreeing)} in offsets "
                f"{difference.first_offset} to {difference.last_offset}{ranges}{first}{right}"
            )
        if self.verdict is Verdict.EPOCHS_DISAGREE and self.epochs is not None:
            epochs = self.epochs
            return (
                f"source {self.source} has leader epoch {epochs.epoch} at offset {epochs.offset}, "
                f"{self.compared_with} has {epochs.other_epoch}"
            )
        if self.verdict is Verdict.LACKS and self.lacks is not None:
            lacks = self.lacks
            ranges = f" ({lacks.ranges:,} ranges in these)" if lacks.ranges > 1 else ""
            other = self.compared_with if lacks.source == self.source else self.source
            offsets = f"offsets {lacks.first_offset}–{lacks.last_offset}{ranges}"
            return f"source {lacks.source} lacks {offsets}, which {other} has"
        reason = "" if self.reason is None else f"; {self.reason}"
        if self.verdict is Verdict.BEHIND:
            return f"source {self.source} ends {self.behind_offsets:,} offsets before {self.compared_with}{reason}"
        if self.verdict is Verdict.SAME_UP_TO:
            to = f"up to offset {self.compared_to} of {self.log_end_offset}"
            return f"source {self.source}: the same as {self.compared_with} {to}{reason}"
        said = "not comparable" if self.verdict is Verdict.NOT_COMPARABLE else "the same"
        return f"source {self.source}: {said}{reason}"


def missing_partitions(tables: TablesToRead, left_out: Collection[str] = ()) -> list[dict[str, Any]]:
    """Compare which partitions each source has with those of the source with which it has most in common.

    A copy should have all of them; another broker of a cluster need not, and the catalog does not know which it is.

    Args:
        left_out: sources that are no log dirs.

    Returns:
        For each source that lacks some: its name and the other's, how many it lacks of how many, and the first names.
    """
    rows = tables.read(PARTITIONS, (*PARTITIONS.key, "topic_id", "present"), [])
    of_sources: dict[str, set[tuple[str, int, str | None]]] = defaultdict(set)
    for row in rows.filter(rows["present"]).to_pylist():
        if row["source"] not in left_out:
            of_sources[row["source"]].add((row["topic"], row["partition"], row["topic_id"]))
    found = []
    for source, partitions in sorted(of_sources.items()):
        others = [(len(has & partitions), other) for other, has in of_sources.items() if other != source]
        shared, other = max(others, default=(0, ""))
        lacked = of_sources[other] - partitions if shared else set()
        if lacked:
            names = [
                TopicPartition(topic, number).directory for topic, number, _ in sorted(lacked, key=lambda key: key[:2])
            ]
            found.append(
                {
                    "source": source,
                    "compared_with": other,
                    "count": len(lacked),
                    "of": len(of_sources[other]),
                    "partitions": names[:_NAMED],
                }
            )
    return found
