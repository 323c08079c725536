"""A killed broker's disk with many partitions: compacted, tiered, preallocated ones, and some with large indexes."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT, LEADER_EPOCH_CHECKPOINT
from kidxlib.format.layouts import BATCH_V2, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import read_offset_checkpoint
from tests.kafka.crashed import INDEX_SUFFIXES, SHORT_SESSION, batches_of
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.admin import make_topics, set_config, wait_until
from tests.support.kafka.broker import Broker
from tests.support.kafka.tiered import ONE_PARTITION_EACH, tiered_broker
from tests.support.logs import encoded

NONE: Final = 0
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45

#: `ProduceRequest` of a version without tagged fields, that Kafka 4.3 knows.
_API_KEY, _VERSION = 0, 3
_CLIENT: Final = b"kidx-tests"


class Answer(NamedTuple):
    """What a broker says of a batch: an error of Kafka's `Errors`, and the offset of its first record."""

    error: int
    offset: int


class Connection:
    """A connection to a broker, which leads all partitions."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._correlations = itertools.count()

    def produce(self, batches: Mapping[tuple[str, int], bytes]) -> dict[tuple[str, int], Answer]:
        """Send a batch to each of some partitions, with `acks=all`."""
        correlation = next(self._correlations)
        header = struct.pack(">hhih", _API_KEY, _VERSION, correlation, len(_CLIENT)) + _CLIENT
        body = struct.pack(">hhii", -1, -1, int(TIMEOUT_SECONDS * 1000), len(batches))
        for (topic, partition), batch in batches.items():  # a topic may come several times
            name = topic.encode()
            body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        [size] = struct.unpack(">i", self._file.read(4))
        answer = self._file.read(size)
        assert answer[:4] == struct.pack(">i", correlation)
        return dict(_answers(answer[4:]))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def _answers(body: bytes) -> Iterator[tuple[tuple[str, int], Answer]]:
    [topics], position = struct.unpack_from(">i", body), 4
    for _ in range(topics):
        [length] = struct.unpack_from(">h", body, position)
        topic = body[position + 2 : position + 2 + length].decode()
        [partitions] = struct.unpack_from(">i", body, position := position + 2 + length)
        position += 4
        for _ in range(partitions):
            partition, error, offset, _ = struct.unpack_from(">ihqq", body, position)
            position += 22
            yield (topic, partition), Answer(error, offset)


_Do: TypeAlias = Callable[[Path, random.Random], object]

_PAGE: Final = 4096
_HEADER: Final = BATCH_V2.itemsize
_LAST, _FINISHED = -1, -2


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage of one partition.

    Attributes:
        do: it, to the partition's directory.
        headers_tell: a kill may leave this, or batch headers and the ends of segments show it. Else it is none that a
            kernel that still has all pages can have made, and `--trust-page-cache` does not look for it.
        drops: a broker cuts something off, or drops it.
        keeps_epochs: without leader epochs no broker finds anything in a bucket.
        keeps_snapshots: without any producer snapshot a marker may be refused.
    """

    name: str
    do: _Do
    headers_tell: bool = True
    drops: bool = False
    keeps_epochs: bool = True
    keeps_snapshots: bool = True


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{LOG_SUFFIX}"))


def _in_log(number: int, do: _Do) -> _Do:
    """A damage of the last log, or of the last one that is finished."""
    return lambda directory, rng: do(_logs(directory)[number], rng)


def _cut_between(log: Path, rng: random.Random) -> None:
    found = batches_of(log)
    os.truncate(log, rng.choice(found[1:] or found).position)


def _cut_in_records(log: Path, rng: random.Random) -> None:
    batch = rng.choice(batches_of(log))
    os.truncate(log, batch.position + rng.randrange(_HEADER, batch.size))


def _garbage_after(log: Path, rng: random.Random) -> None:
    with log.open("ab") as file:
        file.write(rng.randbytes(rng.choice([1, _HEADER - 1, _PAGE])))


def _over_last_page(path: Path, content: bytes, used: int | None = None, least: int = 1) -> None:
    """Put something in place of the last page of a file, or of its used part.

    Args:
        least: how many bytes at least: of fewer the page before it, too.
    """
    end = path.stat().st_size if used is None else used
    start = max(end - least, 0) // _PAGE * _PAGE
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content[: end - start])


def _break_off(first: int) -> _Do:
    """Zeros from a place in the last batch on, that many bytes behind its beginning or later: a preallocated log."""

    def break_off(log: Path, rng: random.Random) -> None:
        batch = batches_of(log)[-1]
        with log.open("r+b") as file:
            file.seek(batch.position + rng.randrange(first, _HEADER if first < _HEADER else batch.size))
            file.write(bytes(batch.size))

    return break_off


