"""Publishes a segment's `.txnindex`, from the fold of its partition."""

from __future__ import annotations

from collections.abc import Callable

from kidxlib.build.finish.files import PartitionFiles
from kidxlib.format.segment_files import TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.recovery.partition import FoldedSegment, StateSource
from kidxlib.storage.publisher import Published


def publish_transaction_index(
    files: PartitionFiles, folded: FoldedSegment
) -> tuple[Callable[[], Published], bytes | None]:
    """Stage the transaction index of a segment.

    Returns:
        What is done, to be asked once it is committed; and the file's content afterwards, None if there is no file, or
        a broker's own stays.
    """
    name = segment_file(folded.base_offset, TRANSACTION_INDEX_SUFFIX)
    content = folded.aborted.tobytes()
    if not files.task.may_write(name):
        return lambda: Published.NONE, files.read(name)
    present = files.read_present(name, len(content) + 1)
    if present is None and not content:
        return lambda: Published.NONE, None
    is_kept = files.task.in_place and folded.base_offset not in files.task.recovered
    if is_kept and present not in (None, content) and folded.state_source is StateSource.UNKNOWN:
        return lambda: Published.KEPT, None
    return files.stage(name, content), content
