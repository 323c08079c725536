"""Turns errors of Spark that a user can mend into one line, in place of a stack trace."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kidxlib import errors
from kidxlib.errors import KidxError, SparkEndedError, StorageError

#: An error of kidx in the traceback that Spark brings back from an executor. The error's cause is above that line.
_OURS: Final = re.compile(r"^kidxlib\.errors\.(\w+): (.+)$", re.MULTILINE)

#: The operating system's words for a file that it does not let Spark read or write.
_REFUSED: Final = "|".join(
    re.escape(os.strerror(number))
    for number in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.EMFILE,
        errno.ENFILE,
    )
)
#: Java gives no reason for a directory that cannot be made.
_OF_STORAGE: Final = re.compile(rf"(?:{_REFUSED})\W*$|^Mkdirs failed to create |^\[DELTA_CANNOT_CREATE_LOG_PATH\] ")
#: The package of Java's connections to Python workers.
_TALKS_TO_WORKERS: Final = "org.apache.spark.api.python."
#: What such a connection is read by: Java's own readers, and Spark's as a worker that has just begun proves who it is
#: (`SocketAuthHelper`).
_READERS: Final = ("java.", "org.apache.spark.security.")
_NO_CLASS: Final = ("ClassNotFoundException", "NoClassDefFoundError")
_PLACE: Final = re.compile(r"(?:[a-z0-9]+:)?/\S*[^\s.,;:)]")


def as_ours(error: PySparkException | Py4JJavaError) -> KidxError | None:
    """The error of kidx that a task raised, a `StorageError`, or a `SparkEndedError` if a worker has ended; None for
    any other error.
    """
    if raised := _OURS.findall(str(error)):
        return errors.raised_elsewhere(*raised[-1])
    if not isinstance(error, Py4JJavaError):
        return None
    messages = list(_messages(error.java_exception))
    if _was_cut_off(error.java_exception) or any(
        text.startswith("Python worker exited unexpectedly") for text in messages
    ):
        return SparkEndedError(
            "a Python worker has ended at each attempt at a task: it crashed, or was killed, as happens where memory "
            "runs out (see dmesg); fewer workers at once (-- --master 'local[1,4]') need less memory; run the same "
            "command again to go on"
        )
    if not _OF_STORAGE.search(messages[-1]):
        return None
    place = ""
    if not _PLACE.search(messages[-1]):
        places = (match[0] for text in messages if (match := _PLACE.search(text)))
        place = next(places, "a file of the catalog, or of Spark's own below spark.local.dir") + ": "
    return StorageError(
        f"{place}{messages[-1]}; mend that and run the same command again; it goes on from what is done"
    )


def reason(error: PySparkException | Py4JJavaError) -> str:
    """Spark's message in one line; for an exception of Java, the message of the innermost cause."""
    if isinstance(error, Py4JJavaError):
        return list(_messages(error.java_exception))[-1]
    return str(error).strip().splitlines()[0]


def _was_cut_off(thrown: JavaObject) -> bool:
    """Whether the innermost cause was thrown in a connection to a Python worker: the worker ended without a message.
    The readers and writers of that connection are below in the same trace, so the first frame that is none of
    `_READERS` counts.
    """
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    if thrown.getClass().getSimpleName() not in ("EOFException", "SocketException"):
        return False
    frames = (str(frame.getClassName()) for frame in thrown.getStackTrace())
    return next((name for name in frames if not name.startswith(_READERS)), "").startswith(_TALKS_TO_WORKERS)


def _messages(thrown: JavaObject | None) -> Iterator[str]:
    """The first lines of the messages of an exception, its cause, and so on."""
    while thrown is not None:
        message = str(thrown.getMessage() or thrown.toString()).strip().partition("\n")[0]
        # The message of such an exception is the class's name and nothing else.
        yield f"{message}: no such class" if thrown.getClass().getSimpleName() in _NO_CLASS else message
        thrown = thrown.getCause()
