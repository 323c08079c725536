"""A killed broker's disk, and what a broker makes of it: alone, or once `kidx recover` has made it ready."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kidxlib.errors import MalformedRecordsError, UntrustedError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.operations.recover.page_cache import last_kernel_message_number, mount_of
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.storage.opened_log import LogFile
from tests.kafka.reading import Seen, read_all
from tests.kafka.traffic import PARTITIONS, Traffic, create_topics
from tests.support.kafka.admin import set_config
from tests.support.kafka.broker import Broker, BrokerRun
from tests.support.kafka.jars import release_of
from tests.support.logs.snapshots import Producer, producers_in

INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_METADATA: Final = "__cluster_metadata-0"

#: For so long a broker that was killed waits until its controller takes it for gone, at its next start.
SHORT_SESSION: Final = {"broker.session.timeout.ms": 5_000, "broker.heartbeat.interval.ms": 500}
_SETTINGS: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 2, **SHORT_SESSION}
_STEPS: Final = 200
_LEFT_OPEN: Final = 2
_HAS_INTERNAL_SETTING: Final = KafkaRelease(4, 1)

#: Of `LogLoader` and `LogManager` in Kafka 3.9 to 4.4.
_RECOVERED: Final = re.compile(r"\[LogLoader partition=([^,]+),.*Recovering unflushed segment (\d+)")
_SKIPPED: Final = re.compile(r"Skipping recovery of (\d+) logs from .* since clean shutdown file was found")


@dataclass(frozen=True, slots=True)
class Started:
    """What came of a disk that a broker was started on.

    Attributes:
        recovered: how many segments the broker read again, by partition.
        skipped: in how many log dirs it found a clean shutdown.
        files: logs, index files and epochs after its next clean stop.
        producers: those of its snapshots then.
    """

    seen: Seen
    recovered: Mapping[str, int]
    skipped: int
    files: Mapping[str, bytes]
    producers: Mapping[str, frozenset[Producer]]

    def assert_same(self, other: Started) -> None:
        """Consumers get the same from both, and both leave the same files."""
        assert self.seen.differences(other.seen) == []
        assert self.files.keys() == other.files.keys()
        assert [name for name in other.files if self.files[name] != other.files[name]] == []
        assert self.producers == other.producers and any(other.producers.values())


def _as_it_is(broker: Broker) -> None:
    pass


def killed_broker(
    directory: Path,
    version: str,
    before_last_run: Callable[[Broker], object] = _as_it_is,
    settings: Mapping[str, object] = MappingProxyType({}),
) -> Broker:
    """A broker with two log dirs that was stopped cleanly once, and killed amid work, with a transaction open.

    One topic has its own interval.

    Args:
        before_last_run: what happens to it after it has stopped.
        settings: more of them.
    """
    broker = Broker(directory, {**_SETTINGS, **settings}, more_log_dirs=["more"], version=version)
    with broker.running():
        create_topics(broker.bootstrap, has_internal_setting=release_of(version) >= _HAS_INTERNAL_SETTING)
        set_config(broker.bootstrap, "transactions", {"index.interval.bytes": 512})
        traffic = Traffic(broker.bootstrap, seed=7)
        traffic.run(_STEPS // 4)
        traffic.end_transactions(but=_LEFT_OPEN)
    before_last_run(broker)
    with broker.running_until_killed():
        traffic.run(_STEPS)
        # Markers that are still to be written a broker would write after its start, sooner or later.
        traffic.end_transactions(but=_LEFT_OPEN)
    return broker


class Crashed:
    """A killed broker's disk, and what a broker makes of it by itself."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker, self._directory, self._numbers = broker, directory, itertools.count()
        self.alone = started(self.copy())

    def copy(self) -> Broker:
        return self._broker.copy(self._directory / str(next(self._numbers)))


def partition_directory(broker: Broker, name: str) -> Path:
    """A partition's directory, in whichever log dir it is."""
    [found] = [log_dir / name for log_dir in broker.log_dirs if (log_dir / name).is_dir()]
    return found


def logs_of(broker: Broker, name: str) -> list[Path]:
    """The logs of a partition, in order."""
    return sorted(partition_directory(broker, name).glob(f"*{LOG_SUFFIX}"))


def read_again(run: BrokerRun) -> tuple[Counter[str], int]:
    """How many segments of each partition a broker has read again, and in how many log dirs it found a clean stop."""
    lines = run.lines()
    recovered = Counter(found[1] for found in filter(None, map(_RECOVERED.search, lines)))
    del recovered[_METADATA]
    return recovered, sum(1 for _ in filter(None, map(_SKIPPED.search, lines)))


def started(broker: Broker) -> Started:
    """Start a broker on a disk, read all, and stop it."""
    with broker.running() as run:
        seen = read_all(broker.bootstrap, PARTITIONS)
    recovered, skipped = read_again(run)
    files = {
        f"{directory.name}/{path.name}": path.read_bytes()
        for topic, partition in PARTITIONS
        for directory in [partition_directory(broker, f"{topic}-{partition}")]
        for path in directory.iterdir()
    }
    return Started(
        seen=seen,
        recovered=recovered,
        skipped=skipped,
        files={
            name: content
            for name, content in files.items()
            if name.endswith((*INDEX_SUFFIXES, LOG_SUFFIX, LEADER_EPOCH_CHECKPOINT))
        },
        producers={
            name: frozenset(filter(lasts, producers_in(content)))
            for name, content in files.items()
            if name.endswith(SNAPSHOT_SUFFIX)
        },
    )


def lasts(producer: Producer) -> bool:
    """Whether a broker keeps the producer when it loads a snapshot that has it (`producer.id.expiration.ms`)."""
    a_day_ago_ms = time.time() * 1000 - 24 * 60 * 60 * 1000
    return producer.timestamp > a_day_ago_ms or producer.current_transaction_first_offset >= 0


def why_untrusted(directory: Path) -> str | None:
    """Why the page cache is not trusted with a directory; None where it is."""
    try:
        mount_of(directory)
        last_kernel_message_number()
    except UntrustedError as error:
        return str(error)
    return None


def batches_of(path: Path) -> list[BatchHeader]:
    """The batches of a sound log, up to the zeros of one that is preallocated."""
    log, found = LogFile(str(path)), list[BatchHeader]()
    with contextlib.closing(log), contextlib.suppress(MalformedRecordsError):
        for batch in batches(log):
            found.append(batch)
    return found
