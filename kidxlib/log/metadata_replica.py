"""The files of one node's copy of `__cluster_metadata`: the latest snapshot, and the log after it, batch by batch.

Sources: `KafkaRaftLog`, `RecordsSnapshotReader`, `FileQuorumStateStore`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from kidxlib.errors import ClusterMetadataError, MalformedError, MalformedRecordsError
from kidxlib.format import layouts, segment_files
from kidxlib.format.checksums import crc32c
from kidxlib.records.batch_headers import BatchHeader, batches, is_crc_valid
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import Record, records
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_bytes import LogBytes, ReadAhead
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.small_files import small_file
from kidxlib.text.times import NS_PER_MS
from kidxlib.text.words import quoted

#: The directory in a log dir that holds a copy.
METADATA_DIRECTORY: Final = "__cluster_metadata-0"

QUORUM_STATE: Final = "quorum-state"
_HEADER: Final = "SNAPSHOT_HEADER"
_FOOTER: Final = "SNAPSHOT_FOOTER"
_VOTERS: Final = "KRAFT_VOTERS"
_WITH_VOTERS: Final = ("LEADER_CHANGE", _VOTERS)
#: A running node may delete the files of a snapshot while they are read; it has a later snapshot then.
_TRIES: Final = 3

#: The only record of a batch that a controller writes every half second while nothing changes (`NoOpRecord`, KIP-835):
#: the size, attributes, deltas of timestamp and offset, no key, and the value, of type 20.
_NO_OP: Final = b"\x14\0\0\0\x01\x08\x01\x14\0\0\0"
_IDLE_BYTES: Final = layouts.BATCH_V2_BYTES_MIN + len(_NO_OP)
_BATCH_V2: Final = layouts.as_struct(layouts.BATCH_V2)

_Controls: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
#: Whether a data record is to be kept. It is not asked about each `NoOpRecord`: nobody wants these.
Wanted: TypeAlias = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """A batch with those of its records that the caller wants.

    Attributes:
        epoch: the epoch of the leader that wrote it; in a snapshot that of the snapshot.
        timestamp_ms: the largest timestamp of all records of the batch; −1: none.
    """

    last_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address at which a node listens, as it is advertised to others."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def endpoints_of(fields: Iterable[Mapping[str, Any]]) -> tuple[Endpoint, ...]:
    """The endpoints in a record of a metadata replica: of a node's registration, or of the voters."""
    return tuple(Endpoint(endpoint["name"], endpoint["host"], endpoint["port"]) for endpoint in fields)


@dataclass(frozen=True, slots=True)
class MetadataReplica:
    """The contents of a copy.

    Attributes:
        snapshot_id: of the snapshot; None: there is none.
        snapshot_ms: the timestamp of the last record that the snapshot covers; None: there is no snapshot.
        snapshot: the batches of the snapshot.
        log: the batches of the log from `snapshot_end` on, up to the first torn one.
        torn_at: the file and the byte where the log is read no further, though bytes follow; None: it was read to its
            end.
        only_voter: the only voter of the quorum; None if snapshot, log or `quorum-state` name others, or none.
        static_voters: the ids of the voters in `controller.quorum.voters`; None if no file has them, or records name
            the voters (KIP-853), which override that config.
        dynamic_voters: the endpoints of each voter, by id, from the last of these records; None: there are none.
    """

    snapshot_id: segment_files.SnapshotId | None
    snapshot_ms: int | None
    snapshot: Sequence[MetadataBatch]
    log: Sequence[MetadataBatch]
    only_voter: int | None
    static_voters: frozenset[int] | None
    dynamic_voters: Mapping[int, tuple[Endpoint, ...]] | None
    torn_at: tuple[Location, int] | None = None

    @property
    def snapshot_end(self) -> int:
        """The snapshot covers all offsets below this one; 0: there is no snapshot."""
        return 0 if self.snapshot_id is None else self.snapshot_id.end_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.log[-1].last_offset + 1 if self.log else self.snapshot_end

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record. The copy with the largest (epoch, end offset) is the newest of a quorum."""
        if self.log:
            return self.log[-1].epoch
        return 0 if self.snapshot_id is None else self.snapshot_id.epoch


def ensure_whole_snapshot(path: Location) -> None:
    """Read a snapshot of the cluster's metadata (KRaft) from its header to its footer."""
    _Copy(path.parent, lambda _: False).read_snapshot(path)


