"""Every damage of a killed broker's disk at each level, trusted or not, beside a broker that starts by itself."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import re
import shutil
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kidxlib.format.layouts import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_V2,
    LOG_OVERHEAD,
    TIME_INDEX_ENTRY,
    field_position,
)
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.operations.recover.page_cache import note_page_cache
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import Ended, kidx
from tests.kafka.crashed import INDEX_SUFFIXES, batches_of, logs_of, read_again, why_untrusted
from tests.kafka.damaged_disk import (
    FIRST_MS,
    LEFT_OPEN,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    PARTITIONS,
    Answer,
    Connection,
    killed_disk,
)
from tests.kafka.reading import TIMEOUT_SECONDS, consumer_of, wait_until_read
from tests.support.kafka.admin import wait_until
from tests.support.kafka.broker import Broker
from tests.support.kafka.tiered import tiered_twin
from tests.support.logs import encoded
from tests.support.logs.snapshots import Producer as KnownProducer
from tests.support.logs.snapshots import producers_in

_CONTROLLER: Final = re.compile(r"Generated \d+ record\(s\) to clean up previous incarnations")
#: Partitions of which a broker finds what is in its bucket.
_IN_BUCKET: Final = [place for place, damage in PARTITIONS.items() if place[0] == "tiered" and damage.keeps_epochs]
#: Of the ids of topics and remote segments.
_ID_LENGTH: Final = 22
_TIMES: Final = 8
_GAP: Final = 1_000


class Read(NamedTuple):
    """A partition as a consumer gets it: a digest of its records with their offsets, how many, and where it ended: an
    offset, or the negative code of an error.
    """

    digest: str
    records: int
    end: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The last batch that an idempotent producer has sent to a partition before the kill.

    Attributes:
        batch: its bytes.
        next: the batch that it sends then.
        too_late: a batch with a gap before it.
        offset: of the first record, as it was acknowledged.
    """

    batch: bytes
    next: bytes
    too_late: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the disk, by partition.

    Attributes:
        recovered: how many segments the broker read again.
        skipped: in how many log dirs it found a clean shutdown.
        controller: what the controller says of the broker that registers again.
        uncommitted, committed: what consumers get.
        offsets: where timestamps lead, that are spread over all.
        answers: to a producer that sends its last batch again, then goes on, and then leaves out some.
        stable: the last stable offset and the end, once the transaction that the kill has left open was aborted. They
            differ where a marker was lost that somebody had been told of: that transaction hangs.
        files: logs, indexes and epochs after the next clean stop, with the times of markers left out.
        producers: of the snapshots then, by file.
        bucket: of a tiered partition, what was copied, by start offset and kind.
    """

    recovered: Mapping[str, int]
    skipped: int
    controller: Sequence[str]
    uncommitted: Mapping[str, Read]
    committed: Mapping[str, Read]
    offsets: Mapping[str, Sequence[int]]
    answers: Mapping[str, Sequence[Answer]]
    stable: Mapping[str, tuple[int, int]]
    files: Mapping[str, Mapping[str, bytes]]
    producers: Mapping[str, Mapping[str, frozenset[KnownProducer]]]
    bucket: Mapping[str, Mapping[str, bytes]]

    def differences(
        self, other: Outcome, names: Iterable[str], own_files: Mapping[str, Collection[str]]
    ) -> Iterator[str]:
        """Where some partitions came to something else, a line each.

        Args:
            own_files: by partition, files that may differ.
        """
        for name in names:
            for what in ("uncommitted", "committed", "offsets", "answers", "stable"):
                here, there = getattr(self, what)[name], getattr(other, what)[name]
                if here != there:
                    yield f"{name}: {what}: {here} and {there}"
            for what in ("files", "producers", "bucket"):
                here, there = getattr(self, what).get(name, {}), getattr(other, what).get(name, {})
                for each in sorted((here.keys() | there.keys()) - set(own_files.get(name, ()))):
                    if here.get(each) != there.get(each):
                        yield f"{name}: {what}: {each}: {_shown(here.get(each))} and {_shown(there.get(each))}"


def _shown(content: object) -> object:
    return f"{len(content)} bytes" if isinstance(content, bytes) else content


def last_sent(broker: Broker) -> dict[tuple[str, int], Sent]:
    """Of each partition, from its logs before anything was damaged."""
    found = {}
    for kind, number in PARTITIONS:
        for log in sorted((broker.log_dir / f"{kind}-{number}").glob(f"*{LOG_SUFFIX}"), reverse=True):
            of_idempotent = [
                batch
                for batch in batches_of(log)
                if batch.producer_id >= 0 and not batch.attributes & (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
            ]
            if of_idempotent:
                last = of_idempotent[-1]
                sent = bytes(8) + log.read_bytes()[last.position + 8 : last.position + last.size]
                following = last.base_sequence + (last.records_count or 0)
                found[kind, number] = Sent(
                    batch=sent,
                    next=_batch(last.producer_id, last.producer_epoch, following),
                    too_late=_batch(last.producer_id, last.producer_epoch, following + _GAP),
                    offset=last.offset_field,
                )
                break
    return found


def _batch(producer_id: int, epoch: int, sequence: int) -> bytes:
    return encoded.batch_v2(
        [Record(0, FIRST_MS, b"k", b"after the crash")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def outcome(broker: Broker, sent: Mapping[tuple[str, int], Sent]) -> Outcome:
    """Start a broker on a disk, read all, let producers go on, end the transaction that is open, and stop it."""
    with broker.running() as run:
        wait_until_read(broker.bootstrap, _IN_BUCKET)
        uncommitted, committed = (_read(broker.bootstrap, each) for each in ("read_uncommitted", "read_committed"))
        offsets = _offsets(broker.bootstrap)
        with contextlib.closing(Connection(broker.bootstrap)) as connection:
            answers = _go_on(connection, sent)
        config = {"bootstrap.servers": broker.bootstrap, "transactional.id": LEFT_OPEN, "log_level": 2}
        Producer(config).init_transactions(TIMEOUT_SECONDS)
        stable, ends = (_ends(broker.bootstrap, each) for each in ("read_committed", "read_uncommitted"))
        wait_until(lambda: _is_copied(broker, stable), "segments are not copied")
    recovered, skipped = read_again(run)
    return Outcome(
        recovered=recovered,
        skipped=skipped,
        controller=[found[0] for found in filter(None, map(_CONTROLLER.search, run.lines()))],
        uncommitted=uncommitted,
        committed=committed,
        offsets=offsets,
        answers=answers,
        stable={f"{kind}-{number}": (stable[kind, number], ends[kind, number]) for kind, number in PARTITIONS},
        files=_files(broker),
        producers=_producers(broker),
        bucket=_bucket(broker),
    )


def expected_answers(each: Sent, end: int) -> list[Answer]:
    """Where nothing was lost: the batch is known, the next one comes at the end, and none may be left out."""
    return [Answer(NONE, each.offset), Answer(NONE, end), Answer(OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def _read(bootstrap: str, isolation: str) -> dict[str, Read]:
    """All partitions from their first records on."""
    digests = {f"{kind}-{number}": hashlib.sha256() for kind, number in PARTITIONS}
    counts, ends, consumer = Counter[str](), dict[str, int](), consumer_of(bootstrap, isolation)
    consumer.assign([ClientPartition(*place, OFFSET_BEGINNING) for place in PARTITIONS])
    while len(ends) < len(PARTITIONS):
        messages = consumer.consume(10_000, 1.0) or consumer.consume(1, TIMEOUT_SECONDS)
        assert messages, f"nothing more came of {sorted(digests.keys() - ends.keys())}"
        for message in messages:
            name, error, offset = f"{message.topic()}-{message.partition()}", message.error(), message.offset()
            assert offset is not None
            if error is None:
                fields = (offset, message.timestamp(), message.leader_epoch(), message.key(), message.value())
                digests[name].update(repr(fields).encode())
                counts[name] += 1
            else:
                ends[name] = offset if error.code() == KafkaError._PARTITION_EOF else -abs(error.code())
    consumer.close()
    return {name: Read(digests[name].hexdigest(), counts[name], ends[name]) for name in digests}


def _offsets(bootstrap: str) -> dict[str, list[int]]:
    """Where timestamps lead. `paged` has one for each offset; those of other topics are spread over ten million ms."""
    consumer, found = consumer_of(bootstrap, "read_uncommitted"), dict[str, list[int]]()
    for time in range(_TIMES):
        asked = [
            ClientPartition(kind, number, FIRST_MS + (time * 260 + 1 if kind == "paged" else time * 10**7 // _TIMES))
            for kind, number in PARTITIONS
        ]
        for answer in consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS):
            assert answer.error is None, answer
            found.setdefault(f"{answer.topic}-{answer.partition}", []).append(answer.offset)
    consumer.close()
    return found


def _ends(bootstrap: str, isolation: str) -> dict[tuple[str, int], int]:
    """Where a consumer of an isolation ends."""
    consumer = consumer_of(bootstrap, isolation)
    ends = {
        place: consumer.get_watermark_offsets(ClientPartition(*place), TIMEOUT_SECONDS, cached=False)[1]
        for place in PARTITIONS
    }
    consumer.close()
    return ends


def _go_on(connection: Connection, sent: Mapping[tuple[str, int], Sent]) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {}
    for part in ("batch", "next", "too_late"):
        for (kind, number), answer in connection.produce(
            {place: getattr(each, part) for place, each in sent.items()}
        ).items():
            found.setdefault(f"{kind}-{number}", []).append(answer)
    return found


def _is_copied(broker: Broker, stable: Mapping[tuple[str, int], int]) -> bool:
    """Whether the bucket has all that the broker has finished of tiered partitions, up to the last stable offsets."""
    copied = _bucket(broker, with_content=False)
    for kind, number in _IN_BUCKET:
        logs = sorted((broker.log_dir / f"{kind}-{number}").glob(f"*{LOG_SUFFIX}"))
        starts = {name.split(".")[0] for name in copied.get(f"{kind}-{number}", {}) if name.endswith(LOG_SUFFIX)}
        bounds = itertools.pairwise(log.stem for log in logs)
        if any(start not in starts and int(end) <= stable[kind, number] for start, end in bounds):
            return False
    return True


def _bucket(broker: Broker, *, with_content: bool = True) -> dict[str, dict[str, bytes]]:
    """By partition, what `<start offset><suffix>` is; ids of segments are a broker's own."""
    found: dict[str, dict[str, bytes]] = {}
    for directory in (broker.directory / "remote" / STORAGE_DIRECTORY).iterdir():
        partition = found.setdefault(directory.name[: -_ID_LENGTH - 1], {})
        for path in directory.iterdir():
            name = f"{path.name.split('-')[0]}{path.suffix}"
            is_compared = with_content and path.suffix != SNAPSHOT_SUFFIX  # which has times, in Java's order
            partition[name] = _without_times_of_markers(path) if is_compared else b""
    return found


