"""A remote segment whose objects are read, and the bytes of its parts, in whatever object a layout keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kidxlib.audit.finding import Finding
from kidxlib.audit.tiered.remote_finding import RemoteSegmentKey, broken_remote, safe_remote
from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.kafka_release import NodeRelease
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.log.remote.layout import (
    EPOCHS_SUFFIX,
    INDEXES_SUFFIX,
    MANIFEST_SUFFIX,
    PARTS,
    Manifest,
    ObjectLayout,
    partition_path,
    read_manifest,
)
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.location import Location

#: The objects that can be made from a log, in the order in which they are put in place.
SIDE_OBJECTS: Final = (
    *(OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX),
    EPOCHS_SUFFIX,
)

#: The bytes of a part, or why it cannot be read.
Content: TypeAlias = bytes | OSError


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentToRead:
    """A remote segment whose copying has ended.

    Attributes:
        names: the names of its objects in `directory`, by suffix.
        start_offset, end_offset, log_bytes, max_timestamp_ms, leader_epochs: by the metadata.
        has_aborted: whether transactions were aborted in it by the metadata; None: the metadata does not say.
        before: the segment that ends where this one begins, whose snapshot has the state of producers there; None if no
            segment or several end there. It has its own `before`, and that one none.
        options: the options with which its indexes are made.
        kafka: the brokers'.
        local_log: a log in a log dir with the same base offset and size, which is read in place of the object if it
            proves to be the same; None if there is none.
    """

    partition: TopicIdPartition
    layout: ObjectLayout
    directory: Location
    names: Mapping[str, str]
    segment_id: str
    start_offset: int
    end_offset: int
    log_bytes: int
    max_timestamp_ms: int
    leader_epochs: tuple[EpochEntry, ...]
    has_aborted: bool | None
    before: RemoteSegmentToRead | None
    options: RecoverOptions
    kafka: NodeRelease = field(default_factory=NodeRelease)
    local_log: Location | None = None

    @property
    def key(self) -> RemoteSegmentKey:
        return RemoteSegmentKey(start_offset=self.start_offset, segment_id=self.segment_id)

    def path(self, suffix: str) -> Location | None:
        return self.directory / self.names[suffix] if suffix in self.names else None

    def object(self, file: str) -> str | None:
        """The object that a finding on a file is about; None if it is about none or several."""
        path = self.path(file)
        return None if path is None else str(path)

    def in_words(self, text: str) -> str:
        """A text with the segment's offsets."""
        return text.format(start=self.start_offset, end=self.end_offset)


@dataclass(frozen=True, slots=True)
class SegmentsToRemake:
    """Remote segments of one partition that follow one another, and whose objects are made anew.

    Attributes:
        epochs: for each segment, the leader epochs up to its end by the metadata; None if the metadata lacks some.
    """

    segments: Sequence[RemoteSegmentToRead]
    epochs: Sequence[tuple[EpochEntry, ...] | None]

    @property
    def bytes(self) -> int:
        """How many bytes of logs are read to make the remote segments' objects anew."""
        return sum(segment.log_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """What was read of a remote segment.

    Attributes:
        parts: the bytes of each part but the log, by suffix, without those of objects that are gone by now.
        findings: findings on objects that hold several parts, or say where parts are.
        has_log: whether the log's object holds the bytes that the broker had.
    """

    parts: Mapping[str, Content]
    findings: list[Finding] = field(default_factory=list)
    has_log: bool = True

    def part(self, suffix: str) -> bytes | None:
        """The bytes of a part; None if there are none, or they cannot be read."""
        content = self.parts.get(suffix)
        return content if isinstance(content, bytes) else None


def read_contents(segment: RemoteSegmentToRead) -> SegmentContents:
    """Read all parts of a remote segment but its log."""
    if segment.layout.has_single_files:
        contents = ((suffix, _read_object(segment, suffix)) for suffix in PARTS if suffix != LOG_SUFFIX)
        return SegmentContents({suffix: content for suffix, content in contents if content is not None})
    manifest, indexes = _read_object(segment, MANIFEST_SUFFIX), _read_object(segment, INDEXES_SUFFIX)
    if manifest is None:
        return SegmentContents({}, has_log=False)
    if isinstance(manifest, OSError):
        return SegmentContents({}, [_unreadable_object(MANIFEST_SUFFIX, str(manifest))], has_log=False)
    try:
        known = read_manifest(manifest)
    except RemoteLogMetadataError as error:
        return SegmentContents({}, [_unreadable_object(MANIFEST_SUFFIX, str(error))], has_log=False)
    findings = list(_findings_on_manifest(segment, known))
    if isinstance(indexes, OSError):
        findings.append(_unreadable_object(INDEXES_SUFFIX, str(indexes)))
    if not isinstance(indexes, bytes) or not known.is_plain:
        return SegmentContents({}, findings, has_log=known.is_plain)
    end = max((position + size for position, size in known.indexes.values()), default=0)
    if end != len(indexes):
        detail = f"{len(indexes):,} bytes, the manifest says {end:,}"
        why = segment.in_words("fetches of offsets {start} to {end} fail, or get what another index says")
        findings.append(broken_remote(INDEXES_SUFFIX, "wrong-size", detail, why))
        return SegmentContents({}, findings)
    parts = {suffix: indexes[position : position + size] for suffix, (position, size) in known.indexes.items()}
    return SegmentContents(parts, findings)


def _read_object(segment: RemoteSegmentToRead, suffix: str) -> Content | None:
    path = segment.path(suffix)
    if path is None:
        return None
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None  # it has gone since it was listed
    except OSError as error:
        return error


def _findings_on_manifest(segment: RemoteSegmentToRead, manifest: Manifest) -> Iterator[Finding]:
    words = {"compressed": manifest.is_compressed, "encrypted": manifest.is_encrypted}
    if how := " and ".join(word for word, is_so in words.items() if is_so):
        yield safe_remote(
            MANIFEST_SUFFIX, "not-read", f"the objects are {how}", "what is in its log and indexes was not checked"
        )
    values = {
        "partition": (partition_path(manifest.partition), partition_path(segment.partition)),
        "segment": (manifest.segment_id, segment.segment_id),
        "start offset": (manifest.start_offset, segment.start_offset),
        "end offset": (manifest.end_offset, segment.end_offset),
        "largest timestamp": (manifest.max_timestamp_ms, segment.max_timestamp_ms),
        "size of the log": (manifest.log_bytes, segment.log_bytes),
        "leader epochs": (manifest.leader_epochs, segment.leader_epochs),
    }
    differ = [
        f"{name} {of_manifest}, not {ours}" for name, (of_manifest, ours) in values.items() if of_manifest != ours
    ]
    if differ:
        detail = f"it says {differ[0]} as the metadata does"
        why = "one of the two is wrong: the plugin goes by the manifest, brokers by the metadata"
        yield broken_remote(MANIFEST_SUFFIX, "disagrees", detail, why)


def _unreadable_object(suffix: str, detail: str) -> Finding:
    return broken_remote(
        suffix, "unreadable", detail, "the plugin cannot read the segment, and what is in it was not checked"
    )