def _flip(log: Path, rng: random.Random) -> None:
    """A bit in the records of a batch that is not the last one."""
    found = batches_of(log)
    batch = rng.choice(found[:-1] or found)
    with log.open("r+b") as file:
        file.seek(at := batch.position + rng.randrange(_HEADER, batch.size))
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def _remove(*suffixes: str) -> _Do:
    def remove(directory: Path, rng: random.Random) -> None:
        for path in list(directory.iterdir()):
            if path.name.endswith(suffixes):
                path.unlink()

    return remove


def _remove_last_snapshots(directory: Path, rng: random.Random) -> None:
    for path in sorted(directory.glob(f"*{SNAPSHOT_SUFFIX}"))[-rng.randint(1, 2) :]:
        path.unlink()


def _spoil_last_snapshot(directory: Path, rng: random.Random) -> None:
    path = max(directory.glob(f"*{SNAPSHOT_SUFFIX}"))
    path.write_bytes(rng.randbytes(path.stat().st_size))


def _cut_transaction_index(directory: Path, rng: random.Random) -> None:
    indexes = [path for path in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}") if path.stat().st_size]
    os.truncate(max(indexes), 0)


def _leave_files(directory: Path, rng: random.Random) -> None:
    """Of a compaction that had not come to its end, of a deletion, and indexes without a log."""
    for log in _logs(directory)[:2]:
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX):
            there = log.with_suffix(suffix)
            shutil.copyfile(there, f"{there}{DELETED_SUFFIX}")
            shutil.copyfile(there, f"{there}{CLEANED_SUFFIX}")
    (directory / f"{10**6:020}{OFFSET_INDEX_SUFFIX}").write_bytes(bytes(16))


def _leave_renamed(directory: Path, rng: random.Random) -> None:
    """Of a compaction that was about to rename its files: one has its next name, others not yet. All are dropped."""
    log = _logs(directory)[0]
    shutil.copyfile(log, f"{log}{CLEANED_SUFFIX}")
    index = log.with_suffix(OFFSET_INDEX_SUFFIX)
    shutil.copyfile(index, f"{index}{SWAP_SUFFIX}")


