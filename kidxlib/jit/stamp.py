"""What compiled code was compiled from, as a hash of sources.

Numba takes compiled code again as long as the function's own file is the same. But the constants and functions that the
file imports are compiled in, too: a layout that was mended would leave the old one at work. Here the sources of all
modules of ours that a function's module imports, directly or not, must be the same.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1]
ROOT: Final = PACKAGE.parent

#: An import of a module of ours, by its whole name: ruff refuses relative imports (`pyproject.toml`). What only looks
#: like an import does no harm: one more source counts.
_IMPORT: Final = re.compile(
    rf"^\s*(?:from\s+(?P<module>{PACKAGE.name}[\w.]*)\s+import\s+(?P<names>\((?:[^)#]|#.*)*\)|.*)"
    rf"|import\s+(?P<imported>{PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)


@functools.cache
def stamp_of(source: Path) -> str:
    """A hash of the sources of a module of ours and of all of ours that it imports, directly or not."""
    to_read, hashes = [source], dict[Path, bytes]()
    while to_read:
        path = to_read.pop()
        if path not in hashes:
            hashes[path], imported = _read(path)
            to_read.extend(imported)
    return hashlib.sha256(b"".join(hashes[path] for path in sorted(hashes))).hexdigest()


@functools.cache
def _read(source: Path) -> tuple[bytes, tuple[Path, ...]]:
    """A hash of a module, and the files of our modules that it imports and of the packages that they are in.

    Python's own parser would take a tenth of a second at each start.
    """
    content = source.read_bytes()
    files = []
    for found in _IMPORT.finditer(content.decode()):
        module = found["module"] or found["imported"]
        # Of `from a import b`, b may be a module.
        for name in (module, *(f"{module}.{word}" for word in re.findall(r"\w+", found["names"] or ""))):
            path = ROOT.joinpath(*name.split("."))
            files += [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return hashlib.sha256(content).digest(), tuple(files)
