"""What `kidx build` is asked without a catalog, checked before anything is listed."""

from __future__ import annotations

from datetime import UTC, datetime

from kidxlib.errors import UsageError
from kidxlib.indexing.plan import REPAIRED_AUXILIARY_FILES, AuxiliaryFiles
from kidxlib.indexing.remote_logs import RemoteOptions
from kidxlib.indexing.source import Target, source_at
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.run.context import RunContext
from kidxlib.run.index_options import options_of_topic
from kidxlib.run.known_topics import read_known_topics
from kidxlib.run.options import MetadataOptions
from kidxlib.terminal.options.directories import ensure_no_overlap, index_dir_to_write
from kidxlib.terminal.options.sources import parse_topics


def build_request(
    directory: str,
    *,
    index_dir: str | None,
    in_place: bool,
    accept_truncated: bool,
    topics: str | None,
    interval_bytes: int | None,
    max_index_bytes: int | None,
    verify_crc: bool | None,
    snapshots: bool | None,
    epochs: bool | None,
    repair: bool,
    metadata: MetadataOptions,
    layout: str | None,
    tiered_metadata: tuple[str, ...],
) -> BuildRequest:
    """The options of the command as they were given; for those that were not, what the source's own cluster says, and
    Kafka's defaults.
    """
    if in_place and index_dir is not None:
        raise UsageError("--in-place and --index-dir: give one of them, not both")
    if not in_place and index_dir is None:
        raise UsageError("give --index-dir DIR to write there, or --in-place to write beside the segments")
    context = RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None)
    source = source_at(directory, remote=RemoteOptions(layout, tiered_metadata))
    known = read_known_topics(metadata, (source,))
    place = None if index_dir is None else index_dir_to_write("--index-dir", index_dir)
    ensure_no_overlap(place, None, (source,))
    checks = verify_crc is not False
    return BuildRequest(
        context=context,
        sources=(source,),
        target=Target(index_dir=place, by_source=False),
        publish_truncated=accept_truncated or not in_place,
        topics=parse_topics(".*" if topics is None else topics),
        interval_bytes=interval_bytes,
        max_index_bytes=max_index_bytes,
        verify_crc=checks,
        auxiliary_files=REPAIRED_AUXILIARY_FILES if repair else AuxiliaryFiles(bool(snapshots), bool(epochs)),
        rebuild=False,
        repair=repair,
        options_for=lambda partition: options_of_topic(
            known, partition, interval_bytes=interval_bytes, max_index_bytes=max_index_bytes, verify_crc=checks
        ),
        known_topics=known,
    )
