"""Every error that a caller may see, in one tree.

A damaged segment is not an error: why a scan ended is a value (`kidxlib.recover.ScanEnd`), which the catalog records.
"""

from __future__ import annotations

import os


class KidxError(Exception):
    """Base of all errors; the message is one line that says what was found, what was expected and what to do."""


class UsageError(KidxError):
    """Options, settings or inputs are wrong; nothing was done. Commands exit with 2."""


class CatalogError(KidxError):
    """The catalog cannot be read or written by this version of the code."""


class PublishError(KidxError):
    """An index file could not be put in place; whatever stood under its final name is still there, whole."""


class StorageError(KidxError):
    """A disk did not let Spark read or write a file: it is full, may not be written, or fails."""


class SparkEndedError(KidxError):
    """Spark's JVM ended amid a job, or a Python worker at each attempt at a task; what was done is done."""


class MissingLibraryError(KidxError):
    """A compiled library that the scan calls (CRC-32C) was not found in its wheel."""


def why(error: Exception) -> str:
    """What is wrong, in one line: of what the operating system says its words and the file, without its number."""
    if not isinstance(error, OSError):
        return str(error)
    said = error.strerror or str(error) or type(error).__name__
    return said if error.filename is None else f"{os.fsdecode(error.filename)}: {said}"
