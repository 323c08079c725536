"""Every error that a caller may see, in one tree.

A damaged segment is not an error: why a scan ended is a value (`kidxlib.recovery.outcome.ScanEnd`), which the
catalog records.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing takes longer to import than all that ./spark-submit.sh does before it starts a job
if TYPE_CHECKING:
    from typing import Final


class KidxError(Exception):
    """Base of all errors; the message is one line that says what was found, what was expected and what to do."""


# ---- What was asked for ----


class UsageError(KidxError):
    """Options, settings or inputs are wrong; nothing was done. Commands exit with 2."""


class NotReadHereError(UsageError):
    """This process cannot read a file or table of questions; Spark perhaps can."""


class LockHeldError(UsageError):
    """Another process holds the lock of a log dir, as a broker that runs does."""


class StoreBusyError(KidxError):
    """An object store has answered hardly any request for minutes. It is no `OSError`, which would be taken for the
    state of one object.
    """


class NoSegmentsError(KidxError):
    """A log is opened that has no segments."""


class OffsetOutOfRangeError(KidxError):
    """An offset is asked for that the log does not have any more, or not yet (`OffsetOutOfRangeException`)."""


class BrokenSegmentError(KidxError):
    """A segment is asked whose log is known to be damaged."""


class WorkersDiedError(KidxError):
    """Worker processes have died again and again: they were killed, or have crashed."""


# ---- Logs ----


class LogChangedError(KidxError):
    """Another process changed a log while it was read; the segment's row says `changed`."""


class MalformedError(KidxError):
    """Bytes are malformed, at a place that the raiser does not know; a caller who does raises `MalformedRecordsError`.

    Attributes:
        found: what is there.
        expected: what would have been right.
    """

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"found {self.found}, expected {self.expected}"


class MalformedRecordsError(KidxError):
    """A batch, or a record in it, is not what Kafka writes; Kafka throws there, too.

    Attributes:
        position: file position of the batch, in bytes.
        found: what is there.
        expected: what would have been right.
    """

    def __init__(self, position: int, found: str, expected: str) -> None:
        super().__init__(position, found, expected)
        self.position = position
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"batch at byte {self.position}: found {self.found}, expected {self.expected}"


class UnreadableMessageError(KidxError):
    """Bytes are not the message of Kafka's that they should be; a caller who knows the place raises its own error.

    Attributes:
        expected: what would have been right.
        message: what Kafka's exception says; None where it says nothing.
    """

    def __init__(self, expected: str, message: str | None) -> None:
        super().__init__(expected, message)
        self.expected = expected
        self.message = message

    def __str__(self) -> str:
        return f"expected {self.expected}" if self.message is None else f"expected {self.expected}: {self.message}"


class UnknownRecordTypeError(KidxError):
    """The key of a record in one of Kafka's own topics gives a type that this Kafka has no message for.

    Attributes:
        record_type: a newer Kafka may have it.
    """

    def __init__(self, record_type: int) -> None:
        super().__init__(record_type)
        self.record_type = record_type


class DamagedLogError(KidxError):
    """A stretch of a log cannot be read: a consumer would fail there, or what is there was never a broker's."""


class LostRecordsError(KidxError):
    """Records that a stream has planned to read, or has read, have gone: deleted, truncated, compacted."""


class DumpError(KidxError):
    """A file is malformed at a place, and nothing after it was looked at; Kafka throws there, too."""


# ---- Index files ----


class CorruptIndexError(KidxError):
    """An index cannot be right (`CorruptIndexException`); a broker that finds it rebuilds the segment's indexes."""


class NoSuchEntryError(KidxError):
    """An entry is asked for that an index does not have (`IllegalArgumentException` of `OffsetIndex.entry`)."""


class IndexSizeError(KidxError):
    """An index is given a size in bytes that no index can have."""


class IndexFullError(KidxError):
    """An entry is appended to an index that has no room for another one."""


class InvalidOffsetError(KidxError):
    """An entry is appended whose offset is not above those before it (`InvalidOffsetException`)."""


class OffsetOverflowError(KidxError):
    """An offset is too far from the base offset to be stored (`IndexOffsetOverflowException`)."""


class InvalidTimestampError(KidxError):
    """An entry is appended whose timestamp is below that of the one before it (`IllegalStateException`)."""


class UnknownVersionError(KidxError):
    """An entry of a transaction index was written by a newer Kafka, or by none; a broker fails on it.

    Attributes:
        is_taken_by_older: Kafka up to 4.3 takes the entry.
    """

    def __init__(self, message: str, *, is_taken_by_older: bool = False) -> None:
        super().__init__(message)
        self.is_taken_by_older = is_taken_by_older


# ---- Other files of a broker ----


class CheckpointError(KidxError):
    """A checkpoint or metadata file of a broker cannot be parsed."""


class SnapshotError(KidxError):
    """The bytes of a `.snapshot` are not what Kafka writes; a broker deletes such a file and takes the one before."""


class ClusterMetadataError(KidxError):
    """The cluster's metadata in a log dir cannot be parsed."""


class RemoteLogMetadataError(KidxError):
    """The metadata of remote segments in a log dir cannot be parsed."""


# ---- What a run needs ----


class CatalogError(KidxError):
    """The catalog cannot be read or written by this version of the code."""


class NoDeltaTableError(CatalogError):
    """There is no Delta table where one is expected."""


class PublishError(KidxError):
    """An index file could not be put in place; whatever stood under its final name is still there, whole."""


class LogNotCutError(KidxError):
    """The end of a log could not be cut off; it is as it was, or has been cut and may not be durable yet."""


class UntrustedError(KidxError):
    """Whether the kernel still has all that a broker has written is not certain."""


class NoAnswerError(KidxError):
    """An object store stops answering amid a run: it is asked for too much, fails, or is not reached."""


class StorageError(KidxError):
    """A disk did not let Spark read or write a file: it is full, may not be written, or fails."""


class SparkEndedError(KidxError):
    """Spark's JVM ended amid a job, or a Python worker at each attempt at a task; finished work stays done."""


class MissingLibraryError(KidxError):
    """A compiled library that the scan calls (CRC-32C) was not found in its wheel."""


#: Errors whose message is made of parts, as a position and what was found.
MADE_OF_PARTS: Final = (MalformedError, MalformedRecordsError, UnreadableMessageError, UnknownRecordTypeError)


def raised_elsewhere(name: str, message: str) -> KidxError | None:
    """The error of another process, from its class's name and its message; None if no class here has that name. A
    message that is made of parts comes in a plain `KidxError`.
    """
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, KidxError)):
        return None
    return KidxError(message) if kind in MADE_OF_PARTS else kind(message)


def describe_error(error: Exception) -> str:
    """The error in one line; for the operating system's the words and the file, without the number."""
    if not isinstance(error, OSError):
        return str(error)
    message = error.strerror or str(error) or type(error).__name__
    return message if error.filename is None else f"{os.fsdecode(error.filename)}: {message}"
