"""The files of a partition beside its logs, on both sides: index files, snapshots, leader epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from kidxlib.catalog.results.compare import FilePairRow
from kidxlib.errors import CheckpointError, KidxError, describe_error
from kidxlib.format import layouts as formats
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, EpochEntry
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
)
from kidxlib.operations.compare.byte_comparison import PairedLog
from kidxlib.storage.checkpoints import parse_epoch_entries
from kidxlib.storage.location import Location, location
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.small_files import filled_file, is_room, small_file
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.text.counted import counted

#: Index files that a broker keeps room in, and how many bytes an entry takes.
_ENTRIES = {
    OFFSET_INDEX_SUFFIX: formats.OFFSET_INDEX_ENTRY.itemsize,
    TIME_INDEX_SUFFIX: formats.TIME_INDEX_ENTRY.itemsize,
}


class FileVerdict(StrEnum):
    """How a file of one side compares with that of the other.

    Attributes:
        SHORTER: all that it has is the same, and the original has more.
        LONGER: it begins with all that the original has.
    """

    SAME = "same"
    SHORTER = "shorter"
    LONGER = "longer"
    DIFFERS = "differs"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePairs:
    """Files of one directory that both sides have.

    Attributes:
        one, other: paths of the directory.
        names: of the files.
    """

    directory: str
    one: str
    other: str
    names: Sequence[str]
    log_bytes: int

    def with_threads(self, threads: int) -> Self:
        """See `Packed`: one thread reads them."""
        return self


def compared_files(pairs: FilePairs) -> list[FilePairRow]:
    """Compare the files; what comes back is about those that are not the same or cannot be read."""
    found = []
    for name in pairs.names:
        try:
            verdict, detail, same_to = _compared(location(pairs.one) / name, location(pairs.other) / name)
        except (OSError, KidxError) as error:
            verdict, detail, same_to = FileVerdict.UNREADABLE, describe_error(error), None
        if verdict is not FileVerdict.SAME:
            found.append(
                FilePairRow(
                    directory=pairs.directory,
                    name=name,
                    verdict=verdict.value,
                    detail=detail,
                    same_to_offset=same_to,
                )
            )
    return found


def first_abort(transaction_index: Location, position: int = 0) -> int | None:
    """The lowest last offset of the aborted transactions from a byte of the index on; None where there is none.

    Raises:
        OSError: it cannot be read.
    """
    content = small_file(transaction_index)[position:]
    entries = np.frombuffer(content, formats.ABORTED_TRANSACTION, len(content) // formats.ABORTED_TRANSACTION.itemsize)
    return int(entries["last_offset"].min()) if len(entries) else None


def _compared(one: Location, other: Location) -> tuple[FileVerdict, str, int | None]:
    """How the files compare, and up to which offset they say the same; None where that was not looked for."""
    parsed = parse_segment_file(one.name)
    if one.name == LEADER_EPOCH_CHECKPOINT:
        return _of_epochs(one, other)
    if parsed is not None and (entry_bytes := _ENTRIES.get(parsed[1])) is not None:
        verdict, detail = _of_contents(_without_room(one, entry_bytes), _without_room(other, entry_bytes))
        return verdict, detail, None
    verdict, detail = _of_bytes(one, other)
    is_shorter = verdict is FileVerdict.SHORTER and parsed is not None and parsed[1] == TRANSACTION_INDEX_SUFFIX
    return verdict, detail, first_abort(one, len(small_file(other))) if is_shorter else None


def _of_bytes(one: Location, other: Location) -> tuple[FileVerdict, str]:
    with opened_log(str(one)) as opened, opened_log(str(other)) as opened_other:
        paired = PairedLog(opened.log(use_mmap=False), opened_other.log(use_mmap=False))
        paired.compare_rest()
        sizes, found = (opened.version.size, opened_other.version.size), paired.differences
        return _verdict(*sizes, found.first, found.count)


def _without_room(path: Location, entry_bytes: int) -> bytes:
    """The entries of an index file; all of it where something else than room stands behind them."""
    entries = filled_file(path, entry_bytes)
    return entries if isinstance(path, ObjectPath) or is_room(path, len(entries)) else small_file(path)


def _of_contents(one: bytes, other: bytes) -> tuple[FileVerdict, str]:
    if one == other:
        return FileVerdict.SAME, ""
    shared = min(len(one), len(other))
    differing = np.flatnonzero(np.frombuffer(one, np.uint8, shared) != np.frombuffer(other, np.uint8, shared))
    return _verdict(len(one), len(other), int(differing[0]) if len(differing) else -1, len(differing))


def _verdict(one_bytes: int, other_bytes: int, first: int, count: int) -> tuple[FileVerdict, str]:
    if first >= 0:
        return FileVerdict.DIFFERS, f"{counted(count, 'byte')} not the same, the first at byte {first:,}"
    if one_bytes == other_bytes:
        return FileVerdict.SAME, ""
    verdict = FileVerdict.SHORTER if other_bytes < one_bytes else FileVerdict.LONGER
    return verdict, f"{other_bytes:,} bytes of {one_bytes:,}"


def _of_epochs(one: Location, other: Location) -> tuple[FileVerdict, str, int | None]:
    contents = small_file(one), small_file(other)
    if contents[0] == contents[1]:
        return FileVerdict.SAME, "", None
    try:
        entries, others = (
            parse_epoch_entries(content, str(path)) for content, path in zip(contents, (one, other), strict=True)
        )
    except CheckpointError as error:
        return FileVerdict.DIFFERS, str(error), None
    if entries:
        others = _from(others, entries[0].start_offset)
    shared = min(len(entries), len(others))
    same = next((at for at in range(shared) if entries[at] != others[at]), shared)
    differing = [each[same].start_offset for each in (entries, others) if len(each) > same]
    if not differing:
        return FileVerdict.SAME, "", None
    if same < shared:
        detail = f"other leader epochs: {_epochs(others)}, expected {_epochs(entries)}"
        return FileVerdict.DIFFERS, detail, min(differing)
    verdict = FileVerdict.SHORTER if len(others) < len(entries) else FileVerdict.LONGER
    return verdict, f"{counted(len(others), 'leader epoch')} of {len(entries):,}", min(differing)


def _from(entries: Sequence[EpochEntry], start: int) -> list[EpochEntry]:
    """The entries as a broker leaves them that deletes what is below an offset
    (`LeaderEpochFileCache.truncateFromStartAsyncFlush`).
    """
    below = [each for each in entries if each.start_offset <= start]
    above = [each for each in entries if each.start_offset > start]
    return [EpochEntry(below[-1].epoch, start), *above] if below else above


def _epochs(entries: Sequence[EpochEntry]) -> str:
    shown = ", ".join(f"{each.epoch} from {each.start_offset}" for each in entries[:3])
    return (shown or "none") + (" …" if len(entries) > 3 else "")
