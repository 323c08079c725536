"""A partition in a bucket of tiered storage as a log, which answers as a broker does."""

from __future__ import annotations

from functools import partial

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LeaderEpochs
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.log.log import Log
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.lookup.checked_segment import CheckedSegment, ExpectedFiles
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import parse_epoch_entries, read_leader_epochs
from kidxlib.text.times import NS_PER_MS


def remote_log(directory: PartitionDirectory, index_directory: Location | None, *, by_time: bool) -> Log:
    """The remote segments of a partition as one log, which begins at the first segment: the bucket does not say where a
    broker's log starts. `index_directory` has the index files; None for the objects of the segments. `by_time` tells
    that the log is asked for times.
    """
    assert directory.remote is not None
    files = directory.remote.files()
    if by_time:
        for base_offset, visible in files.visible.items():
            if not visible.is_whole:
                raise UsageError(
                    f"{directory.file(base_offset, LOG_SUFFIX)}: consumers get offsets {visible.first_offset} to "
                    f"{visible.last_offset} of it, and others of another segment; ask for an offset, or kidx export "
                    "--times"
                )
    segments = [
        CheckedSegment(
            directory.file(base_offset, LOG_SUFFIX),
            base_offset,
            partial(directory.file, base_offset) if index_directory is None else index_directory,
            ExpectedFiles(),
            mtime_ms=mtime_ns // NS_PER_MS,
        )
        for base_offset, _, mtime_ns, _ in files.segments
    ]
    epochs = None if index_directory is None else read_leader_epochs(index_directory)
    if epochs is None and segments:
        epochs = _leader_epochs(directory, segments[-1].base_offset)
    return Log(segments, name=str(directory.path), leader_epochs=epochs)


def _leader_epochs(directory: PartitionDirectory, base_offset: int) -> LeaderEpochs | None:
    """The epochs that were copied with a segment: all up to its end."""
    place = directory.file(base_offset, EPOCHS_SUFFIX)
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        return None
    return LeaderEpochs(parse_epoch_entries(content, str(place)))
