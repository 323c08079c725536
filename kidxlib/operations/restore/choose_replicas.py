"""Which replicas a restore takes: those that may be restored by the newest metadata (`sort_out_replicas`), which of
them leads its partition, which others are in sync and which are left behind (`choose_leaders`), and to which log dir
each goes (`ReplicaPlacement`).

The leader has the longest log, by leader epoch and then by end. Of logs that are as long, the one that led last by the
metadata leads, else one that was in sync by it, else the one that most others agree with. In sync are those that hold
the same batches up to the leader's end. A shorter one that agrees is copied and catches up: if it led, the others would
cut acknowledged records off. One that disagrees, or is damaged, is not copied: its broker begins with an empty log, and
fetches all.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.engine.protocol import Engine
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import METADATA_TOPIC, TopicPartition, loaded_as
from kidxlib.log.metadata_image import Assignment
from kidxlib.operations.compare.comparison import ComparisonFinding, FindingKind
from kidxlib.operations.compare.place import DirectoryPair, MetadataOfPlaces
from kidxlib.operations.compare.replica import ReplicaFindings, compare_replica_directories
from kidxlib.operations.restore.inventory import Inventory, InventoryReplica
from kidxlib.operations.restore.new_nodes import NewBroker, disk_sizes
from kidxlib.operations.restore.surviving_metadata import SurvivingMetadata, only_topics
from kidxlib.run.known_topics import KnownTopics
from kidxlib.text.words import counted

#: Such a finding below both ends shows that two replicas are not the same.
_KINDS_OF_DISAGREEMENT: Final = (
    FindingKind.DIFFERS,
    FindingKind.LACKS,
    FindingKind.ONLY_IN_B,
    FindingKind.NOT_COMPARABLE,
)
_LED_LAST: Final = 2
#: What a cluster lacks without its coordinators' topics.
_CONSEQUENCES_OF_LEAVING_OUT: Final[Mapping[str, str]] = {
    "__consumer_offsets": "consumer groups begin without offsets",
    "__share_group_state": "share groups begin anew",
    "__transaction_state": "no transaction that is open in a log is ever ended",
}


@dataclass(frozen=True, slots=True)
class JudgedReplica:
    """A replica beside the leader's.

    Attributes:
        is_copied: whether it goes to its new broker; else that one begins with an empty log.
        in_sync: whether it holds all that the leader has.
        why: in words, for a person.
        disagrees: how its records differ from the leader's; empty where they do not.
    """

    replica: InventoryReplica
    is_copied: bool
    in_sync: bool
    why: str
    disagrees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """The choice among the replicas of a partition.

    Attributes:
        others: all other replicas that the sources have, in the order of nodes.
    """

    leader: InventoryReplica
    others: tuple[JudgedReplica, ...] = ()

    @property
    def disagreements(self) -> list[str]:
        return [text for other in self.others for text in other.disagrees]

    @property
    def agreeing(self) -> int:
        """How many others have the leader's batches, as far as they go."""
        return sum(other.is_copied for other in self.others)


@dataclass(frozen=True, slots=True)
class ChosenReplica:
    """A replica of a restored partition on a new broker.

    Attributes:
        log_dir: None where it begins empty: the broker chooses.
        source: the directory that is copied; None where it begins empty.
        why: whether it is in sync, in words.
    """

    topic_partition: TopicPartition
    node_id: int
    log_dir: Path | None
    source: InventoryReplica | None
    is_leader: bool
    in_sync: bool
    why: str

    @property
    def copied_from(self) -> InventoryReplica:
        """The source of one that does not begin empty."""
        assert self.source is not None
        return self.source

    @property
    def directory(self) -> Path:
        """Where one goes that does not begin empty."""
        assert self.log_dir is not None
        return self.log_dir / self.topic_partition.directory

    @property
    def kept_bytes(self) -> int:
        return 0 if self.source is None else self.source.kept_bytes


@dataclass(frozen=True, slots=True)
class SortedOut:
    """
    Attributes:
        partitions: the replicas of each partition that may be restored.
        left_out, refusals: as in `RestorePlan`.
    """

    partitions: Sequence[Sequence[InventoryReplica]]
    left_out: Sequence[str]
    refusals: Sequence[str]


def sort_out_replicas(inventory: Inventory, newest: SurvivingMetadata | None, topics: re.Pattern[str]) -> SortedOut:
    """Which replicas of these topics may be restored, by the newest metadata."""
    of_other_topics = list(_left_out_topics(inventory, newest, topics))
    sorted_out = _sort_out_directories(inventory, only_topics(newest, topics), topics)
    return replace(sorted_out, left_out=[*of_other_topics, *sorted_out.left_out])


