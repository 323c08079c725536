"""Where the log of a node's copy of the cluster's metadata ends, and what it has lost.

A node reads its copy up to the first batch that is not whole, and cuts off the rest (`KafkaRaftLog.createLog`, which
recovers the whole log at each start). What it had behind that, only other voters have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

import numpy as np

from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.errors import CheckpointError, LogChangedError, MalformedRecordsError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.layouts import OFFSET_INDEX_ENTRY
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    parse_segment_log,
    parse_snapshot,
    segment_file,
)
from kidxlib.log.cluster_metadata.image import ClusterMetadata
from kidxlib.records.batch_headers import batches, is_crc_valid
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, filled_file, read_leader_epochs
from kidxlib.storage.opened_log import LogFile

#: What to do about it.
RESTORE: Final = "restore the directory from a backup, or copy it from another controller, before any start"


def lost_metadata(metadata: ClusterMetadata) -> Obstacle | None:
    """What the log of a node's own copy, read to its end, has lost or may have; None where nothing tells of it. It is a
    loss where a file beside the log knows of more, and the node is the quorum's only voter: nobody else has that. A
    node that runs may have gone on since.
    """
    files = files_in(metadata.directory)
    path, torn = _log_with_torn_bytes(metadata, files)
    known, known_to = _known_log_end(metadata, files)
    lost, is_short = [], torn is not None and known > metadata.end_offset
    if is_short:
        lost.append(f"{known_to} knows offset {known - 1}")
    if torn:
        lost.append(f"{torn:,} bytes follow that are no whole batch")
    if not lost:
        return None
    found = f"the log of the cluster's metadata ends at offset {metadata.end_offset}, and {', and '.join(lost)}"
    if len(lost) == 1 and torn and not (metadata.directory.parent / CLEAN_SHUTDOWN_FILE).exists():
        found += ", perhaps of an append that was broken off"
    is_loss = is_short and metadata.only_voter is not None
    return Obstacle(path, found, Effect.HIDES, loses_at_start(metadata), RESTORE, is_loss)


def loses_at_start(metadata: ClusterMetadata) -> str:
    loses = (
        f"loses the metadata from offset {metadata.end_offset} on, and sets partitions of topics aside (-stray) that "
        "it does not know then"
    )
    if metadata.only_voter is not None:
        return f"as it starts, node {metadata.only_voter}, the quorum's only voter, {loses}"
    return f"a quorum's only voter that starts {loses}; any other node fetches it anew"


def _log_with_torn_bytes(metadata: ClusterMetadata, files: Mapping[str, Location]) -> tuple[Location, int | None]:
    """The log in which whole batches end, and how many bytes follow them there; None where more whole batches follow,
    of a node that runs.
    """
    end = metadata.end_offset
    base = max((base for name in files if (base := parse_segment_log(name)) is not None and base <= end), default=None)
    if base is None:
        return metadata.directory, 0
    path, position = files[segment_file(base, LOG_SUFFIX)], 0
    with contextlib.closing(LogFile(str(path))) as log:
        for entry_offset, entry_position in _offset_index_entries(files, base):
            if entry_offset < end and entry_position < log.size:
                position = entry_position
        with contextlib.suppress(MalformedRecordsError, LogChangedError):
            for batch in batches(log, position):
                if batch.last_offset >= end:
                    return path, None if is_crc_valid(log, batch) else log.size - position
                position = batch.next_position
        return path, log.size - position


def _known_log_end(metadata: ClusterMetadata, files: Mapping[str, Location]) -> tuple[int, str]:
    """The offset up to which the log went once, and which file says so."""
    bases = [base for name in files if (base := parse_segment_log(name)) is not None]
    ends = [(base, segment_file(base, LOG_SUFFIX)) for base in bases]
    ends += [(offset, name) for name in files if (offset := parse_snapshot(name)) is not None]
    if bases:
        name = segment_file(max(bases), OFFSET_INDEX_SUFFIX)
        ends += [(offset + 1, name) for offset, _ in _offset_index_entries(files, max(bases))[-1:]]
    with contextlib.suppress(CheckpointError):
        epochs = read_leader_epochs(metadata.directory)
        if epochs is not None and epochs.last is not None:
            ends.append((epochs.last.start_offset, LEADER_EPOCH_CHECKPOINT))
    return max(ends, default=(0, ""))


def _offset_index_entries(files: Mapping[str, Location], base: int) -> list[tuple[int, int]]:
    """The entries of a log's `.index` before the preallocated room: offsets and positions."""
    path = files.get(segment_file(base, OFFSET_INDEX_SUFFIX))
    if path is None:
        return []
    content = filled_file(path, OFFSET_INDEX_ENTRY.itemsize)
    entries = np.frombuffer(content[: len(content) // 8 * 8], OFFSET_INDEX_ENTRY)
    return [(base + int(relative), int(position)) for relative, position in entries]
