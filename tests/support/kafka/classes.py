"""Kafka's own classes, in a JVM that stays up: recovery, logs and log managers.

py4j drives them, which needs no Java compiler. A call takes a quarter of a millisecond, so the tests read Kafka's
results from its files.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from py4j.java_gateway import JavaGateway, JavaPackage
from py4j.protocol import Py4JJavaError

from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.kafka_release import KAFKA_4_4, KafkaRelease
from kidxlib.recovery.options import INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT
from tests.support.kafka.functions import LOG_PACKAGE, Functions
from tests.support.kafka.jars import PROMISED, class_path, release_of
from tests.support.kafka.moved import class_name, not_there
from tests.support.kafka.records import KafkaRecords
from tests.support.logs.snapshots import Producer, producers_in


@dataclass(frozen=True, slots=True)
class KafkaError:
    """An exception that recovery did not catch: its simple class name and its message."""

    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSegment:
    """The result of recovering one segment.

    Attributes:
        truncated_bytes: None if recovery failed.
        error: the exception with which it failed.
        offset_index, time_index, transaction_index: the files' bytes; None: no such file. After a failure they are
            whatever recovery left.
        producers: the producers' state at the segment's base offset.
        seconds: the time of opening and `LogSegment.recover`, without closing, which flushes to disk.
    """

    base_offset: int
    truncated_bytes: int | None
    error: KafkaError | None
    offset_index: bytes | None
    time_index: bytes | None
    transaction_index: bytes | None
    producers: frozenset[Producer]
    seconds: float = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """The result of recovering a partition.

    Attributes:
        snapshot: a producer snapshot of the state after the last segment.
        map_end_offset: the offset up to which that state reaches.
        leader_epoch_checkpoint: the file's text; None: no such file.
    """

    segments: tuple[KafkaSegment, ...]
    snapshot: bytes
    map_end_offset: int
    leader_epoch_checkpoint: str | None

    @property
    def producers(self) -> frozenset[Producer]:
        return producers_in(self.snapshot)


def error_of(thrown: Py4JJavaError) -> KafkaError:
    name, _, message = str(thrown.java_exception.toString()).partition(": ")
    return KafkaError(name.rpartition(".")[2], message)


_END_SNAPSHOT: Final = f"end{segment_files.SNAPSHOT_SUFFIX}"
#: The files that recovery writes beside the logs.
_DERIVED_SUFFIXES: Final = (
    segment_files.OFFSET_INDEX_SUFFIX,
    segment_files.TIME_INDEX_SUFFIX,
    segment_files.TRANSACTION_INDEX_SUFFIX,
    segment_files.SNAPSHOT_SUFFIX,
)
#: The first releases whose `BrokerTopicStats` is not in Kafka's core, and whose `UnifiedLog` and `LogManager` are Java.
_STATS_IN_STORAGE: Final = KafkaRelease(4, 0)
_LOG_IN_JAVA: Final = KafkaRelease(4, 1)
_MANAGER_IN_JAVA: Final = KAFKA_4_4


class Kafka:
    """A JVM with Kafka's classes, which ends with the context. With one of `OLDER` only `opened_log` and `versions` are
    offered.

    Attributes:
        version: of the jars, as 4.4.0.
        release: the release that the version is of.
    """

    def __init__(
        self,
        java_options: Sequence[str] = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        version: str = PROMISED,
    ) -> None:
        self.version, self.release = version, release_of(version)
        self.gateway: JavaGateway = JavaGateway.launch_gateway(
            classpath=os.pathsep.join(class_path(version)),
            javaopts=list(java_options),
            java_path=None,  # $JAVA_HOME's, else PATH's
            redirect_stderr=sys.__stderr__,
            die_on_exit=True,
            enable_auth=True,
        )
        # Each dot is a call, so classes are looked up once.
        kafka = self.gateway.jvm.org.apache.kafka
        log, internals = kafka.storage.internals.log, kafka.storage.internals
        self.functions = Functions(self.gateway.jvm, self.release)
        self._file, self._hash_map = self.gateway.jvm.java.io.File, self.gateway.jvm.java.util.HashMap
        self._clock = kafka.common.utils.Time.SYSTEM
        self._log_config, self._segment = log.LogConfig, log.LogSegment
        self._producer_states = log.ProducerStateManager
        self._epoch_cache = internals.epoch.LeaderEpochFileCache
        self._epoch_file = internals.checkpoint.LeaderEpochCheckpointFile
        self._topic_partition = kafka.common.TopicPartition("test", 0)
        self._failures = log.LogDirFailureChannel(1)
        expiry_ms, verification = 24 * 60 * 60 * 1000, False
        self._producer_config = log.ProducerStateManagerConfig(expiry_ms, verification)
        self._in_scala = self.release < _LOG_IN_JAVA
        self._unified_log = self.gateway.jvm.kafka.log.UnifiedLog if self._in_scala else log.UnifiedLog
        self._none = self.gateway.jvm.java.util.Optional.empty()
        if self.release < _STATS_IN_STORAGE:
            self._topic_stats = self.gateway.jvm.kafka.server.BrokerTopicStats(False)
        else:
            self._topic_stats = kafka.storage.log.metrics.BrokerTopicStats()
        self._internals = log
        self._scheduler = kafka.server.util.KafkaScheduler(1)
        self._scheduler.startup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the JVM: py4j's own end leaves it, with its memory, until this process ends and its input is closed."""
        self.gateway.shutdown()
        process = self.gateway.java_process
        process.stdin.close()
        process.wait()

    @property
    def versions(self) -> dict[str, str]:
        return {
            "kafka": self.find("org.apache.kafka.common.utils.internals.AppInfoParser").getVersion(),
            "java": self.gateway.jvm.System.getProperty("java.version"),
        }

    @cached_property
    def records(self) -> KafkaRecords:
        return KafkaRecords(self)

    def find(self, name: str) -> Any:
        """One of Kafka's classes by the name that it has in the promised Kafka."""
        found = getattr(self.gateway.jvm, class_name(name, self.release))
        return not_there(found) if isinstance(found, JavaPackage) else found

    def array(self, kind: Any, *elements: Any) -> Any:
        """Java's array of a class."""
        array = self.gateway.new_array(kind, len(elements))
        for number, element in enumerate(elements):
            array[number] = element
        return array

    def leader_epochs(self, directory: Path) -> Any:
        """Kafka's `LeaderEpochFileCache` over the file in a directory, which may be missing."""
        file = self._file(str(directory.resolve()), checkpoint_files.LEADER_EPOCH_CHECKPOINT)
        return self._epoch_cache(self._topic_partition, self._epoch_file(file, self._failures), self._scheduler)

    def recover(
        self,
        directory: Path,
        interval_bytes: int = INTERVAL_BYTES_DEFAULT,
        max_index_bytes: int = MAX_INDEX_BYTES_DEFAULT,
    ) -> KafkaPartition:
        """Recover each segment of a partition's directory, as after a crash that left only the logs.

        Segments are recovered in offset order, with one producer state and one leader epoch cache for all. After one
        that fails or is truncated, the next one follows. Kafka's files stay in `directory`, and its logs are truncated.
        """
        for path in list(directory.iterdir()):
            if path.name.endswith(_DERIVED_SUFFIXES) or path.name == checkpoint_files.LEADER_EPOCH_CHECKPOINT:
                path.unlink()
        java_directory = self._file(str(directory.resolve()))
        config = self._config(
            {"index.interval.bytes": str(interval_bytes), "segment.index.bytes": str(max_index_bytes)}
        )
        transaction_timeout_ms = 15 * 60 * 1000
        producers = self._producer_states(
            self._topic_partition, java_directory, transaction_timeout_ms, self._producer_config, self._clock
        )
        epochs = self.leader_epochs(directory)
        segments = []
        for name in sorted(path.name for path in directory.iterdir() if path.name.endswith(segment_files.LOG_SUFFIX)):
            base_offset = segment_files.parse_segment_log(name)
            assert base_offset is not None, name
            producers.updateMapEndOffset(base_offset)
            producers.takeSnapshot()
            segments.append(self._recover_segment(directory, java_directory, base_offset, config, producers, epochs))

        end_snapshot = directory / _END_SNAPSHOT
        self._producer_states.writeSnapshot(self._file(str(end_snapshot.resolve())), producers.activeProducers(), False)
        checkpoint = directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT
        return KafkaPartition(
            segments=tuple(segments),
            snapshot=end_snapshot.read_bytes(),
            map_end_offset=producers.mapEndOffset(),
            leader_epoch_checkpoint=checkpoint.read_text() if checkpoint.exists() else None,
        )

    @contextlib.contextmanager
    def opened_segment(
        self, directory: Path, base_offset: int, settings: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """Kafka's `LogSegment` over the files in a directory, which closing it may change, with a topic's settings."""
        config = self._config(settings or {})
        java_directory = self._file(str(directory.resolve()))
        segment = self._segment.open(java_directory, base_offset, config, self._clock, True, 0, False, "")
        try:
            yield segment
        finally:
            if self._leaves_preparing:
                segment.onBecomeInactiveSegment()
            segment.close()

    def find_offset_by_timestamp(self, segment: Any, timestamp: int, start_offset: int) -> Any:
        """`LogSegment.findOffsetByTimestamp`."""
        return segment.findOffsetByTimestamp(timestamp, start_offset, *self._record_bytes_max)

    @cached_property
    def _record_bytes_max(self) -> tuple[int, ...]:
        return self.functions.record_bytes_max(f"{LOG_PACKAGE}.LogSegment", "findOffsetByTimestamp", 2)

    @cached_property
    def _leaves_preparing(self) -> bool:
        """Whether a log, or a segment, is to be prepared before it is closed (KAFKA-20979)."""
        return self.functions.parameters(str(self._unified_log._fqn), "prepareActiveSegmentForClose") is not None

    @contextlib.contextmanager
    def opened_log(
        self,
        directory: Path,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean_shutdown: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[Any]:
        """Kafka's `UnifiedLog` over a partition's directory, with the offsets of checkpoint files and a topic's
        settings; it may change the files there.
        """
        transaction_timeout_ms, expiry_check_ms = 15 * 60 * 1000, 10 * 60 * 1000
        arguments = (
            self._file(str(directory.resolve())),
            self._config(settings or {}),
            log_start_offset,
            recovery_point,
            self._scheduler,
            self._topic_stats,
            self._clock,
            transaction_timeout_ms,
            self._producer_config,
            expiry_check_ms,
            self._internals.LogDirFailureChannel(1),  # a channel with a failure fails each log of that log dir
            clean_shutdown,
        )
        if self._in_scala:
            log = self._unified_log.apply(*arguments, *self._in_scala_further())
        else:
            log = self._unified_log.create(*arguments, self._none)
        try:
            yield log
        finally:
            if self._leaves_preparing:
                log.prepareActiveSegmentForClose()
            log.close()

    def start_log_manager(self, log_dir: Path) -> tuple[bool, bool]:
        """Let Kafka's `LogManager` load a log dir, as when a broker starts; it may change the files there. Return
        whether it throws, which ends a broker, and whether it has marked the log dir as failed: a broker takes such a
        log dir out of use.
        """
        failures = self._internals.LogDirFailureChannel(1)
        directory = str(log_dir.resolve())
        manager = self._log_manager([log_dir], failures)
        jvm = self.gateway.jvm
        try:
            if self.release < _MANAGER_IN_JAVA:
                no_topics, no_strays = jvm.scala.collection.mutable.HashMap(), getattr(manager, "startup$default$2")()
            else:
                no_topics, no_strays = self._hash_map(), self._never
            manager.loadLogs(self._config({}), no_topics, no_strays)
            ended = False
        except Py4JJavaError:
            ended = True
        offline = failures.hasOfflineLogDir(directory)
        with contextlib.suppress(Py4JJavaError):
            manager.shutdown(-1)
        return ended, offline

    @cached_property
    def _never(self) -> Any:
        """A `Function` that answers False of each log."""
        boolean, any_object = self.gateway.jvm.java.lang.Boolean.TYPE, self.functions.find("java.lang.Object")
        return self.functions.function(self.functions.static("java.util.Objects", "isNull", boolean, any_object))

    def epoch_of_clean_stop(self, log_dirs: Sequence[Path]) -> int | None:
        """The epoch that a starting broker takes from the markers in its log dirs and tells the controller."""
        manager = self._log_manager(log_dirs, self._internals.LogDirFailureChannel(len(log_dirs)))
        try:
            epoch = manager.readBrokerEpochFromCleanShutdownFiles()
            return int(epoch.getAsLong()) if epoch.isPresent() else None
        finally:
            with contextlib.suppress(Py4JJavaError):
                manager.shutdown(-1)

    def _log_manager(self, log_dirs: Sequence[Path], failures: Any) -> Any:
        jvm = self.gateway.jvm
        directories = jvm.java.util.ArrayList()
        for log_dir in log_dirs:
            directories.add(self._file(str(log_dir.resolve())))
        builder = jvm.kafka.server.builders.LogManagerBuilder()
        builder.setLogDirs(directories).setInitialDefaultConfig(self._config({}))
        nobody_asks_it = self.find("org.apache.kafka.metadata.KRaftMetadataCache")(1, None)
        builder.setConfigRepository(nobody_asks_it)
        builder.setCleanerConfig(self._internals.CleanerConfig(False)).setScheduler(self._scheduler)
        builder.setBrokerTopicStats(self._topic_stats).setLogDirFailureChannel(failures).setTime(self._clock)
        return builder.build()

    def segments_of(self, log: Any) -> list[Any]:
        """The segments of an opened log, also of Scala's, which has no list of them."""
        return list(self.gateway.jvm.java.util.ArrayList(log.logSegments()))

    def _in_scala_further(self) -> tuple[Any, ...]:
        """The arguments that `UnifiedLog.create` of 4.1 does not need: no topic id, `partition.metadata` is kept,
        nobody counts segments, nothing is tiered, nobody listens.
        """
        jvm = self.gateway.jvm
        counts = jvm.java.util.concurrent.ConcurrentHashMap()
        listener = self._internals.LogOffsetsListener.NO_OP_OFFSETS_LISTENER
        return jvm.scala.Option.empty(), True, counts, False, listener

    def _recover_segment(
        self, directory: Path, java_directory: Any, base_offset: int, config: Any, producers: Any, epochs: Any
    ) -> KafkaSegment:
        truncated_bytes: int | None = None
        error: KafkaError | None = None
        start = time.perf_counter()
        segment = self._segment.open(java_directory, base_offset, config, self._clock, True, 0, False, "")
        try:
            truncated_bytes = segment.recover(producers, epochs)
        except Py4JJavaError as thrown:
            error = error_of(thrown)
        seconds = time.perf_counter() - start
        segment.close()

        def left(suffix: str) -> bytes | None:
            path = directory / segment_files.segment_file(base_offset, suffix)
            return path.read_bytes() if path.exists() else None

        snapshot = left(segment_files.SNAPSHOT_SUFFIX)
        return KafkaSegment(
            base_offset=base_offset,
            truncated_bytes=truncated_bytes,
            error=error,
            offset_index=left(segment_files.OFFSET_INDEX_SUFFIX),
            time_index=left(segment_files.TIME_INDEX_SUFFIX),
            transaction_index=left(segment_files.TRANSACTION_INDEX_SUFFIX),
            producers=producers_in(snapshot) if snapshot else frozenset(),  # Kafka takes no snapshot at offset 0
            seconds=seconds,
        )

    def _config(self, settings: Mapping[str, str]) -> Any:
        java_settings = self._hash_map()
        for name, value in settings.items():
            java_settings.put(name, value)
        return self._log_config(java_settings)
