"""Where a restored cluster's metadata goes: the file from which the first active controller takes the records of a new
cluster. `kafka-storage format` writes it, with the feature levels in it; a restore writes the same file with more
records.

Up to Kafka 4.3 it is `bootstrap.checkpoint`, beside which a dynamic quorum has its voters in the first snapshot of
`__cluster_metadata-0`; from 4.4 on (KIP-1170) it is that snapshot. Once the metadata log has records, Kafka reads
neither. Formatting is left to Kafka's own tool: so the target's ids, its voters, and the levels that this release
supports are Kafka's word.

Sources: `Formatter.doFormat`, `BatchFileWriter`, `RecordsSnapshotWriter`; the readers are `BootstrapMetadata`,
`QuorumController.handleLoadBootstrap`, `ActivationRecordsGenerator.recordsForEmptyLog`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.errors import (
    CheckpointError,
    MalformedError,
    MalformedRecordsError,
    PublishError,
    UnreadableMessageError,
    UsageError,
)
from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, SnapshotId, kraft_snapshot_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, read_framed, write_framed
from kidxlib.records.batch_headers import Batch, batches, is_crc_valid
from kidxlib.records.batch_writer import moved_to, write_batch
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import records
from kidxlib.storage.location import Directory
from kidxlib.storage.log_dir import MetaProperties, read_meta_properties, small_file
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.publisher import Owner, Published, publish_if

#: `Snapshots.BOOTSTRAP_SNAPSHOT_ID`.
_FIRST_SNAPSHOT: Final = kraft_snapshot_file(SnapshotId(0, 0))
#: What `kafka-storage format` writes: the levels, and the users of `--add-scram`.
_RECORDS_WRITTEN_BY_FORMAT: Final = frozenset({"FeatureLevelRecord", "UserScramCredentialRecord"})
#: No larger than Kafka writes or reads (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`), with room for headers.
_BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
_NAME_FORMATTED_LOG_DIR: Final = "name the metadata log dir of a controller that kafka-storage format has just made"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedController:
    """A controller's metadata log dir as `kafka-storage format` leaves it.

    Attributes:
        log_dir: the metadata log dir.
        properties: what its `meta.properties` says.
        directory, name: the file with the levels.
        content: its bytes.
        header, footer: the batches of control records around the records.
        header_records: how many records the header has.
        timestamp_ms: when it was formatted, in ms since the epoch.
        records: its records.
        voters: the ids of the first controllers of a dynamic quorum, with the ids of their log dirs; None: the quorum
            is static, and `controller.quorum.voters` has them.
    """

    log_dir: Path
    properties: MetaProperties
    directory: Directory
    name: str
    content: bytes
    header: bytes
    header_records: int
    footer: bytes
    timestamp_ms: int
    records: tuple[FramedMessage, ...]
    voters: Mapping[int, str] | None

    @property
    def path(self) -> Path:
        return Path(str(self.directory)) / self.name

    @property
    def features(self) -> dict[str, int]:
        """The levels by name."""
        levels = (record.values for record in self.records if record.message.name == "FeatureLevelRecord")
        return {values["name"]: values["featureLevel"] for values in levels}

    def has_changed(self) -> bool:
        """Whether the file is another one by now than was read."""
        return self.path.read_bytes() != self.content

    def content_with(self, restored: Sequence[FramedMessage]) -> bytes:
        """The file with other records."""
        content, offset = self.header, self.header_records
        for values in _batches_of_records(map(write_framed, restored)):
            content += write_batch(values, base_offset=offset, leader_epoch=0, timestamp_ms=self.timestamp_ms)
            offset += len(values)
        return content + moved_to(self.footer, offset)


def read_formatted(log_dir: Path) -> FormattedController:
    """Read what `kafka-storage format` has made in a controller's metadata log dir.

    Raises:
        UsageError: it is not just formatted: what was found, and what to do.
    """
    properties = _required_properties(log_dir)
    directory = log_dir / METADATA_DIRECTORY
    names = set(os.listdir(directory)) if directory.exists() else set()
    if others := sorted(names - {_FIRST_SNAPSHOT}):
        raise UsageError(
            f"{directory}: a metadata log is in it ({others[0]}), so that a node has run here, and would not read what "
            f"is restored; {_NAME_FORMATTED_LOG_DIR}"
        )
    snapshot = _read_controller_file(log_dir, properties, METADATA_DIRECTORY, _FIRST_SNAPSHOT) if names else None
    bootstrap = (
        _read_controller_file(log_dir, properties, "", BOOTSTRAP_SNAPSHOT)
        if (log_dir / BOOTSTRAP_SNAPSHOT).exists()
        else None
    )
    found = [file for file in (snapshot, bootstrap) if file is not None and file.records]
    if len(found) == 2:
        raise UsageError(
            f"{log_dir}: records are in both {BOOTSTRAP_SNAPSHOT} and {METADATA_DIRECTORY}/{_FIRST_SNAPSHOT}, as after "
            f"formatting with two releases; {_NAME_FORMATTED_LOG_DIR}"
        )
    if not found:
        raise UsageError(
            f"{log_dir}: no feature levels in it; {_NAME_FORMATTED_LOG_DIR}, and not with --no-initial-controllers"
        )
    (file,) = found
    if more := [record for record in file.records if record.message.name not in _RECORDS_WRITTEN_BY_FORMAT]:
        raise UsageError(
            f"{file.path}: it holds {more[0].message.name} already: if a restore into it is done, start the node; to "
            "restore again, name a directory that kafka-storage format has just made"
        )
    if METADATA_VERSION not in file.features:
        raise UsageError(f"{file.path}: no {METADATA_VERSION} in it; {_NAME_FORMATTED_LOG_DIR}")
    return file if snapshot is None else replace(file, voters=snapshot.voters)


def _required_properties(log_dir: Path) -> MetaProperties:
    try:
        properties = read_meta_properties(log_dir)
    except CheckpointError as error:
        raise UsageError(f"{error}; {_NAME_FORMATTED_LOG_DIR}") from error
    if properties.cluster_id is None or properties.node_id is None:
        raise UsageError(f"{log_dir}: no meta.properties with cluster.id and node.id in it; {_NAME_FORMATTED_LOG_DIR}")
    return properties


def _read_controller_file(log_dir: Path, properties: MetaProperties, below: str, name: str) -> FormattedController:
    path = log_dir / below / name
    content = small_file(path)
    controls: list[tuple[str | None, bytes, Batch]] = []
    data: list[FramedMessage] = []
    voters: Mapping[int, str] | None = None
    try:
        with contextlib.closing(LogFile(str(path))) as log:
            for batch in batches(log):
                if not is_crc_valid(log, batch):
                    raise UsageError(
                        f"{path}: wrong checksum of the batch at byte {batch.position}; {_NAME_FORMATTED_LOG_DIR}"
                    )
                of_batch = list(records(log, batch))
                if not batch.is_control:
                    data += [read_framed(record.value, CLUSTER_METADATA) for record in of_batch]
                    continue
                read = [read_control_record(record) for record in of_batch]
                for control in read:
                    if control.name == "KRAFT_VOTERS" and control.fields is not None:
                        voters = {voter["voterId"]: voter["voterDirectoryId"] for voter in control.fields["voters"]}
                raw = content[batch.position : batch.position + batch.size]
                controls.append((read[0].name, raw, batch))
    except (MalformedError, MalformedRecordsError, UnreadableMessageError) as error:
        raise UsageError(f"{path}: {error}; {_NAME_FORMATTED_LOG_DIR}") from error
    if [control[0] for control in controls] != ["SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"]:
        raise UsageError(f"{path}: no whole file from its header to its footer; {_NAME_FORMATTED_LOG_DIR}")
    (_, header, first), (_, footer, _) = controls
    return FormattedController(
        log_dir=log_dir,
        properties=properties,
        directory=Directory(str(log_dir), below),
        name=name,
        content=content,
        header=header,
        header_records=first.records_count or 0,
        footer=footer,
        timestamp_ms=first.max_timestamp,
        records=tuple(data),
        voters=voters,
    )


def write_metadata(controllers: Iterable[FormattedController], restored: Sequence[FramedMessage]) -> list[Path]:
    """Write a restored cluster's records into each controller's file, durably.

    Returns:
        The files.

    Raises:
        PublishError: a file is no longer as it was read: a node has started, or somebody else writes.
    """
    written = []
    for controller in controllers:
        outcome = publish_if(
            controller.directory,
            controller.name,
            controller.content_with(restored),
            controller.content.__eq__,
            Owner.of(controller.path.stat()),
        )
        if outcome is Published.KEPT:
            raise PublishError(f"{controller.path}: it has changed since it was read; format the directory anew")
        written.append(controller.path)
    return written


def _batches_of_records(values: Iterable[bytes]) -> Iterable[list[bytes]]:
    """The records in batches of a bounded size."""
    batch: list[bytes] = []
    size = 0
    for value in values:
        if batch and size + len(value) > _BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(value)
        size += len(value)
    if batch:
        yield batch
