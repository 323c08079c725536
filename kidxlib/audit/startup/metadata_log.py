"""A node's copy of the cluster's metadata as the node starts: what keeps it from reading the files of Raft, where its
log ends, and what that has lost.

A node reads its copy up to the first batch that is not whole, and cuts off the rest (`KafkaRaftLog.createLog`, which
recovers the whole log at each start). What it had behind that, only other voters have.

Sources: `BootstrapDirectory.read`, `KafkaRaftManager`, `KafkaRaftLog.recoverSnapshots` and `readSnapshot`,
`Snapshots.parse`, `FileQuorumStateStore.readStateFromFile`, `KRaftControlRecordStateMachine.updateState`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kidxlib import java
from kidxlib.audit.startup.obstacles import (
    REMEDY_OF_MISNAMED,
    Effect,
    KafkaThrows,
    Obstacle,
    Thrown,
    accepted_topic_id,
)
from kidxlib.errors import (
    CheckpointError,
    ClusterMetadataError,
    LogChangedError,
    MalformedError,
    MalformedRecordsError,
    UnreadableMessageError,
)
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.kafka_release import FIRST_SNAPSHOT_MAY_BE_EMPTY, METADATA_VERSION, NodeRelease
from kidxlib.format.layouts import OFFSET_INDEX_ENTRY
from kidxlib.format.segment_files import (
    BOOTSTRAP_SNAPSHOT,
    KRAFT_SNAPSHOT_SUFFIX,
    KRAFT_SNAPSHOT_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    OFFSET_MAX,
    SnapshotId,
    kraft_snapshot_file,
    parse_segment_log,
    parse_snapshot,
    segment_file,
)
from kidxlib.log.metadata_image import ClusterMetadata, read_despite_damage
from kidxlib.log.metadata_replica import (
    METADATA_DIRECTORY,
    QUORUM_STATE,
    ensure_whole_snapshot,
    names_voters,
    whole_batches_of_torn,
)
from kidxlib.messages.typed_records import CLUSTER_METADATA, read_framed
from kidxlib.records.batch_headers import batches, is_crc_valid
from kidxlib.records.reader import records
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA, read_leader_epochs
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.small_files import filled_file, small_file
from kidxlib.text.words import quoted

#: What a node does that has lost the log of the cluster's metadata (docs/start-files.md).
STARTS_WITHOUT_METADATA: Final = (
    "a quorum's only voter that starts without it has an empty cluster, and sets all partitions aside (-stray); any "
    "other node fetches it anew"
)
#: The same, where the copy at hand says that the node is the only voter.
ONLY_VOTER_WITHOUT_METADATA: Final = (
    "it is the quorum's only voter, and without it has an empty cluster, and sets all partitions aside (-stray)"
)

#: What to do about it.
RESTORE: Final = "restore the directory from a backup, or copy it from another controller, before any start"

#: `Uuid.METADATA_TOPIC_ID`.
_METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
#: `QuorumStateData`: what each version has to have.
_QUORUM_STATE_FIELDS: Final[Mapping[int, tuple[str, ...]]] = {
    0: ("clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters"),
    1: ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId"),
}
#: The version of a quorum whose voters are in `controller.quorum.voters`; else they are in snapshots and the log.
_VOTERS_IN_PROPERTIES: Final = 0
_REMOVE_QUORUM_STATE: Final = (
    "remove the file: a node that is the quorum's only voter starts without it; of several voters, one that has "
    "forgotten its vote may vote twice in one epoch, so start it only while the others have a leader"
)
_RESTORE_DIRECTORY: Final = (
    "copy the directory from another node of the quorum, or from a backup; in a quorum of several a node that has an "
    "empty one fetches it anew"
)


_BAD_SNAPSHOT_DOES: Final = (
    "a node that starts ends with an error, finds no controller for a minute and then ends, or lacks what the snapshot "
    "has lost"
)


def metadata_at_start(directory: Location) -> ClusterMetadata | None:
    """The cluster's metadata as a starting node has it: its own copy to its end, committed or not, as the node has
    directories of uncommitted partitions, too. None where it cannot be read.
    """
    try:
        return read_despite_damage(directory, OFFSET_MAX)
    except (ClusterMetadataError, OSError):
        return None


def obstacles_of_raft(log_dir: Location, kafka: NodeRelease, *, metadata_is_read: bool) -> Iterator[Obstacle]:
    """What is wrong with the files of Raft in a log dir, as far as it has any, for the node's Kafka.
    `metadata_is_read`: the latest snapshot and the log were read, and are good.
    """
    yield from _bootstrap_obstacles(log_dir / BOOTSTRAP_SNAPSHOT)
    directory = log_dir / METADATA_DIRECTORY
    try:
        files = files_in(directory)
    except OSError:  # it has none, or its partition says that it cannot be listed
        return
    yield from _quorum_state_obstacles(files.get(QUORUM_STATE))
    yield from _snapshot_obstacles(directory, files, kafka, metadata_is_read=metadata_is_read)
    yield from _topic_id_obstacles(files.get(PARTITION_METADATA))


def _bootstrap_obstacles(path: Location) -> Iterator[Obstacle]:
    """The cluster's `metadata.version` has to be there, though only a cluster's first start uses it."""
    remedy = "remove the file: only the first start of a new cluster uses what is in it"
    try:
        with contextlib.closing(LogFile(str(path))) as log:
            for batch in batches(log):
                if batch.is_control:
                    continue
                for record in records(log, batch):
                    framed = read_framed(record.value, CLUSTER_METADATA)
                    if framed.message.name == "FeatureLevelRecord" and framed.values["name"] == METADATA_VERSION:
                        return
    except FileNotFoundError:
        return
    except OSError as error:
        yield Obstacle.unreadable(path, error)
        return
    except (MalformedError, MalformedRecordsError, UnreadableMessageError) as error:
        yield _obstacle_ending_node(path, str(error), "CorruptRecordException", remedy)
        return
    yield _obstacle_ending_node(
        path, "no metadata.version in it, as in an empty or a torn file", "RuntimeException", remedy
    )


def _quorum_state_obstacles(path: Location | None) -> Iterator[Obstacle]:
    if path is None:
        return
    try:
        content = small_file(path)
    except OSError as error:
        yield Obstacle.unreadable(path, error)
        return
    line = content.decode(errors="replace").split("\n", 1)[0].rstrip("\r")
    if not content:
        yield _obstacle_ending_node(path, "empty, expected JSON", "UncheckedIOException", _REMOVE_QUORUM_STATE)
        return
    try:
        state = json.loads(line)
    except ValueError:
        yield _obstacle_ending_node(
            path, f"line 1: {quoted(line)}, expected JSON", "UncheckedIOException", _REMOVE_QUORUM_STATE
        )
        return
    if not isinstance(state, dict) or "data_version" not in state:
        found = f"line 1: {quoted(line)}, expected an object with data_version"
        yield _obstacle_ending_node(path, found, "UncheckedIOException", _REMOVE_QUORUM_STATE)
    elif not isinstance(state["data_version"], int) or state["data_version"] not in _QUORUM_STATE_FIELDS:
        found = f"data_version {quoted(state['data_version'])}, expected {' or '.join(map(str, _QUORUM_STATE_FIELDS))}"
        yield _obstacle_ending_node(path, found, "IllegalStateException", _REMOVE_QUORUM_STATE)
    elif lacks := [name for name in _QUORUM_STATE_FIELDS[state["data_version"]] if name not in state]:
        yield _obstacle_ending_node(path, f"no {lacks[0]}", "RuntimeException", _REMOVE_QUORUM_STATE)


def _snapshot_obstacles(
    directory: Location, files: Mapping[str, Location], kafka: NodeRelease, *, metadata_is_read: bool
) -> Iterator[Obstacle]:
    snapshots: list[SnapshotId] = []
    renamed: dict[SnapshotId, Location] = {}
    for name in sorted(files):
        if not name.endswith(KRAFT_SNAPSHOT_SUFFIXES):
            continue
        snapshot = _parse_snapshot_as_kafka(name)
        if snapshot is None:
            yield _obstacle_ending_node(
                files[name],
                "a name without an offset and an epoch",
                "StringIndexOutOfBoundsException or NumberFormatException",
                REMEDY_OF_MISNAMED,
            )
        elif name.endswith(KRAFT_SNAPSHOT_SUFFIX):
            if kraft_snapshot_file(snapshot) in files:
                snapshots.append(snapshot)
            else:
                renamed[snapshot] = files[name]
    bases = [base for name in files if (base := parse_segment_log(name)) is not None]
    start, latest = min(bases, default=0), max(snapshots, default=None)
    if renamed and (latest is None or max(renamed) > latest):
        own = kraft_snapshot_file(max(renamed))
        newer = "reads the log from its first offset on"
        if start > 0:
            newer = f"does so, too (OffsetOutOfRangeException), as its log begins at offset {start}"
        yield Obstacle(
            renamed[max(renamed)],
            f"a node takes it for {own}, looks for that file, and then for no other snapshot",
            Effect.ENDS,
            f"Kafka 3.9 ends with an error (NoSuchFileException); from 4.3 on a node {newer}",
            f"name it {own} again if it is whole; else move it out of the directory",
        )
    if start > 0 and (latest is None or latest.end_offset < start):
        has = "there is no snapshot" if latest is None else f"the latest snapshot ends at {latest.end_offset}"
        yield _obstacle_ending_node(
            directory,
            f"its log begins at offset {start}, and {has}, expected one that ends there or later",
            "IllegalStateException",
            _RESTORE_DIRECTORY,
        )
    elif latest is not None and not metadata_is_read:
        yield from _latest_snapshot_obstacles(files, start, snapshots, kafka)


def _latest_snapshot_obstacles(
    files: Mapping[str, Location], start: int, snapshots: Sequence[SnapshotId], kafka: NodeRelease
) -> Iterator[Obstacle]:
    """That of offset 0 has what `kafka-storage format` wrote (KIP-853, KIP-1170), which is in the log, too, once there
    was a leader.
    """
    *_, latest = in_order = sorted(snapshots)
    path = files[kraft_snapshot_file(latest)]
    try:
        ensure_whole_snapshot(path)
    except ClusterMetadataError as error:
        does, batches_left = _BAD_SNAPSHOT_DOES, whole_batches_of_torn(path)
        if latest.end_offset == 0 and batches_left is not None and _knows_voters(files, path, torn_counts=True):
            if batches_left > 0 or kafka.release >= FIRST_SNAPSHOT_MAY_BE_EMPTY:
                return
            older = f"a node of Kafka before {FIRST_SNAPSHOT_MAY_BE_EMPTY}"
            does = f"{older} that starts ends with an error (NoSuchElementException); {kafka}, counts"
        if len(in_order) > 1 and in_order[-2].end_offset >= start:
            instead: str | None = f"{kraft_snapshot_file(in_order[-2])} and the log"
        elif start == 0 and (latest.end_offset > 0 or _knows_voters(files, path, torn_counts=False)):
            instead = "the log, from its first offset on"
        else:
            instead = None
        remedy = (
            _RESTORE_DIRECTORY if instead is None else f"move the file away: the node then reads {instead}; keep a copy"
        )
        found = str(error).removeprefix(f"{path}: ").removesuffix("; copy the directory again")
        what = "empty, expected a whole snapshot" if path.stat().st_size == 0 else found
        yield Obstacle(path, what, Effect.ENDS, does, remedy)
    except OSError as error:
        yield Obstacle.unreadable(path, error)


def _knows_voters(files: Mapping[str, Location], snapshot: Location, *, torn_counts: bool) -> bool:
    """Whether a node knows the quorum's voters by `controller.quorum.voters`, by its log, or by the whole batches of a
    torn snapshot.
    """
    try:
        state = json.loads(small_file(files[QUORUM_STATE]))
    except (KeyError, OSError, ValueError):
        state = None
    if isinstance(state, dict) and state.get("data_version") == _VOTERS_IN_PROPERTIES:
        return True
    return names_voters(snapshot.parent, left_out=snapshot, left_out_counts=torn_counts)


def _parse_snapshot_as_kafka(name: str) -> SnapshotId | None:
    """`Snapshots.parse`, which takes any text at the places of offset and epoch."""
    end_offset = java.parse_long(name[:20])
    epoch = java.parse_int(name[21:31])
    return None if len(name) < 31 or end_offset is None or epoch is None else SnapshotId(end_offset, epoch)


def _topic_id_obstacles(path: Location | None) -> Iterator[Obstacle]:
    """What cannot be parsed is reported with the partition's files."""
    if path is None:
        return
    with contextlib.suppress(KafkaThrows, OSError):
        if (topic_id := accepted_topic_id(path)) != _METADATA_TOPIC_ID:
            yield _obstacle_ending_node(
                path,
                f"topic id {topic_id}, expected {_METADATA_TOPIC_ID}, which the metadata's topic always has",
                "InconsistentTopicIdException",
                "remove the file: the node makes it again",
            )