def _left_out_topics(
    inventory: Inventory, surviving: SurvivingMetadata | None, topics: re.Pattern[str]
) -> Iterator[str]:
    """A line for each topic of a source, or of all surviving metadata, that does not match. It refuses a pattern that
    no topic matches.
    """
    folders: Counter[str] = Counter() if surviving is None else Counter(dict.fromkeys(surviving.metadata.topics, 0))
    for broker in inventory.brokers:
        for listed in broker.place.directories.values():
            if listed.topic_partition is not None and listed.topic_partition.topic != METADATA_TOPIC:
                folders[listed.topic_partition.topic] += 1
    names = sorted(folders)
    if names and not any(map(topics.fullmatch, names)):
        raise UsageError(
            f"--topics {topics.pattern}: no topic in the sources has such a name; they have {', '.join(names[:5])}"
        )
    for name in names:
        if topics.fullmatch(name) is None:
            without = (
                f": {_CONSEQUENCES_OF_LEAVING_OUT[name]}; add |{name} to --topics to restore it"
                if name in _CONSEQUENCES_OF_LEAVING_OUT
                else ""
            )
            of_it = counted(folders[name], "directory", "directories")
            yield f"topic {name}: --topics does not match; {of_it} of it in the sources{without}"


def _sort_out_directories(
    inventory: Inventory, surviving: SurvivingMetadata | None, topics: re.Pattern[str]
) -> SortedOut:
    """Leave out directories of other topics of the same name, and of nodes that the metadata does not assign."""
    partitions: list[list[InventoryReplica]] = []
    left_out: list[str] = []
    refusals: list[str] = []
    ids: dict[str, set[str]] = defaultdict(set)
    for partition, replicas in inventory.replicas.items():
        assignment = None if surviving is None else surviving.metadata.assignments.get(partition)
        topic_id = None if surviving is None else surviving.metadata.topics.get(partition.topic)
        kept = []
        refusals += on_two_disks(replicas)
        for replica in replicas:
            listed = replica.place.directories.get(replica.directory.name)
            if listed is not None and listed.problem is not None:
                refusals.append(
                    f"{listed.problem}: nothing in {replica.directory} can be looked at: take the directory out of the "
                    "source, if another one has the partition; or mend the disk, or copy it, first"
                )
            elif replica.topic_id is None:
                refusals.append(
                    f"{replica.directory}: no partition.metadata that can be read, so nobody knows which topic it is: "
                    "take the directory out of the source; or put the file in place with kidx recover --mend on a copy"
                )
            elif topic_id is not None and replica.topic_id != topic_id:
                left_out.append(
                    f"{replica.directory}: topic id {replica.topic_id}, and the metadata has {topic_id} for this name: "
                    "it is of a topic that was deleted, or that was made after the end of the metadata"
                )
            else:
                kept.append(replica)
        assigned = [each for each in kept if assignment is None or each.node_id in assignment.replicas]
        if assigned:
            names = {id(each) for each in assigned}
            left_out += [
                f"{each.directory}: the metadata does not assign it to broker {each.node_id}"
                for each in kept
                if id(each) not in names
            ]
            kept = assigned
        ids[partition.topic] |= {replica.topic_id for replica in kept if replica.topic_id is not None}
        if kept:
            partitions.append(kept)
    for topic, of_topic in ids.items():
        if len(of_topic) > 1:
            refusals.append(
                f"topic {topic}: directories with several topic ids ({', '.join(sorted(of_topic))}), and no metadata "
                "says which of them was deleted: take those of the deleted topic out of the sources"
            )
    aside, of_aside = _directories_set_aside(inventory, topics)
    return SortedOut(partitions, [*left_out, *aside], [*refusals, *of_aside])


def on_two_disks(replicas: Sequence[InventoryReplica]) -> Iterator[str]:
    """Refusals to choose among the replicas of a partition that its old broker has in two log dirs: it does not start
    with both, and nothing tells which of them it used (`LogManager.loadLog`).
    """
    first: dict[int, InventoryReplica] = {}
    for replica in replicas:
        if (other := first.setdefault(replica.node_id, replica)) is not replica:
            yield (
                f"{replica.directory}: {other.directory.parent} has that partition too; no broker starts with both: "
                f"look which is whole (kidx compare {shlex.quote(str(other.directory))} "
                f"{shlex.quote(str(replica.directory))}), and take the other out of the sources"
            )


