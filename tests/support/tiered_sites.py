"""A bucket of remote segments with the log dir of their metadata, and damages of both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import LOG_START_OFFSET_CHECKPOINT, offset_checkpoint
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.remote.layout import (
    AIVEN,
    EPOCHS_SUFFIX,
    INDEXES_SUFFIX,
    MANIFEST_SUFFIX,
    PARTS,
    STORAGE_DIRECTORY,
    list_bucket_partitions,
    object_name,
)
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC, MetadataTopicPartition, metadata_partitions
from kidxlib.log.remote.segments import fold_remote_segments
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.messages.typed_records import REMOTE_LOG_METADATA, FramedMessage, read_framed
from kidxlib.records.batch_headers import batches
from kidxlib.records.reader import records
from kidxlib.storage.opened_log import LogFile
from tests.docs.pages import PROJECT
from tests.support.files import flip
from tests.support.tiered import copied, update, write_metadata

_HOUR_MS: Final = 60 * 60 * 1000
_NEW_ID: Final = "kidx-" * 4 + "nA"
_STARTED, _DELETED = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED


@dataclass(frozen=True, slots=True)
class Site:
    bucket: Path
    log_dir: Path

    def copy(self, directory: Path) -> Site:
        """A copy with all modification times."""
        return Site(
            Path(shutil.copytree(self.bucket, directory / "bucket")),
            Path(shutil.copytree(self.log_dir, directory / "log-dir")),
        )

    def segments(self, topic: str, partition: int = 0) -> list[RemoteSegment]:
        """The copied segments of a partition, in the order of their offsets."""
        rows = [
            (number, row)
            for number, metadata in metadata_partitions([self.log_dir]).items()
            for row in fold_remote_segments(metadata.records()).segments.to_pylist()
        ]
        directories = {name: Path(place) for name, place in list_bucket_partitions(self.bucket).items()}
        return [
            RemoteSegment(self, number, name, directories[name], row)
            for number, row in rows
            for name in [TopicIdPartition(row["topic_id"], row["topic"], row["partition"])]
            if (name.topic, name.partition) == (topic, partition)
        ]

    def last_ms(self) -> int:
        partitions = metadata_partitions([self.log_dir]).values()
        times = [fold_remote_segments(metadata.records()).last_ms for metadata in partitions]
        return max(last_ms for last_ms in times if last_ms is not None)


#: What a broker has uploaded, and its log dir.
SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A remote segment of a site, and the metadata partition that has it; `row` is one of `REMOTE_METADATA`."""

    site: Site
    metadata: int
    partition: TopicIdPartition
    directory: Path
    row: dict[str, Any]

    @property
    def id(self) -> str:
        segment_id: str = self.row["segment_id"]
        return segment_id

    @property
    def offsets(self) -> tuple[int, int]:
        return self.row["start_offset"], self.row["end_offset"]

    def object(self, suffix: str) -> Path:
        return self.directory / object_name(self.row["start_offset"], self.id, suffix)

    def objects(self) -> dict[str, Path]:
        return {suffix: path for suffix in PARTS if (path := self.object(suffix)).exists()}

    def remove(self) -> None:
        for path in self.objects().values():
            path.unlink()

    def copy_objects(self, segment_id: str, start_offset: int) -> None:
        """Copy the objects but the transaction index to another name, with all modification times."""
        for suffix, path in self.objects().items():
            if suffix != TRANSACTION_INDEX_SUFFIX:
                shutil.copy2(path, self.directory / object_name(start_offset, segment_id, suffix))

    def edit(self, suffix: str, layout: np.dtype[Any], change: Callable[[NDArray[Any]], None]) -> None:
        entries = np.fromfile(self.object(suffix), layout)
        change(entries)
        entries.tofile(self.object(suffix))

    def change(self, **values: Any) -> None:
        """Change values in the segment's first record of the metadata."""
        self._rewrite(
            lambda message: (
                [FramedMessage(message.message, message.version, message.values | values)]
                if "startOffset" in message.values
                else [message]
            )
        )

    def never_finished(self, at_ms: int) -> None:
        """Change the metadata so that the segment's copying began at a time and has not ended."""
        self.change(eventTimestampMs=at_ms)
        self._rewrite(lambda message: [message] if "startOffset" in message.values else [])

    def append(self, messages: Iterable[FramedMessage]) -> None:
        metadata = metadata_partitions([self.site.log_dir])[self.metadata]
        write_metadata(self.site.log_dir, self.metadata, [*_messages(metadata), *messages])

    def update(self, *states: SegmentState, at_ms: int) -> None:
        """Append new states of the segment to the metadata."""
        self.append([update(self.partition, self.id, state, at_ms) for state in states])

    def _rewrite(self, change: Callable[[FramedMessage], list[FramedMessage]]) -> None:
        metadata = metadata_partitions([self.site.log_dir])[self.metadata]
        messages: list[FramedMessage] = []
        for message in _messages(metadata):
            is_own = message.values["remoteLogSegmentId"]["id"] == self.id
            messages += change(message) if is_own else [message]
        write_metadata(self.site.log_dir, self.metadata, messages)


