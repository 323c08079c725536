"""Which mount of which boot a directory is on: as long as it is the same one, the kernel has forgotten nothing."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.errors import UntrustedError

#: File systems whose pages are the kernel's own, on a device of this host or in its memory. Not those of a network, in
#: user space (FUSE), or of layers: there another machine or process may have what was written, and lose it.
_TRUSTED: Final = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")

#: statx(2): what is asked for, and where it stands in the answer.
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_MOUNT_ID: Final = 0x1000
_UNIQUE_MOUNT_ID: Final = 0x4000
_ANSWER_BYTES: Final = 256
_MOUNT_ID_AT: Final = 0x90
_LINUX_NEEDED: Final = "6.8"


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a directory is.

    Attributes:
        boot_id: of this boot of the kernel.
        mount_id: of the mount, unique in this boot. While that mount is there, its file system has been mounted without
            a break: a file system that is mounted again gets another.
        file_system: its type.
        directory: device and inode of the directory itself. A copy has others.
    """

    boot_id: str
    mount_id: int
    file_system: str
    directory: tuple[int, int]


def mount_of(directory: Path) -> Mount:
    """Where a directory is.

    Raises:
        UntrustedError: the kernel does not tell, or the file system is none of which its pages are known to be all.
    """
    try:
        boot_id = _BOOT_ID.read_text().strip()
        file_system = _file_system(_ask(directory, _MOUNT_ID))
        status = directory.stat()
    except OSError as error:
        raise UntrustedError(f"{directory}: the kernel does not tell on which mount it is: {error.strerror}") from error
    if file_system not in _TRUSTED:
        raise UntrustedError(
            f"{directory}: on {file_system or 'an unknown file system'}; expected one of {', '.join(_TRUSTED)}: of "
            "others it is not known where their pages are"
        )
    return Mount(boot_id, mount_id_of(directory), file_system, (status.st_dev, status.st_ino))


def devices_of(directory: Path) -> frozenset[str] | None:
    """The kernel's names of the block device on which a directory is, and of the disk that it is a partition of.

    Returns:
        None where that is not all: it lies on others (LVM, RAID, encryption), or on none that has a name.
    """
    device = directory.stat().st_dev
    known = Path("/sys/dev/block") / f"{os.major(device)}:{os.minor(device)}"
    if not known.exists():
        return None
    place = known.resolve()
    names = {place.name, place.parent.name} if (place / "partition").exists() else {place.name}
    slaves = [place / "slaves", place.parent / "slaves"][: len(names)]
    return None if any(each.is_dir() and os.listdir(each) for each in slaves) else frozenset(names)


def mount_id_of(path: Path) -> int:
    """The unique id of the mount on which a file or a directory is; a symbolic link is not followed.

    Raises:
        UntrustedError: the kernel does not tell.
    """
    try:
        return _ask(path, _UNIQUE_MOUNT_ID)
    except OSError as error:
        raise UntrustedError(
            f"{path}: no unique mount id (statx: {error.strerror}): needs Linux {_LINUX_NEEDED}"
        ) from error


def _ask(path: Path, what: int) -> int:
    """Ask statx(2) for an id of a mount.

    Raises:
        OSError: it does not answer.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "statx"):
        raise OSError(0, "not offered by this C library")
    answer = ctypes.create_string_buffer(_ANSWER_BYTES)
    if libc.statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, what, answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    [answered] = struct.unpack_from("=I", answer)
    if not answered & what:
        raise OSError(0, "not answered by this kernel")
    [found] = struct.unpack_from("=Q", answer, _MOUNT_ID_AT)
    return int(found)


def _file_system(mount_id: int) -> str | None:
    """The type of the file system that is mounted there, by the id in `/proc/self/mountinfo`."""
    for line in _MOUNTS.read_text(errors="surrogateescape").splitlines():
        mount, _, about = line.partition(" - ")
        if mount.split(" ", 1)[0] == str(mount_id):
            return about.split(" ", 1)[0]
    return None