def _directories_set_aside(inventory: Inventory, topics: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Directories that a broker deletes, moves or has set aside; and refusals where such a one is the only one."""
    left_out: list[str] = []
    refusals: list[str] = []
    for broker in inventory.brokers:
        for folder in broker.plan.aside:
            partition = loaded_as(folder.path.name)
            is_wanted = partition is not None and topics.fullmatch(partition.topic) is not None
            if not is_wanted or partition is None or partition in inventory.replicas or folder.kind == "-delete":
                left_out.append(f"{folder.path}: a directory {folder.kind}")
            else:
                refusals.append(
                    f"{folder.path}: a directory {folder.kind}, and no source has {partition.directory}: if its "
                    f"records are wanted, rename it to {partition.directory} in a copy of the log dir; else take it "
                    "away there"
                )
    return left_out, refusals


def leader_of(replicas: Sequence[InventoryReplica], assignment: Assignment | None = None) -> InventoryReplica:
    """The replica with the longest log, by leader epoch and then by end; of equal ones a whole one, then the one that
    led last or was in sync by the metadata, then that of the lowest node. A replica that cannot be read leads only
    where no other is there.
    """
    return _candidates(replicas, assignment)[0]


def _candidates(replicas: Sequence[InventoryReplica], assignment: Assignment | None) -> list[InventoryReplica]:
    """The replicas of which one leads, in the order of nodes: they end alike, and metadata tells no difference."""
    most = max((_length(replica), _place_in_metadata(replica, assignment)) for replica in replicas)
    equal = [each for each in replicas if (_length(each), _place_in_metadata(each, assignment)) == most]
    return sorted(equal, key=lambda replica: replica.node_id)


def _length(replica: InventoryReplica) -> tuple[bool, int, int, bool]:
    return not replica.forecast.refusals, replica.last_epoch, replica.end_offset, replica.whole


def _place_in_metadata(replica: InventoryReplica, assignment: Assignment | None) -> int:
    """`_LED_LAST`; 1: it was in sync; 0: neither is known, as where the log has a later epoch than the metadata."""
    if assignment is None or replica.last_epoch > assignment.leader_epoch:
        return 0
    return _LED_LAST if replica.node_id == assignment.last_leader else int(replica.node_id in assignment.in_sync)


def choose_leaders(
    partitions: Sequence[Sequence[InventoryReplica]],
    known: KnownTopics,
    engine: Engine,
    assignments: Mapping[TopicPartition, Assignment],
    settled: Container[TopicPartition] = (),
) -> list[ReplicaChoice]:
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


def _best(choices: Sequence[ReplicaChoice], assignment: Assignment | None) -> ReplicaChoice:
    """The choice with whose leader most others agree; of equal ones the first."""
    best = max(choices, key=lambda choice: choice.agreeing)
    by_majority = any(choice.agreeing < best.agreeing for choice in choices)
    others = []
    for other in best.others:
        why = _why_before(best.leader, other.replica, assignment, by_majority=by_majority)
        others.append(replace(other, disagrees=tuple(text + why for text in other.disagrees)))
    return replace(best, others=tuple(others))


def _why_before(
    leader: InventoryReplica, other: InventoryReplica, assignment: Assignment | None, *, by_majority: bool
) -> str:
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
    leaders: Sequence[tuple[InventoryReplica, Sequence[InventoryReplica]]], known: KnownTopics, engine: Engine
) -> list[ReplicaChoice]:
    """What becomes of all replicas of each partition, if this one leads."""
    of_brokers: defaultdict[tuple[int, int], list[tuple[InventoryReplica, InventoryReplica]]] = defaultdict(list)
    for leader, replicas in leaders:
        for replica in replicas:
            if replica is not leader and not replica.forecast.refusals and not leader.forecast.refusals:
                of_brokers[leader.node_id, replica.node_id].append((leader, replica))
    judged: dict[tuple[int, int], JudgedReplica] = {}
    for of_two in of_brokers.values():
        one, other = (each.place for each in of_two[0])
        names = [str(path) for place in (one, other) for path in place.log_dirs]
        pairs = [DirectoryPair(*(each.place.directories[each.directory.name] for each in two)) for two in of_two]
        compared = compare_replica_directories(pairs, one, other, MetadataOfPlaces(known, names), engine)
        for (leader, replica), findings in zip(of_two, compared, strict=True):
            judged[id(leader), id(replica)] = _judge(leader, replica, findings)
    return [
        ReplicaChoice(
            leader,
            tuple(
                judged.get((id(leader), id(each))) or _judged_as_empty(each) for each in replicas if each is not leader
            ),
        )
        for leader, replicas in leaders
    ]


def _judged_as_empty(replica: InventoryReplica) -> JudgedReplica:
    why = next(iter(replica.forecast.refusals), None)
    text = "not compared, as the leader's log cannot be read" if why is None else why.text
    return JudgedReplica(replica, False, False, f"begins empty: {text}")


def _judge(leader: InventoryReplica, replica: InventoryReplica, compared: ReplicaFindings) -> JudgedReplica:
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
    cleaned = any(finding.kind is FindingKind.CLEANED for finding in findings)
    how = "the same ends, and the same batches above what a cleaner has worked on" if cleaned else "the same batches"
    if replica.end_offset == leader.end_offset:
        return JudgedReplica(replica, True, True, f"in sync: {how} up to {leader.end_offset}")
    return JudgedReplica(
        replica,
        True,
        False,
        f"catches up: {how} up to {replica.end_offset}, and the leader goes on to {leader.end_offset}",
    )


def _is_in_both_logs(finding: ComparisonFinding, start: int, end: int) -> bool:
    """Whether a finding shows a difference of offsets that both logs should have."""
    if finding.kind is FindingKind.OTHER_ORIGIN:
        return True
    if finding.kind not in _KINDS_OF_DISAGREEMENT:
        return False
    first, last = finding.first_offset, finding.last_offset
    return (first is None or first < end) and (last is None or last >= start)


class ReplicaPlacement:
    """Gives replicas to new brokers: to the one with the old node's id; where there is none, the leader's goes to the
    broker with the fewest bytes. Within a broker, to the log dir with the fewest bytes for the size of its disk: not by
    what is free, which changes by itself, and the plan with it. Where two have as many, as what is made of a bucket has
    none, the number of copies decides.
    """

    def __init__(self, brokers: Sequence[NewBroker], surviving: SurvivingMetadata | None) -> None:
        self._brokers = {broker.node_id: broker for broker in brokers}
        self._surviving = surviving
        self._bytes: Counter[Path] = Counter({path: 0 for broker in brokers for path in broker.log_dirs})
        self._copies: Counter[Path] = Counter()
        self._sizes = {path: size for broker in brokers for path, size in disk_sizes(broker.log_dirs).items()}

    def place(self, choice: ReplicaChoice) -> Iterator[ChosenReplica]:
        """Choose the new broker and log dir of each replica of a partition."""
        leader, partition = choice.leader, choice.leader.topic_partition
        judged = {other.replica.node_id: other for other in choice.others}
        assignment = None if self._surviving is None else self._surviving.metadata.assignments.get(partition)
        wanted = (leader.node_id, *judged) if assignment is None else assignment.replicas
        nodes = [node for node in dict.fromkeys(wanted) if node in self._brokers]
        if (leads := leader.node_id) not in nodes:
            leads = nodes[0] if nodes else min(self._brokers, key=lambda node: (*self._bytes_and_copies_on(node), node))
            nodes = nodes or [leads]
        for node in nodes:
            if node == leads:
                of = f"old broker {leader.node_id}" if leader.origin is None else "the bucket"
                where = "" if node == leader.node_id else f", from {of}"
                why = f"leads{where}: epoch {leader.last_epoch}, end {leader.end_offset}"
                yield self._place_copy(partition, node, leader, is_leader=True, in_sync=True, why=why)
            else:
                yield self._place_judged(partition, node, judged.get(node))

    def _place_judged(self, partition: TopicPartition, node: int, judged: JudgedReplica | None) -> ChosenReplica:
        if judged is None or not judged.is_copied:
            why = "begins empty: no source has its directory of this topic id" if judged is None else judged.why
            return ChosenReplica(partition, node, None, None, False, False, why)
        return self._place_copy(
            partition, node, judged.replica, is_leader=False, in_sync=judged.in_sync, why=judged.why
        )

    def _place_copy(
        self,
        partition: TopicPartition,
        node: int,
        source: InventoryReplica,
        *,
        is_leader: bool,
        in_sync: bool,
        why: str,
    ) -> ChosenReplica:
        log_dir = min(
            self._brokers[node].log_dirs,
            key=lambda path: (self._bytes[path] / self._sizes[path], self._copies[path], str(path)),
        )
        self._bytes[log_dir] += source.kept_bytes
        self._copies[log_dir] += 1
        return ChosenReplica(partition, node, log_dir, source, is_leader, in_sync, why)

    def _bytes_and_copies_on(self, node: int) -> tuple[int, int]:
        paths = self._brokers[node].log_dirs
        return sum(self._bytes[path] for path in paths), sum(self._copies[path] for path in paths)
