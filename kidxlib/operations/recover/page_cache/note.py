"""A note in a log dir, made when all in it was known to be right, of the mount and the kernel on which that was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kidxlib.errors import CheckpointError, UntrustedError
from kidxlib.operations.recover.page_cache.kernel_log import ensure_no_errors_since, last_message
from kidxlib.operations.recover.page_cache.mount import Mount, devices_of, mount_of
from kidxlib.storage.directory import Directory
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.publisher import Owner, Publisher
from kidxlib.storage.small_files import small_file

#: A broker looks at directories alone (`LogManager.loadLogs`).
NOTE: Final = ".kidx-page-cache"
_VERSION: Final = 1


def note_down(log_dirs: Sequence[Path]) -> None:
    """Note of log dirs that all in them is right and flushed. The caller knows that, and holds their locks.

    Raises:
        UntrustedError: one of them is where a note would be of no use.
        PublishError: it cannot be written.
    """
    kernel_log = last_message()
    for log_dir in log_dirs:
        content = json.dumps({"version": _VERSION, **_fields(mount_of(log_dir)), "kernel_log": kernel_log}, indent=2)
        owner = replace(Owner.of((log_dir / META_PROPERTIES).stat()), mode=0o644)
        with Publisher() as publisher:
            publisher.stage(Directory(str(log_dir), ""), NOTE, f"{content}\n".encode(), owner)
            publisher.commit()


def ensure_noted(log_dir: Path) -> None:
    """See that the kernel has all that was written into a log dir since its note, be it on the disk or not.

    Raises:
        UntrustedError: that is not certain.
    """
    note = log_dir / NOTE
    try:
        noted = json.loads(small_file(note))
        version, kernel_log = noted["version"], int(noted["kernel_log"])
    except FileNotFoundError as error:
        raise UntrustedError(
            f"{note}: missing; it is made where --apply comes to its end, before the broker starts"
        ) from error
    except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise UntrustedError(f"{note}: not readable: {error}") from error
    if version != _VERSION:
        raise UntrustedError(f"{note}: version {version}, expected {_VERSION}")
    now = _fields(mount_of(log_dir))
    for name, what in _DIFFERENCES.items():
        if noted.get(name) != now[name]:
            raise UntrustedError(f"{note}: {what} (noted {noted.get(name)}, found {now[name]})")
    ensure_no_errors_since(kernel_log, devices_of(log_dir))


#: What another value means.
_DIFFERENCES: Final = {
    "boot_id": "the host has started again since",
    "mount_id": "the file system was mounted again since, or is seen through another mount, as in another container",
    "file_system": "another file system",
    "directory": "the directory is a copy of the one that it was made for",
}


def _fields(mount: Mount) -> dict[str, object]:
    return {
        "boot_id": mount.boot_id,
        "mount_id": mount.mount_id,
        "file_system": mount.file_system,
        "directory": list(mount.directory),
    }
