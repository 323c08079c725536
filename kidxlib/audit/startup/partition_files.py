"""What keeps a broker from loading a partition before it reads a log: the names of its files, and small files.

Names are parsed as Kafka parses them (`LogFileUtils.offsetFromFileName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.checkpoints import read_epochs
from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.audit.startup.text_files import LONG_BITS, KafkaThrows, Thrown, thrown_at, unreadable
from kidxlib.audit.startup.topic_ids import read_topic_id
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import PARTITION_METADATA

#: Files whose names have to begin with an offset. Those that end with `.deleted` go by that alone.
_NAMED_BY_OFFSET: Final = (
    segment_files.LOG_SUFFIX,
    *segment_files.AUXILIARY_SUFFIXES,
    segment_files.CLEANED_SUFFIX,
    segment_files.SWAP_SUFFIX,
)


#: What it costs to do without a small file, or how it is made again.
_REMEDIES: Final = {
    LEADER_EPOCH_CHECKPOINT: "kidx build --in-place --epochs --repair makes the file again from the log; of a tiered "
    "partition the log alone does not tell all of it",
    PARTITION_METADATA: "write the topic's id into it, in two lines: 'version: 0' and 'topic_id: ID'; without the file "
    "the broker sets the directory aside",
}
#: Of the metadata's log, whose topic id is always one, and whose epochs are read from its batches.
_METADATA_REMEDY: Final = "remove the file: the node makes it again from the metadata's log"
_MISNAMED: Final = "move the file out of the directory"


def failures_in_directory(directory: Location) -> Iterator[Obstacle]:
    """The failures in the files of a partition's directory, without its logs; none if it cannot be listed."""
    try:
        files = files_in(directory)
    except OSError:
        return
    yield from failures_in_files(directory, files)


def failures_in_files(directory: Location, files: Mapping[str, Location]) -> Iterator[Obstacle]:
    """The failures in the listed files of a partition, in the order in which `UnifiedLog` reads them."""
    is_metadata = directory.name == METADATA_DIRECTORY
    yield from _of_file(files.get(LEADER_EPOCH_CHECKPOINT), read_epochs, ends=is_metadata)
    for name in sorted(files):
        if (misnamed := _why_misnamed(name)) is not None:
            found, does = misnamed
            yield Obstacle(directory / name, found, Effect.ENDS, does, _MISNAMED)
    yield from _of_file(files.get(PARTITION_METADATA), read_topic_id, ends=is_metadata)


def is_misnamed(name: str) -> bool:
    """Whether a broker fails on the name of a file in a partition's directory."""
    return _why_misnamed(name) is not None


def _why_misnamed(name: str) -> tuple[str, str] | None:
    """What is wrong with a name, and what a broker does."""
    if not name.endswith(_NAMED_BY_OFFSET):
        return None
    offset = offset_of(name)
    if offset is None:
        return f"{name.partition('.')[0]!r} is no offset", f"{Thrown.OTHER} (NumberFormatException)"
    its_log = segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
    if name.removesuffix(segment_files.SWAP_SUFFIX).endswith(segment_files.LOG_SUFFIX) and not name.startswith(its_log):
        # `LogSegment.open` opens the file that is called as it should be, and makes it if it is not there.
        return (
            f"a log whose name is not {its_log}",
            "a broker that starts takes it for that one, and opens that; what follows is not simulated",
        )
    return None


def offset_of(name: str) -> int | None:
    """The offset in a file's name (`LogFileUtils.offsetFromFileName`)."""
    return java.parse_integer(name.partition(".")[0], LONG_BITS)


def _of_file(path: Location | None, read: Callable[[Location], object], *, ends: bool) -> Iterator[Obstacle]:
    """What is wrong with a small file.

    Args:
        ends: it is of the metadata's log, without which no node starts.
    """
    if path is None:
        return
    try:
        read(path)
    except KafkaThrows as error:
        thrown = Thrown.OTHER if ends else error.thrown
        yield thrown_at(path, KafkaThrows(error.where, thrown), _METADATA_REMEDY if ends else _REMEDIES[path.name])
    except OSError as error:
        yield unreadable(path, error)