def _lose_index_page(suffix: str, entry_bytes: int, *, is_cut: bool) -> _Do:
    """The last page of an index is zeros, or not there: of the last segment, and of the one before it."""

    def lose(directory: Path, rng: random.Random) -> None:
        for number in (_FINISHED, _LAST):
            index = _logs(directory)[number].with_suffix(suffix)
            used = len(index.read_bytes().rstrip(b"\0")) // entry_bytes * entry_bytes + entry_bytes
            used = min(used, index.stat().st_size)
            assert number == _LAST or used > _PAGE, (index, used)
            if is_cut:
                os.truncate(index, (used - 1) // _PAGE * _PAGE // entry_bytes * entry_bytes)
            else:
                _over_last_page(index, bytes(_PAGE), used)

    return lose


def _nothing(directory: Path, rng: random.Random) -> None:
    pass


#: Of a partition's last log, or of one that the broker had finished, behind which it had gone on.
_OF_LOGS: Final[Mapping[str, _Do]] = MappingProxyType(
    {
        "cut in a header": lambda log, rng: os.truncate(log, batches_of(log)[-1].position + rng.randrange(1, _HEADER)),
        "cut between batches": _cut_between,
        "cut in records": _cut_in_records,
        "cut to nothing": lambda log, rng: os.truncate(log, 0),
        "zeros after it": lambda log, rng: os.truncate(log, log.stat().st_size + rng.choice([1, _HEADER - 1, _PAGE])),
        "zeros in its last page": lambda log, rng: _over_last_page(log, bytes(2 * _PAGE), least=_HEADER),
        "garbage after it": _garbage_after,
        "garbage in its last page": lambda log, rng: _over_last_page(log, rng.randbytes(2 * _PAGE), least=_HEADER),
        "nothing but zeros": lambda log, rng: log.write_bytes(bytes(log.stat().st_size)),
        "a bit is another": _flip,
    }
)
_UNTOLD: Final = frozenset({"a bit is another"})
#: What is left is a log as any other.
_UNSEEN: Final = frozenset({"cut between batches", "cut to nothing"})


def _of_logs(number: int) -> list[Damage]:
    which = "the last log" if number == _LAST else "a finished log"
    return [
        Damage(f"{which}, {name}", _in_log(number, do), name not in _UNTOLD, name not in _UNSEEN)
        for name, do in _OF_LOGS.items()
    ]


_WHOLE: Final = Damage("whole", _nothing)
_OF_SIDE_FILES: Final = [
    Damage("no snapshots", _remove(SNAPSHOT_SUFFIX), keeps_snapshots=False),
    Damage("without the last snapshots", _remove_last_snapshots),
    Damage("a snapshot that cannot be read", _spoil_last_snapshot),
    Damage("no leader epochs", _remove(LEADER_EPOCH_CHECKPOINT), keeps_epochs=False),
    Damage("no indexes", _remove(*INDEX_SUFFIXES)),
    Damage(
        "only logs",
        _remove(*INDEX_SUFFIXES, SNAPSHOT_SUFFIX, LEADER_EPOCH_CHECKPOINT),
        keeps_epochs=False,
        keeps_snapshots=False,
    ),
    Damage("an index of aborted transactions was cut", _cut_transaction_index, headers_tell=False),
    Damage("files that are to go", _leave_files),
    Damage("files that were about to be renamed", _leave_renamed),
]
_OF_PAGES: Final = [
    Damage(f"{what} the last page of {suffix}", _lose_index_page(suffix, entry_bytes, is_cut=is_cut), not is_cut)
    for suffix, entry_bytes in (
        (OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY.itemsize),
        (TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY.itemsize),
    )
    for is_cut, what in ((True, "without"), (False, "zeros in"))
]
_SOME_OF_ALL: Final = [_WHOLE, *_of_logs(_LAST), *_of_logs(_FINISHED), *_OF_SIDE_FILES]

#: By kind of topic, a damage for each partition.
DAMAGES: Final[Mapping[str, Sequence[Damage]]] = MappingProxyType(
    {
        "deleted": _SOME_OF_ALL,
        "compacted": _SOME_OF_ALL,
        "tiered": _SOME_OF_ALL,
        "preallocated": [
            Damage("whole", _nothing, drops=True),
            Damage("an append is broken off in a header", _in_log(_LAST, _break_off(1)), drops=True),
            Damage("an append is broken off in records", _in_log(_LAST, _break_off(_HEADER)), drops=True),
        ],
        "paged": [_WHOLE, *_OF_PAGES],
    }
)


#: Yet to come, so that markers, which a broker stamps, are never the latest.
FIRST_MS: Final = 4_102_444_800_000
#: Of the producer that leaves its transaction open.
LEFT_OPEN: Final = "left-open"
PARTITIONS: Final[Mapping[tuple[str, int], Damage]] = MappingProxyType(
    {(kind, number): damage for kind, damages in DAMAGES.items() for number, damage in enumerate(damages)}
)

_NEVER: Final = str(2**63 - 1)
_COMMON: Final = {
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "1024",
    "segment.index.bytes": "65536",
    "segment.ms": _NEVER,
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": _NEVER,
}
_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "deleted": _COMMON,
        "compacted": {**_COMMON, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        "tiered": {**_COMMON, "remote.storage.enable": "true", "local.retention.bytes": "1"},
        "preallocated": {**_COMMON, "preallocate": "true"},
        "paged": {**_COMMON, "internal.segment.bytes": "65536", "index.interval.bytes": "1"},
    }
)
#: Longer than any test: until then a transaction that is left open is not to end by itself.
_TRANSACTION_MS: Final = 24 * 60 * 60 * 1000
_SETTINGS: Final = {
    **ONE_PARTITION_EACH,
    **SHORT_SESSION,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,  # of which all is cleared each time
    "transaction.max.timeout.ms": _TRANSACTION_MS,
}
_ROUNDS: Final = (45, 35, 45)
#: Batches of one record each, to `paged`: segments of some 700, whose index is longer than a page.
_SMALL_ROUNDS: Final = (700, 1_500)
_KEYS: Final = 30


