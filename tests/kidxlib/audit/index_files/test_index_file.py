"""Index files are read as they are, and nothing is done for the room that a broker keeps in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.audit.index_files.index_file import read_index
from kidxlib.audit.index_files.sparse_indexes import SparseIndexEntries
from kidxlib.format import layouts
from kidxlib.recovery.options import MAX_INDEX_BYTES_DEFAULT
from kidxlib.storage.small_files import filled_bytes, without_room

_ROOM: Final = MAX_INDEX_BYTES_DEFAULT


def test_holes_are_zeros_and_what_stands_behind_them_is_read(tmp_path: Path) -> None:
    """A file of holes, with data at its start, amid them and at its end, or with none at all."""
    path = tmp_path / "index"
    for pieces in ({}, {0: b"\1" * 8}, {0: b"\1" * 8, 5_000_000: b"\2" * 5000}, {_ROOM - 3: b"\3" * 3}):
        with path.open("wb") as file:
            for position, data in pieces.items():
                os.pwrite(file.fileno(), data, position)
            file.truncate(_ROOM)
        content = read_index(path, use_mmap=False)
        assert isinstance(content, np.ndarray) and content.tobytes() == path.read_bytes()
        last = max((position + len(data) for position, data in pieces.items()), default=0)
        assert filled_bytes(content, 8) == -(-last // 8) * 8
    path.write_bytes(b"")
    assert len(read_index(path, use_mmap=False)) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1024 * 1024, 1024 * 1024 + 5, 3_000_000])
def test_the_room_is_told_from_the_entries(size: int) -> None:
    """As by going back byte by byte, whatever blocks are compared; of the room no column is made."""
    content = (b"\0\7\0" * (size // 3 + 1))[:size]
    for room in (0, 5, 4_000_000):
        padded = content + bytes(room)
        used = len(content.rstrip(b"\0"))
        assert without_room(padded, 12) == padded[: -(-used // 12) * 12]
    entries = SparseIndexEntries.of(np.frombuffer(content + bytes(_ROOM), np.uint8), layouts.TIME_INDEX_ENTRY)
    assert len(entries.columns["timestamp"]) == -(-len(content.rstrip(b"\0")) // 12) and entries.has_room
