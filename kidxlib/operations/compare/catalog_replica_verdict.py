"""The verdict on a replica compared with another one of its partition, and the partitions that a source lacks and a
similar source has.
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

#: So many missing partitions are named.
_NAMED = 20


class ReplicaRelation(StrEnum):
    """How a replica compares with another; the first of several that are true.

    Attributes:
        DIFFERS: it has other batches in a range of offsets.
        EPOCHS_DISAGREE: it has the same batches, of other leader epochs; in compacted topics, of epochs that cannot
            both be right.
        LACKS: it has no batches in a range of offsets before its end.
        NOT_COMPARABLE: nothing could be compared, or not all, as a log is damaged or not known; `reason` says why.
        BEHIND: it has the same as far as it was compared, and ends earlier.
        SAME_UP_TO: it is the same up to `compared_to`, and was not compared further.
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
    """Where a batch begins in a log."""

    log_path: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two replicas begin to differ.

    Attributes:
        first_offset, last_offset: the first range of offsets whose digests differ, as narrow as the catalog tells it.
        offset: the first offset that differs, by the headers of batches: one replica has a batch there that the other
            has not. None where the logs were not read.
        place: the batch at this offset, or the batch in its place; None at the end of the log.
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
        first_offset, last_offset: from the first range that `source` lacks to the last one.
    """

    source: str
    first_offset: int
    last_offset: int
    ranges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDifference:
    """Where leader epochs of two replicas begin to disagree.

    Attributes:
        epoch, other_epoch: of the batches at `offset`; −1 for none.
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
        compared_with: the source of the other replica.
        agreeing: `compared_with` and the sources that agree with it.
        has_majority: these are more than half of the sources that have the partition; else nobody knows which of two
            replicas that differ is right.
        compacted: how it is known that the topic is compacted: then leader epochs and numbers of records alone are
            compared. None for other topics.
        first_offset, end_offset: the offsets that both should have, the last + 1; None without one.
        undecided_offsets: the number of these offsets that digests could not tell of.
        compared_to, log_end_offset: the offset up to which the replica was compared, and its log's end.
        lacks: offsets of which one of the two has no batch.
        behind_offsets: the offsets by which its log ends before that of the other; 0 where it does not.
        records, other_records: in all segments of each; None where not all are known.
        reason: why nothing could be compared, or why some offsets are undecided.
    """

    topic: str
    partition: int
    topic_id: str | None
    source: str
    compared_with: str
    agreeing: list[str]
    has_majority: bool
    verdict: ReplicaRelation
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
        if self.verdict is ReplicaRelation.DIFFERS and self.difference is not None:
            difference = self.difference
            first = "" if difference.offset is None else f", first at offset {difference.offset}"
            ranges = f" and {difference.ranges - 1:,} more ranges" if difference.ranges > 1 else ""
            right = "" if self.has_majority else "; which is right, the catalog does not know"
            return (
                f"source {self.source} has other batches than {', '.join(self.agreeing)} in offsets "
                f"{difference.first_offset} to {difference.last_offset}{ranges}{first}{right}"
            )
        if self.verdict is ReplicaRelation.EPOCHS_DISAGREE and self.epochs is not None:
            epochs = self.epochs
            return (
                f"source {self.source} has leader epoch {epochs.epoch} at offset {epochs.offset}, "
                f"{self.compared_with} has {epochs.other_epoch}"
            )
        if self.verdict is ReplicaRelation.LACKS and self.lacks is not None:
            lacks = self.lacks
            ranges = f" ({lacks.ranges:,} ranges in these)" if lacks.ranges > 1 else ""
            other = self.compared_with if lacks.source == self.source else self.source
            offsets = f"offsets {lacks.first_offset}–{lacks.last_offset}{ranges}"
            return f"source {lacks.source} lacks {offsets}, which {other} has"
        reason = "" if self.reason is None else f"; {self.reason}"
        if self.verdict is ReplicaRelation.BEHIND:
            return f"source {self.source} ends {self.behind_offsets:,} offsets before {self.compared_with}{reason}"
        if self.verdict is ReplicaRelation.SAME_UP_TO:
            to = f"up to offset {self.compared_to} of {self.log_end_offset}"
            return f"source {self.source}: the same as {self.compared_with} {to}{reason}"
        said = "not comparable" if self.verdict is ReplicaRelation.NOT_COMPARABLE else "the same"
        return f"source {self.source}: {said}{reason}"


def missing_partitions(
    tables: TablesToRead, left_out: Collection[str], settled: Collection[str]
) -> list[dict[str, Any]]:
    """The partitions that each source lacks of those of the source with which it has most in common; sources in
    `left_out` are no log dirs. A copy should have all of them; another broker of a cluster need not, and the catalog
    does not know which it is. Of sources in `settled` it is known what they should have.
    """
    rows = tables.read(PARTITIONS, (*PARTITIONS.key, "topic_id", "present"), [])
    of_sources: dict[str, set[tuple[str, int, str | None]]] = defaultdict(set)
    for row in rows.filter(rows["present"]).to_pylist():
        if row["source"] not in left_out:
            of_sources[row["source"]].add((row["topic"], row["partition"], row["topic_id"]))
    missing = []
    for source, partitions in sorted(of_sources.items()):
        if source in settled:
            continue
        others = [(len(has & partitions), other) for other, has in of_sources.items() if other != source]
        shared, other = max(others, default=(0, ""))
        lacked = of_sources[other] - partitions if shared else set()
        if lacked:
            names = [
                TopicPartition(topic, number).directory for topic, number, _ in sorted(lacked, key=lambda key: key[:2])
            ]
            missing.append(
                {
                    "source": source,
                    "compared_with": other,
                    "count": len(lacked),
                    "of": len(of_sources[other]),
                    "partitions": names[:_NAMED],
                }
            )
    return missing