class _Writers:
    """Plain, idempotent and transactional producers, one of which writes a batch to each partition each time."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._random, self._small = bootstrap, random.Random(11), 0
        self._plain = [self._producer(codec) for codec in ("none", "gzip", "snappy")]
        self._idempotent = [self._producer(codec, **{"enable.idempotence": True}) for codec in ("none", "lz4")]
        self._transactional = [self._started(codec, f"writer-{codec}") for codec in ("none", "zstd")]
        self._left_open = self._started("none", LEFT_OPEN)
        self._open: set[int] = set()

    def write(self, rounds: int) -> None:
        """No transaction is open at the end."""
        for _ in range(rounds):
            kind = self._random.choice(["plain", "idempotent", "idempotent", "transaction", "transaction"])
            if kind == "plain":
                self._write(self._random.choice(self._plain))
            elif kind == "idempotent":
                self._write(self._random.choice(self._idempotent))
            else:
                number = self._random.randrange(len(self._transactional))
                if number not in self._open:
                    self._transactional[number].begin_transaction()
                    self._open.add(number)
                self._write(self._transactional[number])
                if self._random.random() < 0.4:
                    self._end(number)
        for number in list(self._open):
            self._end(number)

    def leave_open(self) -> None:
        """Begin a transaction, and write on beside it."""
        self._left_open.begin_transaction()
        for producer in (self._left_open, self._idempotent[1], self._left_open, *self._idempotent):
            self._write(producer)

    def write_small(self, rounds: int) -> None:
        """Batches of one record each to `paged`, of a producer whose sequence goes on."""
        places = [place for place in PARTITIONS if place[0] == "paged"]
        with contextlib.closing(Connection(self._bootstrap)) as connection:
            for number in range(self._small, self._small + rounds):
                record = Record(0, FIRST_MS + number, b"k", b"%d" % number)
                batch = encoded.batch_v2([record], producer_id=10**6, producer_epoch=0, base_sequence=number)
                answers = connection.produce(dict.fromkeys(places, batch))
                assert {answer.error for answer in answers.values()} == {NONE}, answers
        self._small += rounds

    def _end(self, number: int) -> None:
        producer = self._transactional[number]
        (producer.commit_transaction if self._random.random() < 0.5 else producer.abort_transaction)(TIMEOUT_SECONDS)
        self._open.discard(number)

    def _write(self, producer: Producer) -> None:
        for kind, number in PARTITIONS:
            if kind == "paged":
                continue
            for _ in range(self._random.randint(1, 4)):
                key = b"%d" % self._random.randrange(_KEYS)
                value = self._random.randbytes(self._random.randint(10, 400))
                producer.produce(kind, value, key, number, timestamp=FIRST_MS + self._random.randrange(10**7))
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def _started(self, codec: str, name: str) -> Producer:
        producer = self._producer(codec, **{"transactional.id": name, "transaction.timeout.ms": _TRANSACTION_MS})
        producer.init_transactions(TIMEOUT_SECONDS)
        return producer

    def _producer(self, codec: str, **more: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": codec,
                "linger.ms": 60_000,  # a batch is what stands between two flushes
                "log_level": 2,
                **more,
            }
        )


def killed_disk(directory: Path, version: str) -> Broker:
    """A broker that was stopped once, and killed amid work, with a transaction open in all partitions but `paged`.

    Of `compacted` some segments were compacted, before the stop and after it. Of `tiered` the first segments are in the
    bucket alone, later ones there and in the log dir.
    """
    broker = tiered_broker(directory, _SETTINGS, version)
    with broker.running():
        topics = [NewTopic(kind, len(DAMAGES[kind]), 1, config=dict(config)) for kind, config in _CONFIGS.items()]
        make_topics(broker.bootstrap, topics)
        writers = _Writers(broker.bootstrap)
        writers.write(_ROUNDS[0])
        writers.write_small(_SMALL_ROUNDS[0])
        wait_until(lambda: _is_compacted(broker), "segments are not compacted")
        firsts = [path / segment_file(0, LOG_SUFFIX) for path in _directories(broker, "tiered")]
        wait_until(lambda: not any(first.exists() for first in firsts), "segments stay")
        set_config(broker.bootstrap, "tiered", {"local.retention.bytes": -2})
    with broker.running_until_killed():
        writers.write(_ROUNDS[1])
        wait_until(lambda: _is_compacted(broker), "segments are not compacted")
        set_config(broker.bootstrap, "compacted", {"min.compaction.lag.ms": 60_000})  # all is of the future: no more
        writers.write(_ROUNDS[2])
        writers.write_small(_SMALL_ROUNDS[1])
        writers.leave_open()
    return broker


def _directories(broker: Broker, kind: str) -> list[Path]:
    return [broker.log_dir / f"{kind}-{number}" for number in range(len(DAMAGES[kind]))]


def _is_compacted(broker: Broker) -> bool:
    """Whether all is compacted but the segments that are written to."""
    done = read_offset_checkpoint(broker.log_dir / CLEANER_CHECKPOINT) or {}
    return all(
        done.get(TopicPartition("compacted", number), 0) == int(max(path.glob(f"*{LOG_SUFFIX}")).stem) > 0
        for number, path in enumerate(_directories(broker, "compacted"))
    )
