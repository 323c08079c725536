"""A partition as Kafka's own `LogLoader` makes it of a directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError

from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from tests.kafka.crashed import INDEX_SUFFIXES
from tests.support.kafka.classes import Kafka
from tests.support.logs.snapshots import Producer, producers_in


@dataclass(frozen=True, slots=True)
class Loaded:
    """A partition as Kafka has loaded it.

    Attributes:
        segments: bytes of logs by base offset.
        ends: log start offset and log end offset.
        logs: files of logs, by name.
        indexes: other files of segments, by name.
        producers: at the end of the log, as Kafka notes them when it closes it.
    """

    segments: Mapping[int, int]
    ends: tuple[int, int]
    logs: Mapping[str, bytes]
    indexes: Mapping[str, bytes]
    producers: frozenset[Producer]


def load(kafka: Kafka, directory: Path, start: int, point: int, *, clean: bool) -> Loaded | None:
    """Let Kafka load a partition; None where it fails.

    Args:
        start, point: log start offset and recovery point, as the log dir's checkpoints say.
        clean: after a clean shutdown.
    """
    try:
        with kafka.opened_log(directory, log_start_offset=start, recovery_point=point, clean_shutdown=clean) as log:
            segments = {segment.baseOffset(): segment.size() for segment in kafka.segments_of(log)}
            ends = log.logStartOffset(), log.logEndOffset()
    except Py4JJavaError:
        return None
    snapshot = directory / segment_file(ends[1], SNAPSHOT_SUFFIX)
    producers = producers_in(snapshot.read_bytes()) if snapshot.exists() else frozenset[Producer]()
    return Loaded(segments, ends, files_of(directory, (LOG_SUFFIX,)), files_of(directory, INDEX_SUFFIXES), producers)


def files_of(directory: Path, suffixes: tuple[str, ...] = ("",)) -> dict[str, bytes]:
    """The files of some kinds, or all of them, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith(suffixes)}
