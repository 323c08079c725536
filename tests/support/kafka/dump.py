"""Kafka's `DumpLogSegments` (`kafka-dump-log`), in a JVM that stays up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from kidxlib.format.kafka_release import KAFKA_4_3
from tests.support.kafka.classes import Kafka, KafkaError, error_of


@dataclass(frozen=True, slots=True)
class Dumped:
    """The tool's output, and its exception, if there was one."""

    lines: list[bytes]
    error_lines: list[bytes]
    thrown: KafkaError | None


class KafkaDump:
    """The tool. It may change and make files, so it is for copies. Its output goes to files in `scratch`."""

    def __init__(self, kafka: Kafka, scratch: Path) -> None:
        self.kafka = kafka
        self._java = kafka.gateway.jvm.java
        self._main = kafka.find("org.apache.kafka.tools.DumpLogSegments").main
        # Until 4.2 the tool is Scala's, which prints to the streams that it has found first.
        scala = kafka.gateway.jvm.scala
        self._console = getattr(getattr(scala, "Console$"), "MODULE$") if kafka.release < KAFKA_4_3 else None
        self.scratch = scratch
        self._printed = [scratch / "printed", scratch / "printed-as-error"]

    def __call__(self, *arguments: str) -> Dumped:
        system, thrown = self._java.lang.System, None
        before = system.out, system.err
        streams = [self._stream(path) for path in self._printed]
        self._print_to(*streams)
        try:
            self._main(self.kafka.array(self._java.lang.String, *arguments))
        except Py4JJavaError as error:
            thrown = error_of(error)
        finally:
            self._print_to(*before)
            for stream in streams:
                stream.close()
        lines, error_lines = (path.read_bytes().split(b"\n") for path in self._printed)
        return Dumped(_without_empty_end(lines), _without_empty_end(error_lines), thrown)

    def _print_to(self, out: Any, err: Any) -> None:
        self._java.lang.System.setOut(out)
        self._java.lang.System.setErr(err)
        if self._console is not None:
            self._console.setOutDirect(out)
            self._console.setErrDirect(err)

    def _stream(self, path: Path) -> Any:
        io = self._java.io
        return io.PrintStream(io.BufferedOutputStream(io.FileOutputStream(str(path))), False, "UTF-8")


def _without_empty_end(lines: Sequence[bytes]) -> list[bytes]:
    return list(lines[:-1] if lines[-1] == b"" else lines)
