"""What the coordinators' topics say: committed offsets of groups, transactions that are about to commit, producer ids,
and versions of records. A log is read once, and nothing is rewritten.

Sources: `GroupCoordinatorService`, `CoordinatorLoaderImpl.load`, `TransactionStateManager.loadTransactionMetadata`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from kidxlib.errors import MalformedError, MalformedRecordsError, UnknownRecordTypeError, UnreadableMessageError
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
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import Record, records
from kidxlib.storage.opened_log import LogFile

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

    def add(self, batch: Batch, record: Record, module: str) -> None:
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

    def _add_offset_commit(self, batch: Batch, read: CoordinatorRecord) -> None:
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


def _records_of_log(forecast: Forecast) -> Iterator[tuple[Batch, Record]]:
    for segment in forecast.simulation.segments:
        log = LogFile(log_path(forecast.directory, segment.base_offset))
        log.keep_valid(segment.kept_bytes)
        with contextlib.closing(log), contextlib.suppress(MalformedError, MalformedRecordsError):
            for batch in batches(log):
                yield from ((batch, record) for record in records(log, batch))
