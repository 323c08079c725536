"""Functions that change the content of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kidxlib.format import segment_files
from kidxlib.recovery.options import MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.opened_log import LogFile
from tests.support.damages.damage import LARGE, Entries, file_name


def changed_entries(
    layout: np.dtype[np.void], change: Callable[[Entries], Entries | None]
) -> Callable[[bytes, Path], bytes]:
    """A change of entries: `change` does it in place, or returns others."""

    def changed(content: bytes, _: Path) -> bytes:
        entries = np.frombuffer(content, layout).copy()
        others = change(entries)
        result: bytes = (entries if others is None else others).tobytes()
        return result

    return changed


def set_field(number: int, field: str, value: Callable[[int], int]) -> Callable[[Entries], None]:
    def change(entries: Entries) -> None:
        entries[field][number] = value(int(entries[field][number]))

    return change


def add_to_field(number: int, field: str, more: int) -> Callable[[Entries], None]:
    return set_field(number, field, lambda value: value + more)


def without(*numbers: int) -> Callable[[Entries], Entries]:
    return lambda entries: np.delete(entries, numbers)


def twice(number: int) -> Callable[[Entries], Entries]:
    return lambda entries: np.insert(entries, number, entries[number])


def with_interval(interval_bytes: int, *, times: bool = False) -> Callable[[bytes, Path], bytes]:
    """The index that recovery writes with another `index.interval.bytes`."""

    def recovered(_: bytes, directory: Path) -> bytes:
        log = LogFile(str(directory / segment_files.segment_file(LARGE, segment_files.LOG_SUFFIX)))
        segment = recover(log, LARGE, RecoverOptions(interval_bytes=interval_bytes))
        return segment.time_index if times else segment.offset_index

    return recovered


def preallocated(entry_bytes: int) -> Callable[[bytes, Path], bytes]:
    room = MAX_INDEX_BYTES_DEFAULT // entry_bytes * entry_bytes
    return lambda content, _: content.ljust(room, b"\0")


def removed(_content: bytes, _directory: Path) -> None:
    return None


def exactly(content: bytes) -> Callable[[bytes, Path], bytes]:
    return lambda _content, _directory: content


def followed_by(more: bytes) -> Callable[[bytes, Path], bytes]:
    return lambda content, _: content + more


def content_of(directory: Path, base_offset: int, suffix: str) -> bytes:
    return (directory / file_name(base_offset, suffix)).read_bytes()