def obstacles_of_newer_records(metadata: ClusterMetadata, kafka: NodeRelease) -> Iterator[Obstacle]:
    """The first record of the node's own copy that its Kafka does not know. A node reads its latest snapshot and all
    records behind it as it starts (`KRaftControlRecordStateMachine.maybeLoadLog`).
    """
    unknown = [record for record in metadata.newer_records if kafka.release < record.since]
    if unknown:
        first = min(unknown, key=lambda record: -1 if record.offset is None else record.offset)
        newest = max(record.since for record in unknown)
        where = "its latest snapshot has" if first.offset is None else f"the record at offset {first.offset} is"
        yield _obstacle_ending_node(
            metadata.directory,
            f"{where} {first.found}, which Kafka knows since {first.since}; {kafka}, counts",
            first.exception,
            f"start the node with Kafka {newest} or newer",
        )


def _obstacle_ending_node(path: Location, found: str, exception: str, remedy: str) -> Obstacle:
    return Obstacle(path, found, Effect.ENDS, f"{Thrown.OTHER} ({exception})", remedy)


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
    return Obstacle(path, found, Effect.HIDES, metadata_lost_at_start(metadata), RESTORE, is_loss)


def metadata_lost_at_start(metadata: ClusterMetadata) -> str:
    """What a starting node loses of the metadata's log, in words."""
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