def _files(broker: Broker) -> dict[str, dict[str, bytes]]:
    kept = (*INDEX_SUFFIXES, LOG_SUFFIX, LEADER_EPOCH_CHECKPOINT)
    return {
        f"{kind}-{number}": {
            path.name: _without_times_of_markers(path)
            for path in (broker.log_dir / f"{kind}-{number}").iterdir()
            if path.name.endswith(kept)
        }
        for kind, number in PARTITIONS
    }


def _without_times_of_markers(path: Path) -> bytes:
    """A file, but without what a broker stamps markers with, in a log and in a time index, and checksums over that."""
    content = path.read_bytes()
    if path.suffix == LOG_SUFFIX:
        return _log_without_times(content)
    if path.suffix == TIME_INDEX_SUFFIX:
        entries = np.frombuffer(content, TIME_INDEX_ENTRY).copy()
        entries["timestamp"][entries["timestamp"] < FIRST_MS] = 0
        return bytes(entries.tobytes())
    return content


def _log_without_times(log: bytes) -> bytes:
    data, position = bytearray(log), 0
    attributes, crc = field_position(BATCH_V2, "attributes"), field_position(BATCH_V2, "crc")
    times = field_position(BATCH_V2, "base_timestamp")
    while position + BATCH_V2.itemsize <= len(data):
        [size] = struct.unpack_from(">i", data, position + 8)
        if size <= 0:
            break
        [flags] = struct.unpack_from(">h", data, position + attributes)
        if flags & ATTRIBUTE_CONTROL:
            data[position + crc : position + crc + 4] = bytes(4)
            data[position + times : position + times + 16] = bytes(16)
        position += LOG_OVERHEAD + size
    return bytes(data)