def newest_ms(directory: Location) -> int | None:
    """When a node's copy of the cluster's metadata was last written to, in ms since the epoch; None in an object store.
    A controller writes every half second, so a copy is as new as its log dir.
    """
    if not isinstance(directory, Path):
        return None
    times = []
    for file in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a node that runs removes old files
            times.append(file.stat().st_mtime_ns // NS_PER_MS)
    return max(times, default=None)


def whole_batches_of_torn(path: Location) -> int | None:
    """How many whole batches a snapshot has that may end anywhere: a node reads these, and looks for no footer
    (`RecordsIterator`). None if it ends over the file: over a damaged batch, or over 1 to 16 bytes, of which
    `MemoryRecords.firstBatchSize` is null.
    """
    with contextlib.closing(LogFile(str(path))) as log, contextlib.suppress(MalformedRecordsError):
        if log.size == 0 or log.size >= layouts.HEADER_SIZE_UP_TO_MAGIC:
            are_valid = [is_crc_valid(log, batch) for batch in batches(log)]
            return len(are_valid) if all(are_valid) else None
    return None


def names_voters(directory: Location, left_out: Location, *, left_out_counts: bool) -> bool:
    """Whether the records of a copy, without one of its snapshots, name the quorum's voters (KIP-853).
    `left_out_counts`: the whole batches of that snapshot may name them, too.
    """
    copy = _Copy(directory, lambda _: False, left_out.name)
    if left_out_counts:
        with contextlib.suppress(ClusterMetadataError):
            copy.read_snapshot(left_out)
    with contextlib.suppress(ClusterMetadataError):
        copy.read()
    return copy.dynamic_voters is not None


def read_replica(directory: Location, wanted: Wanted, *, left_out: str | None = None) -> MetadataReplica:
    """Read a copy.

    Args:
        directory: `__cluster_metadata-0`. A node may be writing to it.
        left_out: the name of a file that is ignored.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return _Copy(directory, wanted, left_out).read()
    return _Copy(directory, wanted, left_out).read()


@dataclass(slots=True)
class _Copy:
    directory: Location
    wanted: Wanted
    left_out: str | None = None
    voters: list[frozenset[int]] = field(default_factory=list)
    dynamic_voters: Mapping[int, tuple[Endpoint, ...]] | None = None
    read_to: int = 0
    torn_at: tuple[Location, int] | None = None

    def read(self) -> MetadataReplica:
        files = {name: path for name, path in files_in(self.directory).items() if name != self.left_out}
        latest = max(filter(None, map(segment_files.parse_kraft_snapshot, files)), default=None)
        if latest is None and all(segment_files.parse_segment_log(name) is None for name in files):
            raise ClusterMetadataError(
                f"{self.directory}: neither a .log nor a snapshot is in it; expected {METADATA_DIRECTORY}, or a log "
                "dir that has it"
            )
        snapshot: list[MetadataBatch] = []
        snapshot_ms = None
        if latest is not None:
            snapshot, snapshot_ms = self.read_snapshot(files[segment_files.kraft_snapshot_file(latest)])
        start = 0 if latest is None else latest.end_offset
        log = list(self._log(files, start))
        if not self.voters and QUORUM_STATE in files:
            self._add_voters(_quorum_state(files[QUORUM_STATE]), "currentVoters")
        has_one_voter = len(set(self.voters)) == 1 and len(self.voters[0]) == 1
        only_voter = min(self.voters[0]) if has_one_voter else None
        static = None if self.dynamic_voters is not None or not self.voters else self.voters[-1]
        return MetadataReplica(
            latest, snapshot_ms, snapshot, log, only_voter, static, self.dynamic_voters, self.torn_at
        )

    def read_snapshot(self, path: Location) -> tuple[list[MetadataBatch], int]:
        """The batches of a snapshot, and the timestamp of the last record that it covers."""
        metadata_batches: list[MetadataBatch] = []
        timestamp_ms, is_complete = None, False
        with contextlib.closing(LogFile(str(path))) as log:
            for batch, controls in self._whole_batches(path, log, 0):
                for name, fields in controls:
                    if name == _HEADER:
                        timestamp_ms = int(fields["lastContainedLogTimestamp"])
                    is_complete = name == _FOOTER
                metadata_batches.append(batch)
        if timestamp_ms is None or not is_complete:
            raise ClusterMetadataError(
                f"{path}: no whole snapshot, expected one from its header to its footer; copy the directory again"
            )
        return metadata_batches, timestamp_ms

    def _log(self, files: Mapping[str, Location], start: int) -> Iterator[MetadataBatch]:
        """The batches of the log from an offset on."""
        bases = sorted(base for name in files if (base := segment_files.parse_segment_log(name)) is not None)
        if bases and bases[0] > start:
            before = "there is no snapshot" if start == 0 else f"the latest snapshot ends at {start}"
            raise ClusterMetadataError(
                f"{self.directory}: its log begins at offset {bases[0]}, and {before}; copy the directory again"
            )
        end = start
        for base, next_base in zip_longest(bases, bases[1:]):
            if next_base is not None and next_base <= start:
                continue
            if base > end:  # the segment before ended in a torn batch
                return
            self.torn_at = None  # what follows the batches of the segment before is room that was preallocated
            path = files[segment_files.segment_file(base, segment_files.LOG_SUFFIX)]
            with contextlib.closing(LogFile(str(path))) as log:
                begin = _position_of(log, start) if base < start else 0
                for batch, _ in self._whole_batches(path, log, begin, is_log=True):
                    if batch.last_offset >= end:
                        yield batch
                        end = batch.last_offset + 1
                if self.read_to < log.size:
                    self.torn_at = path, self.read_to

    def _whole_batches(
        self, path: Location, log: LogBytes, position: int, *, is_log: bool = False
    ) -> Iterator[tuple[MetadataBatch, _Controls]]:
        """The batches from a position up to the first torn one, each with its control records by name."""
        self.read_to, log = position, ReadAhead(log)
        try:
            for batch in _sound_batches(log, position, is_log=is_log):
                if isinstance(batch, MetadataBatch):
                    self.read_to += _IDLE_BYTES
                    yield batch, ()
                    continue
                self.read_to = batch.next_position
                controls: list[tuple[str, Mapping[str, Any]]] = []
                data: list[Record] = []
                for record in records(log, batch):
                    if not batch.is_control:
                        data += [record] if self.wanted(record) else []
                    elif (control := read_control_record(record)).name is not None and control.fields is not None:
                        controls.append((control.name, control.fields))
                for name, fields in controls:
                    if name in _WITH_VOTERS:
                        self._add_voters(fields, "voters")
                    if name == _VOTERS:
                        self.dynamic_voters = {
                            voter["voterId"]: endpoints_of(voter["endpoints"]) for voter in fields["voters"]
                        }
                epoch = batch.partition_leader_epoch
                yield MetadataBatch(batch.last_offset, epoch, batch.max_timestamp, data), controls
        except (MalformedError, MalformedRecordsError) as error:
            raise ClusterMetadataError(f"{path}: {error}; copy the directory again") from error

    def _add_voters(self, fields: Mapping[str, Any], name: str) -> None:
        self.voters.append(frozenset(voter["voterId"] for voter in fields.get(name, ())))


def _sound_batches(log: LogBytes, position: int, *, is_log: bool) -> Iterator[BatchHeader | MetadataBatch]:
    """The batches from a position up to the first torn one; those of an idle cluster as `_idle_batch` reads them."""
    is_idle = True
    while is_idle:
        while (idle := _idle_batch(log, position)) is not None:
            position += _IDLE_BYTES
            yield idle
        is_idle, following = False, batches(log, position)
        for batch in _up_to_damage(following) if is_log else following:
            if not is_crc_valid(log, batch):
                return
            yield batch
            position = batch.next_position
            if is_idle := log.read(position + layouts.BATCH_V2_BYTES_MIN, len(_NO_OP)) == _NO_OP:
                break


def _idle_batch(log: LogBytes, position: int) -> MetadataBatch | None:
    """The whole batch at a position, if a `NoOpRecord` is all that it has. An idle cluster writes hardly any others.
    An image only needs to know how far they go, which takes a fifth of the time of reading their records.
    """
    content = log.read(position, _IDLE_BYTES)
    if content[layouts.BATCH_V2_BYTES_MIN :] != _NO_OP:
        return None
    header = _BATCH_V2.unpack_from(content)
    offset, length, epoch, magic, crc, attributes, offset_delta, _, timestamp_ms, *_, count = header
    is_size_right = length + layouts.LOG_OVERHEAD == _IDLE_BYTES
    is_idle = is_size_right and (magic, attributes, offset_delta, count) == (layouts.MAGIC_V2, 0, 0, 1)
    if not is_idle or crc != crc32c(content[layouts.V2_ATTRIBUTES_AT :]):
        return None
    return MetadataBatch(offset, epoch, timestamp_ms, ())


def _up_to_damage(log_batches: Iterator[BatchHeader]) -> Iterator[BatchHeader]:
    """The batches before the first malformed bytes, such as zeros after a power cut. A node truncates the log there at
    its next start, because it always recovers the metadata's log (`LogSegment.recover`).
    """
    with contextlib.suppress(MalformedRecordsError):
        yield from log_batches


def _position_of(log: LogBytes, offset: int) -> int:
    """Where the first batch begins that reaches an offset; the log's size if all batches end below it."""
    from kidxlib.records.header_search import SearchOutcome, new_walks, step_to_offsets, walk  # compiled loops

    walks = new_walks(np.array([offset], np.int64), np.array([0], np.int64))
    walk(log, walks, step_to_offsets)
    return int(walks["position"][0]) if walks["outcome"][0] == SearchOutcome.FOUND else log.size


def _quorum_state(path: Location) -> Mapping[str, Any]:
    try:
        state = json.loads(small_file(path))
    except ValueError as error:
        raise ClusterMetadataError(f"{path}: no JSON: {error}; copy it again") from error
    if not isinstance(state, dict):
        raise ClusterMetadataError(f"{path}: {quoted(state)}; expected an object, as a node writes it")
    voters = state.get("currentVoters", [])
    if not isinstance(voters, list) or not all(isinstance(voter, dict) and "voterId" in voter for voter in voters):
        raise ClusterMetadataError(f"{path}: currentVoters is {quoted(voters)}; expected objects with voterId")
    return state
