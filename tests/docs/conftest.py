"""What the tests of the pages share: a workspace where the pages' commands are run, each once and in order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, PROJECT, Block, runnable
from tests.support.object_store import ObjectStore
from tests.support.spark.jobs import clean_environment

#: What a page's commands find in the directory where they are typed, besides the two scripts that are made below.
LINKS = (".venv", ".jars", "conf", "samples")
SECONDS_MAX = 600


class Workspace:
    """A directory that looks like the repository to whoever types a page's commands in it, and an object store with the
    sample.

    Nothing that they write lands in the repository.
    """

    def __init__(self, directory: Path, store: ObjectStore) -> None:
        self.directory = directory
        self._store = store
        store.upload(PROJECT / "samples" / "kafka-logs", "kafka-logs")
        self._ended: dict[str, subprocess.CompletedProcess[str]] = {}
        for name in LINKS:
            (directory / name).symlink_to(PROJECT / name)
        # Links to the scripts would not do: they take the directory where they stand for the repository.
        self._script("spark-submit.sh", f'exec "{PROJECT}/spark-submit.sh" "$@"')
        self._script("test.sh", f'test -x "{PROJECT}/test.sh"')  # this very test is a part of what it runs

    def run_until(self, page: str) -> dict[str, subprocess.CompletedProcess[str]]:
        """Run the blocks of all pages up to `page` that have not been run yet; how each block ended, by its name."""
        for each in PAGES[: PAGES.index(page) + 1]:
            for block in runnable(each):
                if block.name not in self._ended:
                    self._ended[block.name] = self._run(block)
        return self._ended

    def _script(self, name: str, line: str) -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _run(self, block: Block) -> subprocess.CompletedProcess[str]:
        command = {"sh": ["bash", "-eo", "pipefail", "-c"], "python": [".venv/bin/python", "-c"]}[block.language]
        return subprocess.run(
            [*command, block.text],
            cwd=self.directory,
            # These runs are short: a JVM that compiles less is ready sooner.
            env={
                **clean_environment(),
                "AWS_ENDPOINT_URL": self._store.endpoint,
                "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, _s3_server: ObjectStore) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"), _s3_server)