def _producers(broker: Broker) -> dict[str, dict[str, frozenset[KnownProducer]]]:
    """Without the times that come from markers."""
    return {
        f"{kind}-{number}": {
            path.name: frozenset(
                each if each.timestamp >= FIRST_MS else replace(each, timestamp=0)
                for each in producers_in(path.read_bytes())
            )
            for path in (broker.log_dir / f"{kind}-{number}").glob(f"*{SNAPSHOT_SUFFIX}")
        }
        for kind, number in PARTITIONS
    }


@dataclass(frozen=True, slots=True)
class _Way:
    """How a disk is recovered.

    Attributes:
        trusts: the page cache.
        cuts: ends of logs, and does not leave them to the broker.
    """

    level: str
    trusts: bool
    cuts: bool

    def __str__(self) -> str:
        return f"{self.level}{'-trusted' if self.trusts else ''}{'-cut' if self.cuts else ''}"

    def recover(self, broker: Broker, *arguments: str) -> Ended:
        cut = ("--truncate", "--keep", broker.directory / "kept") if self.cuts else ()
        trust = ("--trust-page-cache",) if self.trusts else ()
        options = ("--level", self.level, "--accept-loss", *cut, *trust, *arguments)
        return kidx("recover", *broker.log_dirs, *options, "--json")