def _messages(metadata: object) -> Iterator[FramedMessage]:
    assert isinstance(metadata, MetadataTopicPartition)
    for path in metadata.logs.values():
        log = LogFile(str(path))
        for batch in batches(log):
            for record in records(log, batch):
                yield read_framed(record.value, REMOTE_LOG_METADATA)
        log.close()


#: The indexes of a manifest, in the order in which Aiven's plugin writes them.
_INDEXES: Final = {
    "offset": OFFSET_INDEX_SUFFIX,
    "timestamp": TIME_INDEX_SUFFIX,
    "producerSnapshot": SNAPSHOT_SUFFIX,
    "leaderEpoch": EPOCHS_SUFFIX,
    "transaction": TRANSACTION_INDEX_SUFFIX,
}


def as_by_aivens_plugin(segments: Iterable[RemoteSegment], bucket: Path) -> None:
    """Put segments into a bucket as Aiven's plugin would have named and packed them."""
    for segment in segments:
        directory = bucket / AIVEN.partition_path(segment.partition)
        directory.mkdir(parents=True, exist_ok=True)
        objects = segment.objects()

        def path(suffix: str, of: RemoteSegment = segment, within: Path = directory) -> Path:
            return within / object_name(of.offsets[0], of.id, suffix)

        shutil.copy2(objects[LOG_SUFFIX], path(LOG_SUFFIX))
        positions: dict[str, Any] = {}
        content = b""
        for name, suffix in _INDEXES.items():
            part = objects[suffix].read_bytes() if suffix in objects else None
            positions[name] = None if part is None else {"position": len(content), "size": len(part)}
            content += part or b""
        path(INDEXES_SUFFIX).write_bytes(content)
        path(MANIFEST_SUFFIX).write_text(json.dumps(_manifest(segment, positions)))


