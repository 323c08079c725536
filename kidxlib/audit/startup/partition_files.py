"""What keeps a broker from loading a partition before it reads a log: the names of its files, and small files.

Names are parsed as Kafka parses them (`LogFileUtils.offsetFromFileName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.checkpoints import read_epochs
from kidxlib.audit.startup.text_files import LONG_BITS, KafkaThrows, Thrown, why_unreadable
from kidxlib.audit.startup.topic_ids import read_topic_id
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import PARTITION_METADATA

#: Files whose names have to begin with an offset. Those that end with `.deleted` go by that alone.
_NAMED_BY_OFFSET: Final = (
    segment_files.LOG_SUFFIX,
    *segment_files.AUXILIARY_SUFFIXES,
    segment_files.CLEANED_SUFFIX,
    segment_files.SWAP_SUFFIX,
)


def failures_in_directory(directory: Location) -> Iterator[str]:
    """The failures in the files of a partition's directory, without its logs; none if it cannot be listed."""
    try:
        files = files_in(directory)
    except OSError:
        return
    yield from failures_in_files(directory, files)


def failures_in_files(directory: Location, files: Mapping[str, Location]) -> Iterator[str]:
    """The failures in the listed files of a partition, in the order in which `UnifiedLog` reads them."""
    yield from _of_file(files.get(LEADER_EPOCH_CHECKPOINT), read_epochs)
    for name in sorted(files):
        if (why := _why_misnamed(name)) is not None:
            yield f"{directory / name}: {why}"
    yield from _of_file(files.get(PARTITION_METADATA), read_topic_id)


def is_misnamed(name: str) -> bool:
    """Whether a broker fails on the name of a file in a partition's directory."""
    return _why_misnamed(name) is not None


def _why_misnamed(name: str) -> str | None:
    if not name.endswith(_NAMED_BY_OFFSET):
        return None
    offset = offset_of(name)
    if offset is None:
        return f"{name.partition('.')[0]!r} is no offset; {Thrown.OTHER} (NumberFormatException)"
    its_log = segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
    if name.removesuffix(segment_files.SWAP_SUFFIX).endswith(segment_files.LOG_SUFFIX) and not name.startswith(its_log):
        # `LogSegment.open` opens the file that is called as it should be, and makes it if it is not there.
        return f"a broker that starts takes it for {its_log}, and opens that; what follows is not simulated"
    return None


def offset_of(name: str) -> int | None:
    """The offset in a file's name (`LogFileUtils.offsetFromFileName`)."""
    return java.parse_integer(name.partition(".")[0], LONG_BITS)


def _of_file(path: Location | None, read: Callable[[Location], object]) -> Iterator[str]:
    if path is None:
        return
    try:
        read(path)
    except KafkaThrows as error:
        yield f"{path}: {error.where}; {error.thrown}"
    except OSError as error:
        yield why_unreadable(path, error)
