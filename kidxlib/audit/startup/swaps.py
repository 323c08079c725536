"""Temporary, deleted and swap files: what a broker does with them before it loads a partition's segments.

That is `LogLoader.removeTempFilesAndCollectSwapFiles`, and the passes up to the renaming of swap files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.load_state import LoadState, LoadStopped, file_offset
from kidxlib.audit.startup.partition_files import offset_of
from kidxlib.audit.startup.simulation import Removal
from kidxlib.audit.startup.text_files import Thrown
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import segment_files

_SWAPPED_LOG_SUFFIX: Final = f"{segment_files.LOG_SUFFIX}{segment_files.SWAP_SUFFIX}"


def finish_swaps(state: LoadState) -> None:
    """Remove files that were to be deleted or are unfinished, and let swap files replace what they replace.

    Raises:
        LoadStopped: the header of a log that is swapped in is malformed.
    """
    _remove_leftovers(state)
    swaps = [name for name in sorted(state.files) if name.endswith(segment_files.SWAP_SUFFIX)]
    logs = [name.removesuffix(segment_files.SWAP_SUFFIX) for name in swaps if name.endswith(_SWAPPED_LOG_SUFFIX)]
    _remove_replaced(state, logs)
    for name in swaps:
        state.files[name.removesuffix(segment_files.SWAP_SUFFIX)] = state.files.pop(name)
        state.found.renamed.append(name)
    for name in logs:  # to learn where they end it has made the offset indexes that were missing, full of zeros
        index = f"{name.removesuffix(segment_files.LOG_SUFFIX)}{segment_files.OFFSET_INDEX_SUFFIX}"
        state.files.setdefault(index, Path(f"{index}.swap"))


def _remove_leftovers(state: LoadState) -> None:
    cleaned = [name for name in state.files if name.endswith(segment_files.CLEANED_SUFFIX)]
    first_cleaned = min((file_offset(name) for name in cleaned), default=segment_files.OFFSET_MAX)
    for name in sorted(state.files):
        if name.endswith(segment_files.DELETED_SUFFIX):
            state.remove(name, Removal.DELETED)
        elif name.endswith(segment_files.CLEANED_SUFFIX):
            state.remove(name, Removal.CLEANED)
        elif name.endswith(segment_files.SWAP_SUFFIX) and file_offset(name) >= first_cleaned:
            state.remove(name, Removal.SWAP)


def _remove_replaced(state: LoadState, logs: Sequence[str]) -> None:
    """Files go whose offsets are among those of the logs that are swapped in."""
    base_offsets = [file_offset(name) for name in logs]
    least = min(base_offsets, default=segment_files.OFFSET_MAX)
    end = max((_swapped_end(state, offset) for offset in base_offsets), default=-1)
    for name in sorted(state.files):
        offset = offset_of(name)
        if not name.endswith(segment_files.SWAP_SUFFIX) and offset is not None and least <= offset < end:
            state.remove(name, Removal.SWAPPED)


def _swapped_end(state: LoadState, base_offset: int) -> int:
    """The offset after the last one of a log that is swapped in (`LogSegment.readNextOffset`)."""
    try:
        return state.opened(base_offset, segment_files.SWAP_SUFFIX).next_offset()
    except MalformedRecordsError as error:
        path = state.files[segment_files.segment_file(base_offset, _SWAPPED_LOG_SUFFIX)]
        state.found.failures.append(f"{path}: {error}; {Thrown.OTHER}")
        raise LoadStopped from error
