"""The files of a directory, and damage to one."""

from __future__ import annotations

from pathlib import Path


def tree(root: Path, pattern: str = "*", but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The bytes of all files below a directory but those whose names begin so, by their paths below it."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob(pattern))
        if path.is_file() and not path.name.startswith(but)
    }


def flip(path: Path, *places: int, bits: int = 1) -> None:
    """Invert bits, the lowest one, of the bytes at these places."""
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= bits
    path.write_bytes(data)