#: With a marker ends have to be cut.
_WAYS: Final = [
    _Way(level, trusts, cuts)
    for level, trusts, cuts in itertools.product(("checkpoint", "marker"), (False, True), (False, True))
    if cuts or level == "checkpoint"
]
_SEEDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Disk:
    """A killed broker's disk, and what its producers sent last."""

    broker: Broker
    sent: Mapping[tuple[str, int], Sent]

    def damaged(self, directory: Path, seed: int, *, untold: bool) -> Broker:
        """A copy with all damages.

        Args:
            untold: also with those that `--trust-page-cache` does not look for.
        """
        twin = tiered_twin(self.broker, directory)
        for (kind, number), damage in PARTITIONS.items():
            if untold or damage.headers_tell:
                damage.do(twin.log_dir / f"{kind}-{number}", random.Random(f"{seed} {kind} {number}"))
        return twin


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> _Disk:
    broker = killed_disk(tmp_path_factory.mktemp("damaged") / "broker", broker_version)
    return _Disk(broker, last_sent(broker))


@pytest.mark.exhaustive("takes minutes; what brokers did with each damage is recorded, and compared in each run")
def test_what_becomes_of_each_damage(
    disk: _Disk, tmp_path: Path, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """A broker that starts after `kidx recover` says, gives, accepts and leaves what one does that starts by itself,
    for each partition; so does the controller. It reads the last segment of each partition again at the level of
    checkpoints, and nothing with a marker. Each partition of one disk has a damage of its own. Damages that no kernel
    can have made that still has all pages are left out where it is trusted: headers do not tell them, and nobody has
    promised that they do. Partitions for which a marker is refused are made whole, so that there is one for the others.
    """
    for _ in range(_SEEDS if exhaustive else 1):
        seed = rng.randrange(2**32)
        alone = outcome(disk.damaged(tmp_path / f"{seed}-alone", seed, untold=True), disk.sent)
        _ensure_whole(disk, alone)
        for way in _WAYS if exhaustive else [rng.choice(_WAYS)]:
            if way.trusts and (why := why_untrusted(tmp_path)) is not None:
                say(f"nothing is trusted here: {why}")
                continue
            broker = disk.damaged(tmp_path / f"{seed}-{way}", seed, untold=not way.trusts)
            compared = _compare(disk, broker, way, alone)
            say(f"{way}, seed {seed}: {compared} of {len(PARTITIONS)} partitions as by itself")
            shutil.rmtree(broker.directory)


def _compare(disk: _Disk, broker: Broker, way: _Way, alone: Outcome) -> int:
    """Recover a damaged disk, start a broker on it, and compare; how many partitions."""
    if way.trusts:
        note_page_cache(broker.log_dirs)  # it is a copy, of what the kernel has
    refused = _make_whole(disk, broker, way)
    names = [
        f"{kind}-{number}"
        for (kind, number), damage in PARTITIONS.items()
        if f"{kind}-{number}" not in refused and (damage.headers_tell or not way.trusts)
    ]
    but = _first_snapshots(broker)
    if way.trusts:
        own = _own_files(broker, alone)
        but = {name: files | but.get(name, set()) for name, files in own.items()}
    ended = way.recover(broker, "--apply")
    assert ended.code == ExitCode.PROBLEMS_FOUND and ended.json["applied"] and not ended.json["untrusted"], ended
    found = outcome(broker, disk.sent)
    assert list(found.differences(alone, names, but)) == []
    assert found.controller == alone.controller and len(found.controller) == 1
    planned = {Path(each["directory"]).name: each for each in ended.json["partitions"]}
    drops = {f"{kind}-{number}" for (kind, number), damage in PARTITIONS.items() if damage.drops}
    assert {name for name in names if planned[name]["dropped"]} == drops.intersection(names)
    readable = [name for name in names if alone.uncommitted[name].end >= 0]
    ends = {name: planned[name]["log_end_offset"] for name in readable}
    assert ends == {name: alone.uncommitted[name].end for name in readable}
    left = {name for name, each in planned.items() if each["left_to_the_broker"]}
    expected = {name: alone.recovered[name] if name in left else int(way.level == "checkpoint") for name in names}
    assert {name: found.recovered[name] for name in names} == expected
    assert found.skipped == (len(broker.log_dirs) if way.level == "marker" else 0)
    return len(names)


def _make_whole(disk: _Disk, broker: Broker, way: _Way) -> set[str]:
    """Partitions that are refused, and are put back as they were: for a marker those of which nothing tells the
    producers, and tiered ones without leader epochs, of which a broker would delete remote segments.
    """
    planned = way.recover(broker).json
    without_epochs, refused = set[str](), set[str]()
    for each in planned["refused"]:
        place, is_of_epochs, _ = each.partition("/leader-epoch-checkpoint: ")
        (without_epochs if is_of_epochs else refused).add(Path(place.split(": no producer snapshot")[0]).name)
    assert all(name.startswith("tiered-") for name in without_epochs), planned["refused"]
    for name in without_epochs | refused:
        shutil.rmtree(broker.log_dir / name)
        shutil.copytree(disk.broker.log_dir / name, broker.log_dir / name)
    if way.level != "marker":
        assert not refused, planned["refused"]
        return without_epochs
    without = {(kind, number) for (kind, number), damage in PARTITIONS.items() if not damage.keeps_snapshots}
    assert refused <= {f"{kind}-{number}" for kind, number in without if kind != "deleted"}, planned["refused"]
    assert refused | without_epochs >= {f"{kind}-{number}" for kind, number in without if kind == "tiered"}
    return refused | without_epochs


def _ensure_whole(disk: _Disk, alone: Outcome) -> None:
    """Partitions without a damage have lost nothing, and the transaction that was open does not hang."""
    for (kind, number), damage in PARTITIONS.items():
        if damage.name == "whole":
            name = f"{kind}-{number}"
            answers = expected_answers(disk.sent[kind, number], alone.uncommitted[name].end)
            assert alone.answers[name] == answers, name
            stable, end = alone.stable[name]
            assert stable == end, name


def _first_snapshots(broker: Broker) -> dict[str, set[str]]:
    """Where tiered partitions have lost all snapshots, a broker that recovers takes one, of no producers, at the first
    offset that is not in the bucket alone. Nobody needs it: segments before it are copied.
    """
    return {
        f"{kind}-{number}": {logs_of(broker, f"{kind}-{number}")[0].with_suffix(SNAPSHOT_SUFFIX).name}
        for (kind, number), damage in PARTITIONS.items()
        if kind == "tiered" and not damage.keeps_snapshots
    }


def _own_files(broker: Broker, alone: Outcome) -> dict[str, set[str]]:
    """Files of segments that the broker had finished, which are right, and others than a recovery makes. Where it went
    on after it was stopped, it counts the interval of indexes from there. And it has seen producers, and transactions
    that were aborted, before compaction took their records away.
    """
    points = read_offset_checkpoint(broker.log_dir / RECOVERY_POINT_CHECKPOINT) or {}
    found: dict[str, set[str]] = {}
    for kind, number in PARTITIONS:
        logs = logs_of(broker, f"{kind}-{number}")
        first = [log for log in logs if int(log.stem) <= points[TopicPartition(kind, number)]][-1]
        own = [first.with_suffix(suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        if kind == "compacted":
            own += [log.with_suffix(suffix) for log in logs for suffix in (TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)]
        if kind == "compacted" and int(logs[-1].stem) > alone.uncommitted[f"{kind}-{number}"].end:
            # The last log is dropped, and with it what would tell the same of producers.
            own += map(Path, alone.producers[f"{kind}-{number}"])
        found[f"{kind}-{number}"] = {path.name for path in own}
    return found
