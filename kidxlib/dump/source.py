"""The file to dump, the log that an index is compared with, and the options."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.dump.decoders import Decoder
from kidxlib.errors import UsageError
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import parse_partition_directory

MAX_MESSAGE_SIZE_DEFAULT: Final = 5 * 1024 * 1024


class FileKind(enum.Enum):
    LOG = segment_files.LOG_SUFFIX
    OFFSET_INDEX = segment_files.OFFSET_INDEX_SUFFIX
    TIME_INDEX = segment_files.TIME_INDEX_SUFFIX
    TRANSACTION_INDEX = segment_files.TRANSACTION_INDEX_SUFFIX
    SNAPSHOT = segment_files.SNAPSHOT_SUFFIX
    LEADER_EPOCHS = LEADER_EPOCH_CHECKPOINT
    KRAFT_SNAPSHOT = segment_files.KRAFT_SNAPSHOT_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """
    Attributes:
        deep: read the records in the batches, not only the batches.
        contents: read keys and values, too; `deep` must be set.
        decode: decodes keys and values; None to show them undecoded. `contents` must be set.
        metadata: read the other fields of records besides key and value; control records have no others.
        max_bytes: only the batches of a log that lie in so many bytes; None for all.
        verify_only: give only the findings of an index.
        sanity_only: check an index only as a broker did before it used one (`sanityCheck`).
        max_message_size: the largest batch that an offset index may name, in bytes.
        release: whose `kafka-dump-log` to follow; None for that of the node, if it is known, else the newest.
    """

    deep: bool = False
    contents: bool = False
    decode: Decoder | None = None
    metadata: bool = True
    max_bytes: int | None = None
    verify_only: bool = False
    sanity_only: bool = False
    max_message_size: int = MAX_MESSAGE_SIZE_DEFAULT
    release: KafkaRelease | None = None


@dataclass(frozen=True, slots=True)
class DumpSource:
    """A file to dump.

    Attributes:
        log: the log that the entries of an index are compared with; None for other files, or if a file for the
            comparison is missing.
        missing: the missing file, without which an index is shown as it stands; None if none is missing.
    """

    path: Path
    kind: FileKind
    log: Path | None = None
    missing: Path | None = None


_KINDS: Final = {kind.value: kind for kind in FileKind if kind is not FileKind.LEADER_EPOCHS}


def dump_source(path: Path, options: DumpOptions, log_dir: Path | None) -> DumpSource:
    """The source of a dump, by the file's name. `log_dir` has the log of an index: a log dir, or the partition's
    directory; None if the log is beside the index.
    """
    kind = FileKind.LEADER_EPOCHS if path.name == LEADER_EPOCH_CHECKPOINT else _KINDS.get(path.suffix)
    is_file = _is_file(path)  # first: a missing file is an error whatever its name is
    if kind is None:
        raise UsageError(
            f"{path}: not a file that can be dumped, expected {', '.join(_KINDS)} or {LEADER_EPOCH_CHECKPOINT}"
        )
    if kind is FileKind.KRAFT_SNAPSHOT:
        snapshot_id(path)
    elif kind not in (FileKind.SNAPSHOT, FileKind.LEADER_EPOCHS):
        base_offset_in_name(path)
    if not is_file:
        raise UsageError(f"{path}: not a regular file, expected one that Kafka has written")
    if kind not in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX) or options.sanity_only:
        return DumpSource(path, kind)
    log = beside_source(path, FileKind.LOG) if log_dir is None else _log_in(log_dir, path)
    needed = (log,) if kind is FileKind.OFFSET_INDEX else (log, beside_source(path, FileKind.OFFSET_INDEX))
    missing = next((file for file in needed if not _is_there(file)), None)
    if missing is None:
        return DumpSource(path, kind, log)
    if log_dir is not None and missing == log:
        raise UsageError(
            f"--log-dir {log_dir}: no {missing} there, which {path} would be compared with; name the directory that "
            "has it"
        )
    if options.verify_only:
        raise UsageError(
            f"{path}: its entries are compared with {missing.name}, which is not there; name another place for "
            "logs with --log-dir DIR"
        )
    return DumpSource(path, kind, missing=missing)


def _log_in(log_dir: Path, index: Path) -> Path:
    """The log of an index, in the directory with the same name as the index's."""
    directory = index.absolute().parent.name
    name = beside_source(index, FileKind.LOG).name
    if parse_partition_directory(directory) is None:  # the partition is not known
        return log_dir / name
    return (log_dir if log_dir.absolute().name == directory else log_dir / directory) / name


def _is_file(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; expected one that Kafka has written") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise UsageError(f"{path}: {error}") from error
    return path.is_file()


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def base_offset_in_name(path: Path) -> int:
    """The offset in the name of a file to dump, as Kafka reads it; a name without one is a `UsageError`."""
    if (offset := segment_files.offset_in_name(path.name)) is None:
        example = segment_files.segment_file(0, path.suffix)
        raise UsageError(f"{path}: its name has to begin with an offset, as {example}")
    return offset


def snapshot_id(path: Path) -> segment_files.SnapshotId | None:
    """The snapshot of KRaft's log that a file to dump is, by its name; None for that of a controller's first start."""
    if path.name == segment_files.BOOTSTRAP_SNAPSHOT:
        return None
    if (snapshot := segment_files.parse_kraft_snapshot(path.name)) is None:
        example = segment_files.kraft_snapshot_file(segment_files.SnapshotId(0, 0))
        raise UsageError(f"{path}: its name has to be as {example}, or {segment_files.BOOTSTRAP_SNAPSHOT}")
    return snapshot


def beside_source(path: Path, kind: FileKind) -> Path:
    """The file of another kind beside a file to dump, of the same segment."""
    return path.with_name(path.name.partition(".")[0] + kind.value)
