"""An archive to compact and to plan retention for: a log dir, its index directory, a catalog."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from tests.support.spark.jobs import Ended, RunHere, kidx_build_here, kidx_compact_here, kidx_retention_here


class Archive:
    """All of it below one directory; the source is called `it`.

    Args:
        build, retention, compact: by which engine; by kidx, which is the quicker one, if nothing else is said.
    """

    def __init__(
        self,
        directory: Path,
        *,
        build: RunHere = kidx_build_here,
        retention: RunHere = kidx_retention_here,
        compact: RunHere = kidx_compact_here,
    ) -> None:
        self._build, self.retention, self._compact = build, retention, compact
        self.directory = directory
        self.log_dir, self.index_dir, self.catalog = (directory / name for name in ("kafka-logs", "index", "catalog"))

    def build(self, *arguments: str | Path) -> Ended:
        places = ("--source", f"it={self.log_dir}", "--index-dir", self.index_dir, "--catalog", self.catalog)
        ended = self._build(*places, "--json", *arguments)
        assert ended.code in (0, 3), ended.err
        return ended

    def compact(self, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
        ended = self._compact("--catalog", self.catalog, "--json", *arguments)
        assert ended.code == code, ended
        return ended.json

    def plan(self, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
        ended = self.retention("--catalog", self.catalog, "--json", *arguments)
        assert ended.code == code, ended.err
        return ended.json


class Copies:
    """An archive made again and again under one path, of hard links: the catalog knows paths and inodes."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._kept = archive.directory.with_name("kept")
        shutil.copytree(archive.directory, self._kept, copy_function=os.link)

    def restore(self) -> None:
        shutil.rmtree(self.archive.directory)
        shutil.copytree(self._kept, self.archive.directory, copy_function=os.link)


def assert_refused(ended: Ended, message: str) -> None:
    """Exit code 2, one line that says why, and nothing on standard output."""
    assert (ended.code, ended.out) == (2, ""), ended
    [error] = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert message in error
    assert "Traceback" not in ended.err
