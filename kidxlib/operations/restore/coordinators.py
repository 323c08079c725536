"""What the coordinators' topics say: committed offsets of groups, transactions that are about to commit, producer ids,
and versions of records. A log is read once, and nothing is rewritten.

Groups may have committed offsets behind the ends of restored partitions (`GroupOffsets`). A consumer that comes with
such an offset begins where `auto.offset.reset` says; and if new records have been written up to there before, it passes
them over and nobody tells. Kafka's own tool sets the offsets back, by a file that is written here
(`kafka-consumer-groups --reset-offsets --from-file`).

Sources: `GroupCoordinatorService`, `CoordinatorLoaderImpl.load`, `TransactionStateManager.loadTransactionMetadata`.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import (
    KidxError,
    MalformedError,
    MalformedRecordsError,
    UnknownRecordTypeError,
    UnreadableMessageError,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.java import hash_of
from kidxlib.messages.typed_records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    CoordinatorRecord,
    read_coordinator_record,
)
from kidxlib.operations.recover.forecast import Forecast
from kidxlib.operations.recover.read_logs import log_path
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import Record, records
from kidxlib.storage.opened_log import LogFile
from kidxlib.text.words import counted, shell_option

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
#: The topics whose records coordinators write, and the definitions of these.
COORDINATOR_TOPICS: Final = {
    OFFSETS_TOPIC: CONSUMER_OFFSETS,
    TRANSACTION_TOPIC: TRANSACTION_STATE,
    "__share_group_state": SHARE_GROUP_STATE,
}
#: Fields of a `TransactionLogValue` with ids of producers.
_PRODUCER_ID_FIELDS: Final = ("producerId", "previousProducerId", "nextProducerId")
#: `TransactionState.PREPARE_COMMIT`.
_PREPARE_COMMIT: Final = 2
_OFFSET_COMMIT: Final = "OffsetCommitKey"
_COMMIT: Final = "COMMIT"
#: How many partitions brokers give their own topics, and how many nobody does.
_PARTITIONS_DEFAULT: Final = 50
_PARTITIONS_MAX: Final = 1_000
#: `Utils.abs` has 0 for the smallest number.
_INT_MAX: Final = 2**31 - 1
_OPTION: Final = "--reset-offsets"


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A transaction of which it is decided that it commits, and whose markers may not be written yet.

    Attributes:
        producer_ids: under which its records may be.
    """

    transactional_id: str
    producer_ids: frozenset[int]
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class CoordinatorLog:
    """What a log of a coordinator's topic comes to.

    Attributes:
        versions: the largest version of each record's value: module of the messages, type of the key.
        highest_producer_id: in the records; −1: none.
        offsets: what each group has committed of a partition.
        pending: the same of transactions, by producer id, which no marker has ended.
        prepared: by transactional id.
        names: the groups with offsets, and the transactional ids. Each one's hash says in which partition it is.
    """

    versions: dict[tuple[str, int], int] = field(default_factory=dict)
    highest_producer_id: int = -1
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    pending: dict[int, dict[tuple[str, TopicPartition], int | None]] = field(default_factory=dict)
    prepared: dict[str, PreparedCommit] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @property
    def highest_offsets(self) -> Mapping[tuple[str, TopicPartition], int]:
        """The largest offset that a group has committed of a partition, or may yet commit by a transaction."""
        highest = dict(self.offsets)
        for of_producer in self.pending.values():
            for key, offset in of_producer.items():
                if offset is not None:
                    highest[key] = max(highest.get(key, 0), offset)
        return highest

    def add(self, batch: BatchHeader, record: Record, module: str) -> None:
        if batch.is_control:
            self._end_transaction(batch.producer_id, read_control_record(record).name == _COMMIT)
            return
        if record.key is None:
            return
        try:
            read = read_coordinator_record(record.key, record.value, module)
        except (UnreadableMessageError, UnknownRecordTypeError):
            return  # of a newer Kafka: its version is not known
        if read.value is not None and read.value_version is not None:
            kind = (module, read.record_type)
            self.versions[kind] = max(self.versions.get(kind, 0), read.value_version)
        if module == TRANSACTION_STATE:
            self._add_transaction_state(read)
        elif read.key_message.name.endswith(_OFFSET_COMMIT):
            self._add_offset_commit(batch, read)

    def _add_offset_commit(self, batch: BatchHeader, read: CoordinatorRecord) -> None:
        key = (read.key["group"], TopicPartition(read.key["topic"], read.key["partition"]))
        self.names.add(read.key["group"])
        offset = None if read.value is None else int(read.value["offset"])
        if batch.is_transactional:
            self.pending.setdefault(batch.producer_id, {})[key] = offset
        else:
            self._set_group_offset(key, offset)

    def _set_group_offset(self, key: tuple[str, TopicPartition], offset: int | None) -> None:
        if offset is None:
            self.offsets.pop(key, None)
        else:
            self.offsets[key] = offset

    def _end_transaction(self, producer_id: int, commits: bool) -> None:
        for key, offset in self.pending.pop(producer_id, {}).items():
            if commits:
                self._set_group_offset(key, offset)

    def _add_transaction_state(self, read: CoordinatorRecord) -> None:
        transactional_id, value = read.key["transactionalId"], read.value
        self.names.add(transactional_id)
        self.prepared.pop(transactional_id, None)
        if value is None:
            return
        ids = [int(value.get(name, -1)) for name in _PRODUCER_ID_FIELDS]
        self.highest_producer_id = max(self.highest_producer_id, *ids)
        if value["transactionStatus"] == _PREPARE_COMMIT:
            partitions = tuple(
                TopicPartition(of_topic["topic"], number)
                for of_topic in value["transactionPartitions"] or ()
                for number in of_topic["partitionIds"]
            )
            known = frozenset(producer_id for producer_id in ids if producer_id >= 0)
            self.prepared[transactional_id] = PreparedCommit(transactional_id, known, partitions)


