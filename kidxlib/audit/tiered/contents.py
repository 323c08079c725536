"""The bytes of a remote segment's parts, wherever a layout has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kidxlib.audit.finding import Finding
from kidxlib.audit.tiered.finding import broken, safe
from kidxlib.audit.tiered.segment import RemoteSegmentToRead
from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.log.remote.aiven_layout import INDEXES_SUFFIX, MANIFEST_SUFFIX, Manifest, read_manifest
from kidxlib.log.remote.layout import PARTS

#: The bytes of a part, or why it cannot be read.
Content: TypeAlias = bytes | OSError


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read of a segment.

    Attributes:
        parts: the bytes of each part but the log, by suffix; one that is there no longer is left out.
        findings: on objects that hold several parts, or say where they are.
        has_log: its log object holds the bytes that the broker had.
    """

    parts: Mapping[str, Content]
    findings: list[Finding] = field(default_factory=list)
    has_log: bool = True

    def part(self, suffix: str) -> bytes | None:
        """The bytes of a part; None where there are none, or they cannot be read."""
        found = self.parts.get(suffix)
        return found if isinstance(found, bytes) else None


def read_contents(segment: RemoteSegmentToRead) -> Contents:
    """Read all parts of a segment but its log."""
    if segment.layout.has_single_files:
        found = ((suffix, _read(segment, suffix)) for suffix in PARTS if suffix != LOG_SUFFIX)
        return Contents({suffix: content for suffix, content in found if content is not None})
    manifest, indexes = _read(segment, MANIFEST_SUFFIX), _read(segment, INDEXES_SUFFIX)
    if manifest is None:
        return Contents({}, has_log=False)
    if isinstance(manifest, OSError):
        return Contents({}, [_unreadable(MANIFEST_SUFFIX, str(manifest))], has_log=False)
    try:
        known = read_manifest(manifest)
    except RemoteLogMetadataError as error:
        return Contents({}, [_unreadable(MANIFEST_SUFFIX, str(error))], has_log=False)
    findings = list(_of_manifest(segment, known))
    if isinstance(indexes, OSError):
        findings.append(_unreadable(INDEXES_SUFFIX, str(indexes)))
    if not isinstance(indexes, bytes) or not known.is_plain:
        return Contents({}, findings, has_log=known.is_plain)
    end = max((position + size for position, size in known.indexes.values()), default=0)
    if end != len(indexes):
        detail = f"{len(indexes):,} bytes, the manifest says {end:,}"
        why = segment.in_words("fetches of offsets {start} to {end} fail, or get what another index says")
        findings.append(broken(INDEXES_SUFFIX, "wrong-size", detail, why))
        return Contents({}, findings)
    parts = {suffix: indexes[position : position + size] for suffix, (position, size) in known.indexes.items()}
    return Contents(parts, findings)


def _read(segment: RemoteSegmentToRead, suffix: str) -> Content | None:
    path = segment.path(suffix)
    if path is None:
        return None
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None  # it has gone since it was listed
    except OSError as error:
        return error


def _of_manifest(segment: RemoteSegmentToRead, manifest: Manifest) -> Iterator[Finding]:
    words = {"compressed": manifest.is_compressed, "encrypted": manifest.is_encrypted}
    if how := " and ".join(word for word, is_so in words.items() if is_so):
        yield safe(
            MANIFEST_SUFFIX, "not-read", f"the objects are {how}", "what is in its log and indexes was not checked"
        )
    said = {
        "start offset": (manifest.start_offset, segment.start_offset),
        "end offset": (manifest.end_offset, segment.end_offset),
        "largest timestamp": (manifest.max_timestamp_ms, segment.max_timestamp_ms),
        "size of the log": (manifest.log_bytes, segment.log_bytes),
        "leader epochs": (manifest.leader_epochs, segment.leader_epochs),
    }
    differ = [f"{name} {of_manifest}, not {ours}" for name, (of_manifest, ours) in said.items() if of_manifest != ours]
    if differ:
        detail = f"it says {differ[0]} as the metadata does"
        why = "one of the two is wrong: the plugin goes by the manifest, brokers by the metadata"
        yield broken(MANIFEST_SUFFIX, "disagrees", detail, why)


def _unreadable(suffix: str, detail: str) -> Finding:
    return broken(suffix, "unreadable", detail, "the plugin cannot read the segment, and what is in it was not checked")
