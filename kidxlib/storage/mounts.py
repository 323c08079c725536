"""Where a path is on its file system, whichever mount it goes through."""

from __future__ import annotations

import os
import re
from pathlib import Path


def place_on_file_system(path: Path) -> tuple[bytes, Path] | None:
    """The device of a path's file system and the path there, which all bind mounts of a directory have in common, and
    all that is below it. The path need not be there. None: the system does not say, as it is no Linux.
    """
    real = Path(os.path.realpath(path))
    there = next(each for each in (real, *real.parents) if os.path.exists(each))
    try:
        descriptor = os.open(there, os.O_PATH)
        try:
            mount = re.search(rb"mnt_id:\s*(\d+)", Path(f"/proc/self/fdinfo/{descriptor}").read_bytes())
        finally:
            os.close(descriptor)
        for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
            number, _, device, root, point, *_ = line.split(b" ")
            if mount is not None and number == mount[1]:
                return device, _unescaped(root) / real.relative_to(_unescaped(point))
    except (OSError, ValueError, AttributeError):
        return None
    return None


def _unescaped(field: bytes) -> Path:
    r"""A path of `/proc/self/mountinfo`, which has `\040` for a space."""
    return Path(os.fsdecode(re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), field)))