def partitions_by_names(names: Mapping[int, Collection[str]]) -> int:
    """How many partitions a coordinator's topic had, by what its partitions have: its last ones may be lost. If as many
    as are there explain all names, or no number does, these (`GroupCoordinatorService.partitionFor`).
    """
    least = max(names, default=-1) + 1
    hashes = [
        (abs(hash_of(name)) & _INT_MAX, number) for number, of_partition in names.items() for name in of_partition
    ]
    more = chain(range(max(least, _PARTITIONS_DEFAULT), _PARTITIONS_MAX), range(least, _PARTITIONS_DEFAULT))
    for count in chain((least,), more):
        if all(value % count == number for value, number in hashes):
            return count
    return least


def read_coordinator_log(forecast: Forecast) -> CoordinatorLog:
    """Read a replica of a coordinator's topic up to the end that a start leaves. What is malformed ends a segment."""
    module, read = COORDINATOR_TOPICS[forecast.topic_partition.topic], CoordinatorLog()
    for batch, record in _records_of_log(forecast):
        read.add(batch, record, module)
    return read


def _records_of_log(forecast: Forecast) -> Iterator[tuple[BatchHeader, Record]]:
    for segment in forecast.simulation.segments:
        log = LogFile(log_path(forecast.directory, segment.base_offset))
        log.keep_valid(segment.kept_bytes)
        with contextlib.closing(log), contextlib.suppress(MalformedError, MalformedRecordsError):
            for batch in batches(log):
                yield from ((batch, record) for record in records(log, batch))


@dataclass(frozen=True, slots=True, order=True)
class GroupBehindEnd:
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
    behind: Sequence[GroupBehindEnd] = ()
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
    behind: list[GroupBehindEnd] = []
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
                behind.append(GroupBehindEnd(group, partition, offset, end))
                expected[group, partition] = end
    return GroupOffsets(
        dict(sorted(expected.items())),
        sorted(behind),
        dict(sorted(not_restored.items())),
        dict(sorted(missing.items())),
    )


def write_group_resets(path: Path, behind: Iterable[GroupBehindEnd]) -> None:
    """Write the file that sets the restored groups back, for `kafka-consumer-groups --reset-offsets --from-file`:
    group, topic, partition, offset (`CsvUtils.CsvRecordWithGroup`).
    """
    text = io.StringIO()
    rows = ((each.group, each.topic_partition.topic, each.topic_partition.partition, each.end) for each in behind)
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        path.write_text(text.getvalue())
    except OSError as error:
        raise KidxError(f"{_OPTION} {path}: cannot be written: {error.strerror}; nothing else was written") from error
