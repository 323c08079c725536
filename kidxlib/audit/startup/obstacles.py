"""An obstacle: what a node meets as it starts, that keeps it from starting, from a log dir, or from records; and how a
broker reads its small text files, and what becomes of the broker if it cannot.

They are read as Kafka's own classes read them (`CheckpointFile`, `PartitionMetadataFile`). `kidxlib.storage.log_dir` is
stricter: it accepts only what a broker writes.

An `IOException` takes the log dir out of use (`LogDirFailureChannel`), and a broker that has no other ends
(`ReplicaManager.handleLogDirFailure`). Any other exception ends it (`LogManager.loadLogs`).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from kidxlib.storage.location import Listed, Location
from kidxlib.storage.log_dir import small_file

INT_BITS: Final = 32
LONG_BITS: Final = 64
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class Effect(enum.StrEnum):
    """What comes of an obstacle, the worst first."""

    ENDS = "ends"  # the node does not start, with any of its log dirs
    LOG_DIR = "log-dir"  # it takes the log dir out of use, and ends if it has no other
    HIDES = "hides"  # it starts, and does not serve some records, sets them aside or drops them
    UNKNOWN = "unknown"  # what it takes from the file is not known


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that a node meets as it starts.

    Attributes:
        where: the file or directory.
        found: what was found there, and what was expected.
        effect: the kind of what the node does.
        does: what the node does, in words.
        remedy: what to do, with the price of that.
        is_loss: records are missing, and nothing else keeps the node from starting: somebody may accept that.
    """

    where: Location
    found: str
    effect: Effect
    does: str
    remedy: str = ""
    is_loss: bool = False

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.where}: {self.found}", self.does, self.remedy)))


class Thrown(enum.StrEnum):
    """What a broker does if it cannot read a file."""

    IO = "a broker that starts takes the log dir out of use, and ends if it has no other"
    OTHER = "a broker that starts ends with an error"


EFFECTS: Final = {Thrown.IO: Effect.LOG_DIR, Thrown.OTHER: Effect.ENDS}


class KafkaThrows(Exception):  # noqa: N818  # of Kafka, and none of ours
    """Kafka throws something when it reads a file. `where` is the place in the file, and what stands there."""

    def __init__(self, where: str, thrown: Thrown) -> None:
        super().__init__(where)
        self.where, self.thrown = where, thrown


def unreadable(path: Location, error: OSError) -> Obstacle:
    why = "not readable by this user" if isinstance(error, PermissionError) else f"not read: {error.strerror or error}"
    return Obstacle(path, why, Effect.UNKNOWN, "what a broker takes from it is not known")


def thrown_at(path: Location, error: KafkaThrows, remedy: str) -> Obstacle:
    return Obstacle(path, error.where, EFFECTS[error.thrown], str(error.thrown), remedy)


def read_lines(path: Location | Listed) -> list[str]:
    """The lines of a file, as `BufferedReader.readLine` returns them."""
    content = small_file(path)
    try:
        lines = _LINE_END.split(content.decode())
    except UnicodeDecodeError as error:
        raise KafkaThrows(f"byte {error.start}: not UTF-8", Thrown.IO) from error
    return lines if lines[-1] else lines[:-1]
