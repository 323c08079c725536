"""Which replica leads a restored partition, which others are in sync with it, and which are left behind.

The leader has the longest log, by leader epoch and then by end. In sync are those that hold the same batches up to the
leader's end. A shorter one that agrees is copied and catches up: if it led, the others would cut acknowledged records
off. One that disagrees, or is damaged, is not copied: its broker begins with an empty log, and fetches all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kidxlib.engine.protocol import Engine
from kidxlib.operations.compare.finding import Finding, Kind
from kidxlib.operations.compare.known import DirectoryPair, MetadataOfPlaces
from kidxlib.operations.compare.place import Place
from kidxlib.operations.compare.replica import compare_pairs
from kidxlib.operations.compare.replica_partition import ReplicaFindings
from kidxlib.operations.restore.inventory import OldReplica
from kidxlib.run.known_topics import KnownTopics

#: Such a finding below both ends shows that two replicas are not the same.
_KINDS_OF_DISAGREEMENT: Final = (Kind.DIFFERS, Kind.LACKS, Kind.ONLY_IN_B, Kind.NOT_COMPARABLE)


@dataclass(frozen=True, slots=True)
class JudgedReplica:
    """A replica beside the leader's.

    Attributes:
        is_copied: whether it goes to its new broker; else that one begins with an empty log.
        in_sync: whether it holds all that the leader has.
        why: in words, for a person.
        disagrees: how its records differ from the leader's; empty where they do not.
    """

    replica: OldReplica
    is_copied: bool
    in_sync: bool
    why: str
    disagrees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The replicas of a partition.

    Attributes:
        others: all other replicas that the sources have, in the order of nodes.
    """

    leader: OldReplica
    others: tuple[JudgedReplica, ...] = ()

    @property
    def disagreements(self) -> list[str]:
        return [text for other in self.others for text in other.disagrees]


def leader_of(replicas: Sequence[OldReplica]) -> OldReplica:
    """The replica with the longest log, by leader epoch and then by end; of equal ones a whole one, then that of the
    lowest node. A replica that cannot be read leads only where no other is there.
    """
    return max(
        replicas,
        key=lambda replica: (
            not replica.forecast.refusals,
            replica.last_epoch,
            replica.end_offset,
            replica.whole,
            -replica.node_id,
        ),
    )


@dataclass(slots=True)
class _ReplicaPairs:
    """The replicas of two brokers that are to be compared."""

    one: Place
    other: Place
    pairs: list[DirectoryPair] = field(default_factory=list)
    replicas: list[tuple[OldReplica, OldReplica]] = field(default_factory=list)


def choose(partitions: Iterable[Sequence[OldReplica]], known: KnownTopics, engine: Engine) -> list[Choice]:
    """Choose among the replicas of each partition. Those that are to agree are read side by side."""
    leaders = [(leader_of(replicas), replicas) for replicas in partitions]
    by_places: dict[tuple[int, int], _ReplicaPairs] = {}
    for leader, replicas in leaders:
        for replica in replicas:
            if replica is not leader and not replica.forecast.refusals and not leader.forecast.refusals:
                key = (leader.node_id, replica.node_id)
                of_places = by_places.setdefault(key, _ReplicaPairs(leader.place, replica.place))
                one, other = (each.place.directories[each.directory.name] for each in (leader, replica))
                of_places.pairs.append(DirectoryPair(one, other))
                of_places.replicas.append((leader, replica))
    judged: dict[int, JudgedReplica] = {}
    for of_places in by_places.values():
        names = [str(path) for place in (of_places.one, of_places.other) for path in place.log_dirs]
        compared = compare_pairs(
            of_places.pairs, of_places.one, of_places.other, MetadataOfPlaces(known, names), engine
        )
        for (leader, replica), findings in zip(of_places.replicas, compared, strict=True):
            judged[id(replica)] = judge(leader, replica, findings)
    return [
        Choice(leader, tuple(judged.get(id(each)) or _judged_as_empty(each) for each in replicas if each is not leader))
        for leader, replicas in leaders
    ]


def _judged_as_empty(replica: OldReplica) -> JudgedReplica:
    why = next(iter(replica.forecast.refusals), None)
    text = "not compared, as the leader's log cannot be read" if why is None else why.text
    return JudgedReplica(replica, False, False, f"begins empty: {text}")


def judge(leader: OldReplica, replica: OldReplica, compared: ReplicaFindings) -> JudgedReplica:
    """Whether a replica agrees with the leader's, by what a comparison of their batches has found."""
    findings = compared.findings()
    common_start = max(leader.start_offset, replica.start_offset)
    common_end = min(leader.end_offset, replica.end_offset)
    disagrees = [finding for finding in findings if _is_in_both_logs(finding, common_start, common_end)]
    texts = [
        f"{replica.topic_partition.directory}: {replica} and the leader's {leader.directory}: {finding.detail}".replace(
            "in A", "the leader's"
        )
        .replace(" B ", " this one ")
        .replace(" A ", " the leader ")
        for finding in disagrees
    ]
    if replica.end_offset > leader.end_offset:
        texts.append(
            f"{replica.topic_partition.directory}: {replica} goes on to offset {replica.end_offset} in leader epoch "
            f"{replica.last_epoch}, and the leader's {leader.directory} ends at {leader.end_offset} in epoch "
            f"{leader.last_epoch}"
        )
    if texts:
        return JudgedReplica(replica, False, False, "begins empty: it disagrees with the leader's log", tuple(texts))
    cleaned = any(finding.kind is Kind.CLEANED for finding in findings)
    how = "the same ends, and the same batches above what a cleaner has worked on" if cleaned else "the same batches"
    if replica.end_offset == leader.end_offset:
        return JudgedReplica(replica, True, True, f"in sync: {how} up to {leader.end_offset}")
    return JudgedReplica(
        replica,
        True,
        False,
        f"catches up: {how} up to {replica.end_offset}, and the leader goes on to {leader.end_offset}",
    )


def _is_in_both_logs(finding: Finding, start: int, end: int) -> bool:
    """Whether a finding shows a difference of offsets that both logs should have."""
    if finding.kind is Kind.OTHER_ORIGIN:
        return True
    if finding.kind not in _KINDS_OF_DISAGREEMENT:
        return False
    first, last = finding.first_offset, finding.last_offset
    return (first is None or first < end) and (last is None or last >= start)
