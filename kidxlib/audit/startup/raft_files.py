"""What keeps a node from starting in the files of its copy of the cluster's metadata, and in `bootstrap.checkpoint`.

Source: `BootstrapDirectory.read`, `KafkaRaftManager`, `KafkaRaftLog.recoverSnapshots` and `readSnapshot`,
`Snapshots.parse`, `FileQuorumStateStore.readStateFromFile`, `KRaftControlRecordStateMachine.updateState`. A broker
without a controller reads the same files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.audit.startup.text_files import INT_BITS, LONG_BITS, KafkaThrows, Thrown, unreadable
from kidxlib.audit.startup.topic_ids import read_topic_id
from kidxlib.errors import ClusterMetadataError, MalformedError, MalformedRecordsError, UnreadableMessageError
from kidxlib.format import segment_files
from kidxlib.format.segment_files import SnapshotId
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY, QUORUM_STATE, ensure_whole_snapshot
from kidxlib.messages.framed import CLUSTER_METADATA, read_framed
from kidxlib.records.batch_headers import batches
from kidxlib.records.reader import records
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.storage.small_files import small_file
from kidxlib.text.quoted import quoted

#: `Uuid.METADATA_TOPIC_ID`.
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
#: `QuorumStateData`: what each version has to have.
_OF_QUORUM_STATE: Final[Mapping[int, tuple[str, ...]]] = {
    0: ("clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters"),
    1: ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId"),
}
_REMOVE_STATE: Final = (
    "remove the file: a node that is the quorum's only voter starts without it; of several voters, one that has "
    "forgotten its vote may vote twice in one epoch, so start it only while the others have a leader"
)
_RESTORE: Final = (
    "copy the directory from another node of the quorum, or from a backup; in a quorum of several a node that has an "
    "empty one fetches it anew"
)


_MISNAMED: Final = "move the file out of the directory"


def obstacles_of_raft(log_dir: Location, *, metadata_is_read: bool) -> Iterator[Obstacle]:
    """What is wrong with these files of a log dir, as far as it has any.

    Args:
        metadata_is_read: the latest snapshot and the log were read, and are good.
    """
    yield from _of_bootstrap(log_dir / segment_files.BOOTSTRAP_SNAPSHOT)
    directory = log_dir / METADATA_DIRECTORY
    try:
        files = files_in(directory)
    except OSError:  # it has none, or its partition says that it cannot be listed
        return
    yield from _of_quorum_state(files.get(QUORUM_STATE))
    yield from _of_snapshots(directory, files, metadata_is_read=metadata_is_read)
    yield from _of_topic_id(files.get(PARTITION_METADATA))


def _ends(path: Location, found: str, exception: str, remedy: str) -> Obstacle:
    return Obstacle(path, found, Effect.ENDS, f"{Thrown.OTHER} ({exception})", remedy)


def _of_bootstrap(path: Location) -> Iterator[Obstacle]:
    """Look for the cluster's `metadata.version`: it has to be there, though only a cluster's first start uses it."""
    remedy = "remove the file: only the first start of a new cluster uses what is in it"
    try:
        with contextlib.closing(LogFile(str(path))) as log:
            for batch in batches(log):
                if batch.is_control:
                    continue
                for record in records(log, batch):
                    framed = read_framed(record.value, CLUSTER_METADATA)
                    if framed.message.name == "FeatureLevelRecord" and framed.values["name"] == "metadata.version":
                        return
    except FileNotFoundError:
        return
    except OSError as error:
        yield unreadable(path, error)
        return
    except (MalformedError, MalformedRecordsError, UnreadableMessageError) as error:
        yield _ends(path, str(error), "CorruptRecordException", remedy)
        return
    yield _ends(path, "no metadata.version in it, as in an empty or a torn file", "RuntimeException", remedy)


def _of_quorum_state(path: Location | None) -> Iterator[Obstacle]:
    if path is None:
        return
    try:
        content = small_file(path)
    except OSError as error:
        yield unreadable(path, error)
        return
    line = content.decode(errors="replace").split("\n", 1)[0].rstrip("\r")
    if not content:
        yield _ends(path, "empty, expected JSON", "UncheckedIOException", _REMOVE_STATE)
        return
    try:
        state = json.loads(line)
    except ValueError:
        yield _ends(path, f"line 1: {quoted(line)}, expected JSON", "UncheckedIOException", _REMOVE_STATE)
        return
    if not isinstance(state, dict) or "data_version" not in state:
        found = f"line 1: {quoted(line)}, expected an object with data_version"
        yield _ends(path, found, "UncheckedIOException", _REMOVE_STATE)
    elif not isinstance(state["data_version"], int) or state["data_version"] not in _OF_QUORUM_STATE:
        found = f"data_version {quoted(state['data_version'])}, expected {' or '.join(map(str, _OF_QUORUM_STATE))}"
        yield _ends(path, found, "IllegalStateException", _REMOVE_STATE)
    elif lacks := [name for name in _OF_QUORUM_STATE[state["data_version"]] if name not in state]:
        yield _ends(path, f"no {lacks[0]}", "RuntimeException", _REMOVE_STATE)


def _of_snapshots(directory: Location, files: Mapping[str, Location], *, metadata_is_read: bool) -> Iterator[Obstacle]:
    snapshots: list[SnapshotId] = []
    renamed: dict[SnapshotId, Location] = {}
    for name in sorted(files):
        if not name.endswith(segment_files.KRAFT_SNAPSHOT_SUFFIXES):
            continue
        snapshot = _as_kafka_reads(name)
        if snapshot is None:
            yield _ends(
                files[name],
                "a name without an offset and an epoch",
                "StringIndexOutOfBoundsException or NumberFormatException",
                _MISNAMED,
            )
        elif name.endswith(segment_files.KRAFT_SNAPSHOT_SUFFIX):
            if segment_files.kraft_snapshot_file(snapshot) in files:
                snapshots.append(snapshot)
            else:
                renamed[snapshot] = files[name]
    bases = [base for name in files if (base := segment_files.parse_segment_log(name)) is not None]
    start, latest = min(bases, default=0), max(snapshots, default=None)
    if renamed and (latest is None or max(renamed) > latest):
        own = segment_files.kraft_snapshot_file(max(renamed))
        newer = "reads the log from its first offset on"
        if start > 0:
            newer = f"too (OffsetOutOfRangeException), as its log begins at offset {start}"
        yield Obstacle(
            renamed[max(renamed)],
            f"a node takes it for {own}, looks for that file, and then for no other snapshot",
            Effect.ENDS,
            f"Kafka 3.9 ends with an error (NoSuchFileException); 4.3 {newer}",
            f"name it {own} again if it is whole; else move it out of the directory",
        )
    if start > 0 and (latest is None or latest.end_offset < start):
        has = "there is no snapshot" if latest is None else f"the latest snapshot ends at {latest.end_offset}"
        yield _ends(
            directory,
            f"its log begins at offset {start}, and {has}, expected one that ends there or later",
            "IllegalStateException",
            _RESTORE,
        )
    elif latest is not None and not metadata_is_read:
        yield from _of_latest(files[segment_files.kraft_snapshot_file(latest)], start, snapshots)


def _of_latest(path: Location, start: int, snapshots: list[SnapshotId]) -> Iterator[Obstacle]:
    try:
        ensure_whole_snapshot(path)
    except ClusterMetadataError as error:
        before = max((each for each in snapshots if segment_files.kraft_snapshot_file(each) != path.name), default=None)
        if before is not None and before.end_offset >= start:
            instead: str | None = f"{segment_files.kraft_snapshot_file(before)} and the log"
        else:
            instead = "the log, from its first offset on" if start == 0 else None
        remedy = _RESTORE if instead is None else f"move the file away: the node then reads {instead}; keep a copy"
        found = str(error).removeprefix(f"{path}: ").removesuffix("; copy the directory again")
        what = "empty, expected a whole snapshot" if path.stat().st_size == 0 else found
        yield Obstacle(path, what, Effect.ENDS, _OF_BAD_SNAPSHOT, remedy)
    except OSError as error:
        yield unreadable(path, error)


_OF_BAD_SNAPSHOT: Final = (
    "a node that starts ends with an error, finds no controller for a minute and then ends, or lacks what the snapshot "
    "has lost"
)


def _as_kafka_reads(name: str) -> SnapshotId | None:
    """`Snapshots.parse`, which takes what stands at the places of offset and epoch."""
    end_offset = java.parse_integer(name[:20], LONG_BITS)
    epoch = java.parse_integer(name[21:31], INT_BITS)
    return None if len(name) < 31 or end_offset is None or epoch is None else SnapshotId(end_offset, epoch)


def _of_topic_id(path: Location | None) -> Iterator[Obstacle]:
    """What cannot be parsed is reported with the partition's files."""
    if path is None:
        return
    with contextlib.suppress(KafkaThrows, OSError):
        if (topic_id := read_topic_id(path)) != METADATA_TOPIC_ID:
            yield _ends(
                path,
                f"topic id {topic_id}, expected {METADATA_TOPIC_ID}, which the metadata's topic always has",
                "InconsistentTopicIdException",
                "remove the file: the node makes it again",
            )
