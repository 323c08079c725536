"""An archive of the classes that a broker's JVM loads, beside the jars: later JVMs start in two thirds of the time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.kafka.jars import PROJECT

_ARCHIVES: Final = PROJECT / ".jars"


def class_archive(java: str, class_path: str, run: Callable[[str], None]) -> Path | None:
    """The archive for a Java and a class path of jars and of directories with `/*`; None if this Java makes no archive.
    If there is none for the present jars, `run` gets an option of the JVM, and runs what loads the classes.
    """
    name = hashlib.sha256(class_path.encode()).hexdigest()[:8]
    archive = _ARCHIVES / f"broker-{name}-{_key(java, class_path)}.jsa"
    with (_ARCHIVES / "broker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in _ARCHIVES.glob(f"broker-{name}-*.jsa"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=_ARCHIVES) as directory:
                made = Path(directory, archive.name)
                run(f"-XX:ArchiveClassesAtExit={made}")
                made.touch()  # an empty file if it was not made: then there is no other try
                made.rename(archive)
    return archive if archive.stat().st_size else None


def _key(java: str, class_path: str) -> str:
    """A hash of a Java and of the present jars of a class path: the JVM ignores an archive of others."""
    key = hashlib.sha256()
    for part in (java, *class_path.split(os.pathsep)):
        for path in sorted(Path(part[:-2]).glob("*.jar")) if part.endswith("/*") else [Path(part).resolve()]:
            status = path.stat()
            key.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return key.hexdigest()[:8]