def _manifest(segment: RemoteSegment, positions: dict[str, Any]) -> dict[str, Any]:
    row = segment.row
    return {
        "version": "1",
        "chunkIndex": {"type": "fixed", "originalFileSize": row["log_bytes"]},
        "segmentIndexes": positions,
        "compression": False,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": segment.partition.topic_id,
                    "topicPartition": {"topic": segment.partition.topic, "partition": segment.partition.partition},
                },
                "id": segment.id,
            },
            "startOffset": row["start_offset"],
            "endOffset": row["end_offset"],
            "maxTimestampMs": row["max_timestamp_ms"],
            "segmentLeaderEpochs": {str(each["epoch"]): each["start_offset"] for each in row["leader_epochs"]},
        },
    }


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage of a site.

    Attributes:
        plant: damages the site.
        found: the object and the reason of the only finding of an audit at this level.
    """

    plant: Callable[[Site], None]
    found: tuple[str, str]
    level: str = "listing"


def damages(plain: str, transactions: str) -> dict[str, Damage]:
    """Damages by name, of a site with some segments of a topic without transactions, and of a topic with aborted
    transactions in segments.
    """

    def aborted(site: Site) -> RemoteSegment:
        segments = site.segments(transactions)
        return next(segment for segment in segments if TRANSACTION_INDEX_SUFFIX in segment.objects())

    def middle(site: Site) -> RemoteSegment:
        segments = site.segments(plain)
        return segments[len(segments) // 2]

    def last(site: Site) -> RemoteSegment:
        return site.segments(plain)[-1]

    return {
        "transaction index missing": Damage(
            lambda site: aborted(site).object(TRANSACTION_INDEX_SUFFIX).unlink(), (TRANSACTION_INDEX_SUFFIX, "missing")
        ),
        **_of_missing(middle),
        **_of_listing(aborted, middle),
        **_of_metadata(middle, last),
        **_of_indexes(aborted, middle),
        **_of_logs(aborted, middle, last),
    }


_Choose = Callable[[Site], RemoteSegment]


def _of_missing(middle: _Choose) -> dict[str, Damage]:
    def of(suffix: str) -> Damage:
        return Damage(lambda site: middle(site).object(suffix).unlink(), (suffix, "missing"))

    suffixes = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, EPOCHS_SUFFIX)
    return {
        **{f"{suffix} missing": of(suffix) for suffix in suffixes},
        "all objects of a segment missing": Damage(lambda site: middle(site).remove(), ("objects", "missing")),
    }


def _of_listing(aborted: _Choose, middle: _Choose) -> dict[str, Damage]:
    def cut(path: Path, size: int) -> None:
        path.write_bytes(path.read_bytes()[:size])

    return {
        "transaction index empty": Damage(
            lambda site: cut(aborted(site).object(TRANSACTION_INDEX_SUFFIX), 0), (TRANSACTION_INDEX_SUFFIX, "empty")
        ),
        "transaction index that nobody asks for": Damage(
            lambda site: aborted(site).change(txnIndexEmpty=True), (TRANSACTION_INDEX_SUFFIX, "never-asked-for")
        ),
        "log cut": Damage(lambda site: cut(middle(site).object(LOG_SUFFIX), -1), (LOG_SUFFIX, "wrong-size")),
        "part of an entry": Damage(
            lambda site: cut(middle(site).object(OFFSET_INDEX_SUFFIX), -3), (OFFSET_INDEX_SUFFIX, "fails-sanity-check")
        ),
        "objects that nobody knows": Damage(
            lambda site: middle(site).copy_objects(_NEW_ID, middle(site).offsets[0]), ("objects", "orphan")
        ),
        "objects left after the segment was deleted": Damage(
            lambda site: site.segments(middle(site).partition.topic)[0].update(
                _STARTED, _DELETED, at_ms=site.last_ms()
            ),
            ("objects", "left-after-delete"),
        ),
    }


def _of_metadata(middle: _Choose, last: _Choose) -> dict[str, Damage]:
    def lose(site: Site) -> None:
        middle(site).update(_STARTED, _DELETED, at_ms=site.last_ms())
        middle(site).remove()

    def copy_again(site: Site, start_offset: int) -> None:
        segment = middle(site)
        log_bytes = segment.object(LOG_SUFFIX).stat().st_size
        segment.copy_objects(_NEW_ID, start_offset)
        epochs = {segment.row["leader_epochs"][-1]["epoch"]: start_offset}
        offsets, at_ms = (start_offset, segment.offsets[1]), site.last_ms()
        again = copied(segment.partition, _NEW_ID, offsets, epochs=epochs, log_bytes=log_bytes, at_ms=at_ms)
        segment.append(again)

    def copy_once_more(site: Site) -> None:
        segment = last(site)
        segment.copy_objects(_NEW_ID, segment.offsets[0])
        epochs = {epoch["epoch"]: epoch["start_offset"] for epoch in segment.row["leader_epochs"]}
        log_bytes, at_ms = segment.row["log_bytes"], site.last_ms()
        largest = segment.row["max_timestamp_ms"]
        segment.append(
            copied(
                segment.partition,
                _NEW_ID,
                segment.offsets,
                epochs=epochs,
                log_bytes=log_bytes,
                at_ms=at_ms,
                max_timestamp_ms=largest,
            )
        )
        segment.never_finished(site.last_ms() - 2 * _HOUR_MS)

    def expire_first_record(site: Site) -> None:
        partition = TopicPartition(REMOTE_LOG_METADATA_TOPIC, last(site).metadata)
        (site.log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({partition: 1}))

    return {
        "metadata below its log start": Damage(expire_first_record, ("metadata", "metadata-expired")),
        "copy not finished, and made again": Damage(copy_once_more, ("metadata", "copy-not-finished")),
        "copy not finished": Damage(
            lambda site: last(site).never_finished(site.last_ms() - 2 * _HOUR_MS), ("metadata", "stalled")
        ),
        "deletion not finished": Damage(
            lambda site: site.segments(middle(site).partition.topic)[0].update(
                _STARTED, at_ms=site.last_ms() - 2 * _HOUR_MS
            ),
            ("metadata", "delete-not-finished"),
        ),
        "gap": Damage(lose, ("metadata", "gap")),
        "overlap": Damage(lambda site: copy_again(site, middle(site).offsets[0] + 1), ("metadata", "overlap")),
        "segment that another replaces": Damage(
            lambda site: copy_again(site, middle(site).offsets[0]), ("metadata", "unreferenced")
        ),
    }


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _of_indexes(aborted: _Choose, middle: _Choose) -> dict[str, Damage]:
    def of_another(site: Site) -> None:
        segments = site.segments(aborted(site).partition.topic)
        indexed = [segment for segment in segments if not segment.row["transaction_index_empty"]]
        shutil.copyfile(indexed[-1].object(TRANSACTION_INDEX_SUFFIX), indexed[0].object(TRANSACTION_INDEX_SUFFIX))

    def taken(suffix: str, of: _Choose, to: _Choose) -> Callable[[Site], None]:
        def take(site: Site) -> None:
            shutil.copyfile(of(site).object(suffix), to(site).object(suffix))

        return take

    def outside(entries: NDArray[Any]) -> None:
        entries["position"] += 1_000_000

    def by_size(site: Site) -> list[RemoteSegment]:
        return sorted(
            site.segments(middle(site).partition.topic), key=lambda segment: segment.object(LOG_SUFFIX).stat().st_size
        )

    # The two that differ most: for segments of similar sizes, the index of one may be right for the other.
    shorter, longer = lambda site: by_size(site)[0], lambda site: by_size(site)[-1]

    return {
        "offset index of a longer segment": Damage(
            taken(OFFSET_INDEX_SUFFIX, longer, shorter), (OFFSET_INDEX_SUFFIX, "outside-segment"), "indexes"
        ),
        "time index of a longer segment": Damage(
            taken(TIME_INDEX_SUFFIX, longer, shorter), (TIME_INDEX_SUFFIX, "outside-segment"), "indexes"
        ),
        "offset index of a shorter segment": Damage(
            taken(OFFSET_INDEX_SUFFIX, shorter, longer), (OFFSET_INDEX_SUFFIX, "disagrees-with-time-index"), "indexes"
        ),
        "transaction index of another segment": Damage(
            of_another, (TRANSACTION_INDEX_SUFFIX, "outside-segment"), "indexes"
        ),
        "index into nothing": Damage(
            lambda site: middle(site).edit(OFFSET_INDEX_SUFFIX, layouts.OFFSET_INDEX_ENTRY, outside),
            (OFFSET_INDEX_SUFFIX, "outside-log"),
            "indexes",
        ),
        "snapshot damaged": Damage(
            lambda site: flip(middle(site).object(SNAPSHOT_SUFFIX), -1), (SNAPSHOT_SUFFIX, "unreadable"), "indexes"
        ),
        "epochs of another log": Damage(
            lambda site: _write(middle(site).object(EPOCHS_SUFFIX), "0\n1\n7 0\n"),
            (EPOCHS_SUFFIX, "wrong-epochs"),
            "indexes",
        ),
        "largest timestamp in doubt": Damage(
            lambda site: middle(site).change(maxTimestampMs=middle(site).row["max_timestamp_ms"] - 5),
            ("metadata", "timestamps-disagree"),
            "indexes",
        ),
    }


def all_as_last(entries: NDArray[Any]) -> None:
    entries["relative_offset"] = entries["relative_offset"][-1]


def _of_logs(aborted: _Choose, middle: _Choose, last: _Choose) -> dict[str, Damage]:
    def not_told(site: Site) -> None:
        segment = aborted(site)
        segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
        segment.change(txnIndexEmpty=True)

    def one_on(name: str) -> Callable[[NDArray[Any]], None]:
        def change(entries: NDArray[Any]) -> None:
            entries[name] += 1

        return change

    def sparser(site: Site) -> None:
        path = middle(site).object(OFFSET_INDEX_SUFFIX)
        path.write_bytes(path.read_bytes()[: layouts.OFFSET_INDEX_ENTRY.itemsize])

    return {
        "aborted transactions that the metadata denies": Damage(
            not_told, (TRANSACTION_INDEX_SUFFIX, "not-in-metadata"), "full"
        ),
        "transaction index wrong": Damage(
            lambda site: aborted(site).edit(
                TRANSACTION_INDEX_SUFFIX, layouts.ABORTED_TRANSACTION, one_on("first_offset")
            ),
            (TRANSACTION_INDEX_SUFFIX, "wrong-transaction"),
            "full",
        ),
        "index wrong": Damage(
            lambda site: middle(site).edit(OFFSET_INDEX_SUFFIX, layouts.OFFSET_INDEX_ENTRY, one_on("position")),
            (OFFSET_INDEX_SUFFIX, "misses-batches"),
            "full",
        ),
        "index sparser": Damage(sparser, (OFFSET_INDEX_SUFFIX, "other-spacing"), "full"),
        "time index wrong": Damage(
            lambda site: middle(site).edit(TIME_INDEX_SUFFIX, layouts.TIME_INDEX_ENTRY, all_as_last),
            (TIME_INDEX_SUFFIX, "misses-records"),
            "full",
        ),
        "log damaged": Damage(
            lambda site: flip(middle(site).object(LOG_SUFFIX), -1), (LOG_SUFFIX, "crc-mismatch"), "full"
        ),
        "last offset wrong": Damage(
            lambda site: last(site).change(endOffset=last(site).offsets[1] - 1),
            ("metadata", "wrong-end-offset"),
            "full",
        ),
        "largest timestamp wrong": Damage(
            lambda site: middle(site).change(maxTimestampMs=middle(site).row["max_timestamp_ms"] - 5),
            ("metadata", "wrong-largest-timestamp"),
            "full",
        ),
    }
