"""File systems made for a test: small ones, read-only ones, and ones whose power is cut."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

#: EXT4_IOC_SHUTDOWN (Linux 4.10), and "lose all that was not flushed".
_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = struct.pack("I", 2)

_IMAGE_BYTES: Final = 64 << 20


@contextlib.contextmanager
def mounted(directory: Path, what: str | Path, kind: str, options: str) -> Iterator[Path]:
    """Mount a file system on a directory, which is made. Skips the test where that is not permitted."""
    directory.mkdir(exist_ok=True)
    run = subprocess.run(
        ["mount", "-t", kind, "-o", options, what, directory], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        pytest.skip(f"needs root and the right to mount: {run.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def remount(directory: Path, options: str) -> None:
    """Change a mounted file system's options: its size, or whether it can be written to."""
    subprocess.run(["mount", "-o", f"remount,{options}", directory], check=True)


def make_image(path: Path) -> Path:
    """A file that holds an empty ext4. Skips the test where there is no mkfs.ext4."""
    program = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("needs mkfs.ext4")
    path.touch()
    os.truncate(path, _IMAGE_BYTES)
    subprocess.run([program, "-q", "-F", "-E", "lazy_itable_init=1", path], check=True)
    return path


def cut_power(directory: Path) -> None:
    """Make a mounted ext4 forget all that was not flushed, at once, and refuse everything until it is mounted again."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, _NO_LOG_FLUSH)
    finally:
        os.close(descriptor)
