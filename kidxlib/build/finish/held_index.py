"""An offset index that waits under another name for its transaction index, and is then published or removed."""

from __future__ import annotations

from typing import Final

from kidxlib.build.finish.files import PartitionFiles
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.storage.directory import Directory
from kidxlib.storage.publisher import STAGING_PREFIX, STAGING_SUFFIX, sweep

_HELD_PREFIX: Final = f"{STAGING_PREFIX}held-"


def held_name(base_offset: int) -> str:
    """The name under which an offset index waits for its transaction index. A broker that finds an offset index
    believes the other files.
    """
    return f"{_HELD_PREFIX}{segment_file(base_offset, OFFSET_INDEX_SUFFIX)}{STAGING_SUFFIX}"


def remove_held(directory: Directory) -> None:
    """Remove the waiting offset indexes in a directory, of a run that ends before they could be published."""
    sweep(directory, 2**63 - 1, _HELD_PREFIX)


def release_held(files: PartitionFiles, base_offset: int) -> None:
    """Publish a waiting offset index, because its transaction index exists now."""
    held = held_name(base_offset)
    content = files.read(held)
    if content is not None:
        files.stage(segment_file(base_offset, OFFSET_INDEX_SUFFIX), content)
        files.superfluous.append(held)


def discard_held(files: PartitionFiles, base_offset: int) -> None:
    """Remove a waiting offset index that must never get its name."""
    files.superfluous.append(held_name(base_offset))
