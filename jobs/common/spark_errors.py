"""Of Spark's errors, those that a user can mend, as one line in place of a stack trace."""

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

#: One of our own errors, as the last line of the traceback that Spark brings back from an executor.
_OURS: Final = re.compile(r"^kidxlib\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)

#: What the operating system says of a file that it does not let Spark read or write.
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
#: For a folder that cannot be made Java has no reason.
_OF_STORAGE: Final = re.compile(rf"(?:{_REFUSED})\W*$|^Mkdirs failed to create |^\[DELTA_CANNOT_CREATE_LOG_PATH\] ")
#: What Java meets at its end of the pipe to a Python worker that ended before it had said anything.
_CUT_OFF: Final = ("java.io.EOFException", "Broken pipe", "Connection reset")
_NO_CLASS: Final = ("ClassNotFoundException", "NoClassDefFoundError")
_PLACE: Final = re.compile(r"(?:[a-z0-9]+:)?/\S*[^\s.,;:)]")


def as_ours(error: PySparkException | Py4JJavaError) -> KidxError | None:
    """What a task raised as an error of ours, a `StorageError`, or that a worker ended; None of any other."""
    if raised := _OURS.search(str(error)):
        ours: KidxError = getattr(errors, raised["name"])(raised["message"])
        return ours
    if not isinstance(error, Py4JJavaError):
        return None
    messages = list(_messages(error.java_exception))
    if messages[-1] in _CUT_OFF or any(text.startswith("Python worker exited unexpectedly") for text in messages):
        return SparkEndedError(
            "a Python worker has ended at each attempt at a task: it was killed, as a machine without memory does "
            "(dmesg tells), or has crashed; fewer workers at once (-- --master 'local[1,4]') need less memory, "
            "and the same command goes on from here"
        )
    if not _OF_STORAGE.search(messages[-1]):
        return None
    place = ""
    if not _PLACE.search(messages[-1]):
        places = (found[0] for text in messages if (found := _PLACE.search(text)))
        place = next(places, "a file of the catalog, or of Spark's own below spark.local.dir") + ": "
    return StorageError(f"{place}{messages[-1]}; mend that and run the same command again: what is done stays done")


def reason(error: PySparkException | Py4JJavaError) -> str:
    """What Spark says in one line; of what Java has thrown, what stands at the bottom of it."""
    if isinstance(error, Py4JJavaError):
        return list(_messages(error.java_exception))[-1]
    return str(error).strip().splitlines()[0]


def _messages(thrown: JavaObject | None) -> Iterator[str]:
    """The first lines of what was thrown, of its cause, and so on."""
    while thrown is not None:
        message = str(thrown.getMessage() or thrown.toString()).strip().partition("\n")[0]
        # Its message is the name and nothing else.
        yield f"{message}: no such class" if thrown.getClass().getSimpleName() in _NO_CLASS else message
        thrown = thrown.getCause()
