"""Kafka's own retention: `UnifiedLog.deleteOldSegments` over a partition's files, at a time that the test chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kidxlib.format.segment_files import parse_segment_log
from tests.support.kafka.classes import Kafka

_PRODUCER_EXPIRY_MS: Final = 2**31 - 1
_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Retained:
    """The segments before and after the deletion.

    Attributes:
        before: base offsets of the loaded segments.
        after: base offsets of the segments that stay, or of the empty one that replaces them if all go.
    """

    before: list[int]
    after: list[int]
    log_start_offset: int
    log_end_offset: int

    @property
    def deleted(self) -> list[int]:
        return [base_offset for base_offset in self.before if base_offset not in self.after]


class KafkaRetention:
    """Logs with a clock that stands still."""

    def __init__(self, kafka: Kafka) -> None:
        jvm = kafka.gateway.jvm
        log = jvm.org.apache.kafka.storage.internals.log
        self._unified_log, self._log_config, self._hash_map = log.UnifiedLog, log.LogConfig, jvm.java.util.HashMap
        self._file, self._empty = jvm.java.io.File, jvm.java.util.Optional.empty()
        self._failures = log.LogDirFailureChannel(1)
        self._producer_config = log.ProducerStateManagerConfig(_PRODUCER_EXPIRY_MS, False)
        self._stats = jvm.org.apache.kafka.storage.log.metrics.BrokerTopicStats()
        self._scheduler = jvm.org.apache.kafka.server.util.KafkaScheduler
        self._now = jvm.java.util.concurrent.atomic.AtomicLongArray(1)  # an AtomicLong would come back as a number
        self._clock = self._frozen_clock(kafka)

    def _frozen_clock(self, kafka: Kafka) -> Any:
        """Kafka's `Time`, each of whose methods returns the same number, or nothing."""
        lang = kafka.gateway.jvm.java.lang
        find = lang.Class.forName
        handles, method_type = lang.invoke.MethodHandles, lang.invoke.MethodType.methodType
        the_object = find("java.lang.Object")
        get = method_type(lang.Long.TYPE, lang.Integer.TYPE)
        number = handles.lookup().findVirtual(self._now.getClass(), "get", get).bindTo(self._now)
        answer = handles.insertArguments(number, 0, kafka.array(lang.Object, 0)).asType(method_type(the_object))
        method, objects = find("java.lang.reflect.Method"), find("[Ljava.lang.Object;")
        ignored = kafka.array(lang.Class, the_object, method, objects)
        handler = lang.invoke.MethodHandleProxies.asInterfaceInstance(
            find("java.lang.reflect.InvocationHandler"), handles.dropArguments(answer, 0, ignored)
        )
        time = find("org.apache.kafka.common.utils.Time")
        return lang.reflect.Proxy.newProxyInstance(time.getClassLoader(), kafka.array(lang.Class, time), handler)

    def retain(
        self,
        directory: Path,
        settings: Mapping[str, object],
        now_ms: int,
        *,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
        clean: bool = False,
    ) -> Retained:
        """Load a partition's directory, and delete by its topic's settings. Without `high_watermark` that is the log
        end offset. `clean` stands for a clean stop, after which index files are used as they are; else all is
        recovered.
        """
        self._now.set(0, now_ms)
        scheduler = self._scheduler(1)
        scheduler.startup()
        config = self._hash_map()
        for name, value in settings.items():
            config.put(name, str(value))
        log = self._unified_log.create(
            self._file(str(directory.resolve())),
            self._log_config(config),
            log_start_offset,
            0,  # the recovery point
            scheduler,
            self._stats,
            self._clock,
            _TRANSACTION_TIMEOUT_MS,
            self._producer_config,
            _TRANSACTION_TIMEOUT_MS,
            self._failures,
            clean,
            self._empty,
        )
        try:
            before = _base_offsets(directory)
            log.updateHighWatermark(log.logEndOffset() if high_watermark is None else high_watermark)
            log.deleteOldSegments()
            return Retained(before, _base_offsets(directory), log.logStartOffset(), log.logEndOffset())
        finally:
            log.close()
            scheduler.shutdown()  # waits for present writes; files to be deleted later stay


def _base_offsets(directory: Path) -> list[int]:
    base_offsets = (parse_segment_log(path.name) for path in directory.iterdir())
    return sorted(base_offset for base_offset in base_offsets if base_offset is not None)
