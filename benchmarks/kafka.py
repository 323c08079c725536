"""Kafka's own recovery of a segment, in a JVM that stays up for many passes.

Driven through py4j, which needs no Java compiler; a call takes a quarter of a millisecond.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from py4j.java_gateway import JavaGateway

from kidxlib import names
from kidxlib.errors import KidxError

PROJECT: Final = Path(__file__).resolve().parents[1]
JARS: Final = PROJECT / ".jars" / "kafka"
#: What Kafka's start script gives a broker.
JVM_OPTIONS: Final = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class Kafka:
    """A JVM with Kafka's classes. Leaving it as a context ends it."""

    def __init__(self) -> None:
        if not JARS.is_dir() and subprocess.run([PROJECT / "setup.sh", "kafka"], check=False).returncode != 0:
            raise KidxError(f"no Kafka to compare with: `./setup.sh kafka` could not put its jars into {JARS}")
        self._gateway = JavaGateway.launch_gateway(
            classpath=f"{JARS}/*",
            javaopts=list(JVM_OPTIONS),
            java_path=None,  # $JAVA_HOME's, else PATH's
            redirect_stderr=sys.stderr,
            die_on_exit=True,
            enable_auth=True,
        )
        self._scheduler = self._kafka.server.util.KafkaScheduler(1)
        self._scheduler.startup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateway.shutdown()

    @property
    def _kafka(self) -> Any:
        return self._gateway.jvm.org.apache.kafka

    @property
    def versions(self) -> dict[str, str]:
        """Of Kafka and of Java."""
        return {
            "kafka": self._kafka.common.utils.AppInfoParser.getVersion(),
            "java": self._gateway.jvm.System.getProperty("java.version"),
        }

    def recover(self, folder: Path) -> float:
        """Recover a partition's segment 0 as after a crash that left no indexes; the seconds that opening it and
        `LogSegment.recover` took. Closing it, which flushes it to disk, is not counted.

        The indexes stand in `folder` afterwards. Kafka cuts a log that is not valid to its end.
        """
        for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
            (folder / names.segment_file(0, suffix)).unlink(missing_ok=True)
        log, clock = self._kafka.storage.internals.log, self._kafka.common.utils.Time.SYSTEM
        java_folder = self._gateway.jvm.java.io.File(str(folder.resolve()))
        config = log.LogConfig(self._gateway.jvm.java.util.HashMap())
        producers, epochs = self._producer_states(java_folder), self._leader_epochs(java_folder)

        start = time.perf_counter()
        segment = log.LogSegment.open(java_folder, 0, config, clock, True, 0, False, "")
        segment.recover(producers, epochs)
        seconds = time.perf_counter() - start
        segment.close()
        return seconds

    def _producer_states(self, folder: Any) -> Any:
        log = self._kafka.storage.internals.log
        expiry_ms, verification = 24 * 60 * 60 * 1000, False
        config = log.ProducerStateManagerConfig(expiry_ms, verification)
        transaction_timeout_ms = 15 * 60 * 1000
        clock = self._kafka.common.utils.Time.SYSTEM
        return log.ProducerStateManager(self._partition(), folder, transaction_timeout_ms, config, clock)

    def _leader_epochs(self, folder: Any) -> Any:
        internals = self._kafka.storage.internals
        checkpoint = internals.checkpoint.LeaderEpochCheckpointFile
        file = checkpoint(checkpoint.newFile(folder), internals.log.LogDirFailureChannel(1))
        return internals.epoch.LeaderEpochFileCache(self._partition(), file, self._scheduler)

    def _partition(self) -> Any:
        return self._kafka.common.TopicPartition("bench", 0)
