"""Which replica leads a restored partition, which others are in sync with it, and which are left behind.

The leader has the longest log, by leader epoch and then by end. Of logs that are as long, the one that led last by the
metadata leads, else one that was in sync by it, else the one that most others agree with. In sync are those that hold
the same batches up to the leader's end. A shorter one that agrees is copied and catches up: if it led, the others would
cut acknowledged records off. One that disagrees, or is damaged, is not copied: its broker begins with an empty log, and
fetches all.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kidxlib.engine.protocol import Engine
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.image import Assignment
from kidxlib.operations.compare.comparison import Finding, Kind
from kidxlib.operations.compare.place import DirectoryPair, MetadataOfPlaces, Place
from kidxlib.operations.compare.replica import ReplicaFindings, compare_pairs
from kidxlib.operations.restore.inventory import OldReplica
from kidxlib.run.known_topics import KnownTopics

#: Such a finding below both ends shows that two replicas are not the same.
_KINDS_OF_DISAGREEMENT: Final = (Kind.DIFFERS, Kind.LACKS, Kind.ONLY_IN_B, Kind.NOT_COMPARABLE)
_LED_LAST: Final = 2


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

    @property
    def agreeing(self) -> int:
        """How many others have the leader's batches, as far as they go."""
        return sum(other.is_copied for other in self.others)


def leader_of(replicas: Sequence[OldReplica], assignment: Assignment | None = None) -> OldReplica:
    """The replica with the longest log, by leader epoch and then by end; of equal ones a whole one, then the one that
    led last or was in sync by the metadata, then that of the lowest node. A replica that cannot be read leads only
    where no other is there.
    """
    return _candidates(replicas, assignment)[0]


def _candidates(replicas: Sequence[OldReplica], assignment: Assignment | None) -> list[OldReplica]:
    """The replicas of which one leads, in the order of nodes: they end alike, and metadata tells no difference."""
    most = max((_length(replica), _place_in_metadata(replica, assignment)) for replica in replicas)
    equal = [each for each in replicas if (_length(each), _place_in_metadata(each, assignment)) == most]
    return sorted(equal, key=lambda replica: replica.node_id)


def _length(replica: OldReplica) -> tuple[bool, int, int, bool]:
    return not replica.forecast.refusals, replica.last_epoch, replica.end_offset, replica.whole


def _place_in_metadata(replica: OldReplica, assignment: Assignment | None) -> int:
    """`_LED_LAST`; 1: it was in sync; 0: neither is known, as where the log has a later epoch than the metadata."""
    if assignment is None or replica.last_epoch > assignment.leader_epoch:
        return 0
    return _LED_LAST if replica.node_id == assignment.last_leader else int(replica.node_id in assignment.in_sync)


@dataclass(slots=True)
class _ReplicaPairs:
    """The replicas of two brokers that are to be compared."""

    one: Place
    other: Place
    pairs: list[DirectoryPair] = field(default_factory=list)
    replicas: list[tuple[OldReplica, OldReplica]] = field(default_factory=list)


def choose(
    partitions: Sequence[Sequence[OldReplica]],
    known: KnownTopics,
    engine: Engine,
    assignments: Mapping[TopicPartition, Assignment],
    settled: Container[TopicPartition] = (),
) -> list[Choice]:
    """Choose among the replicas of each partition. Those that are to agree are read side by side.

    Args:
        assignments: what the newest metadata says of partitions.
        settled: partitions of which the first candidate leads, as their ends were planned by its log.
    """
    candidates = [_candidates(each, assignments.get(each[0].topic_partition)) for each in partitions]
    first = [(equal[0], replicas) for equal, replicas in zip(candidates, partitions, strict=True)]
    choices = [[choice] for choice in _compared(first, known, engine)]
    rivals = [
        (rival, replicas, of_partition)
        for equal, replicas, of_partition in zip(candidates, partitions, choices, strict=True)
        if len(replicas) > 2 and of_partition[0].disagreements and replicas[0].topic_partition not in settled
        for rival in equal[1:]
    ]
    of_rivals = _compared([(rival, replicas) for rival, replicas, _ in rivals], known, engine)
    for (_, _, of_partition), choice in zip(rivals, of_rivals, strict=True):
        of_partition.append(choice)
    return [_best(each, assignments.get(each[0].leader.topic_partition)) for each in choices]


def _best(choices: Sequence[Choice], assignment: Assignment | None) -> Choice:
    """The choice with whose leader most others agree; of equal ones the first."""
    best = max(choices, key=lambda choice: choice.agreeing)
    by_majority = any(choice.agreeing < best.agreeing for choice in choices)
    others = []
    for other in best.others:
        why = _why_before(best.leader, other.replica, assignment, by_majority=by_majority)
        others.append(replace(other, disagrees=tuple(text + why for text in other.disagrees)))
    return replace(best, others=tuple(others))


def _why_before(leader: OldReplica, other: OldReplica, assignment: Assignment | None, *, by_majority: bool) -> str:
    """Why one leads that disagrees with another whose log is as long; empty: the other one's is not."""
    if _length(other) != _length(leader):
        return ""
    place = _place_in_metadata(leader, assignment)
    if place > _place_in_metadata(other, assignment):
        how = "led last" if place == _LED_LAST else "was in sync, and this one not"
        return f"; both end alike, and by the metadata the leader {how}"
    if by_majority:
        return "; both end alike, and more replicas agree with the leader"
    return "; both end alike, and nothing tells which is right: the one of the lower node id leads"


def _compared(
    leaders: Sequence[tuple[OldReplica, Sequence[OldReplica]]], known: KnownTopics, engine: Engine
) -> list[Choice]:
    """What becomes of all replicas of each partition, if this one leads."""
    by_places: dict[tuple[int, int], _ReplicaPairs] = {}
    for leader, replicas in leaders:
        for replica in replicas:
            if replica is not leader and not replica.forecast.refusals and not leader.forecast.refusals:
                key = (leader.node_id, replica.node_id)
                of_places = by_places.setdefault(key, _ReplicaPairs(leader.place, replica.place))
                one, other = (each.place.directories[each.directory.name] for each in (leader, replica))
                of_places.pairs.append(DirectoryPair(one, other))
                of_places.replicas.append((leader, replica))
    judged: dict[tuple[int, int], JudgedReplica] = {}
    for of_places in by_places.values():
        names = [str(path) for place in (of_places.one, of_places.other) for path in place.log_dirs]
        compared = compare_pairs(
            of_places.pairs, of_places.one, of_places.other, MetadataOfPlaces(known, names), engine
        )
        for (leader, replica), findings in zip(of_places.replicas, compared, strict=True):
            judged[id(leader), id(replica)] = judge(leader, replica, findings)
    return [
        Choice(
            leader,
            tuple(
                judged.get((id(leader), id(each))) or _judged_as_empty(each) for each in replicas if each is not leader
            ),
        )
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
    if replica.may_lack_first and replica.start_offset > leader.start_offset:
        # If it led later, the others would delete what it lacks (`UnifiedLog.maybeIncrementLogStartOffset`).
        return JudgedReplica(
            replica, False, False, f"begins empty: it has lost logs before offset {replica.start_offset}"
        )
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
