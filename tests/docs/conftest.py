"""What the tests of the pages share: a workspace where the pages' commands are run, each once and in order."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.forked_kidx import forked_kidx
from tests.docs.pages import PROJECT, README, Block, processes, program
from tests.support.checksum_store import SERVER, ChecksumStore
from tests.support.object_store import ObjectStore
from tests.support.spark.jobs import clean_environment

#: What a page's commands find in the directory where they are typed, besides the two scripts that are made below.
LINKS = (".jars", "conf", "samples")
SECONDS_MAX = 600
#: What is printed between blocks that are run in one process.
_NEXT = "---- the next block ----"
#: Where Spark finds the packages that a page names: among the jars of ./setup.sh kafka, which say nothing of what they
#: need beyond Spark.
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers>
    <filesystem name="jars"><artifact pattern="{jars}/[artifact]-[revision].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""


class Workspace:
    """A directory that looks like the repository to whoever types a page's commands in it, and an object store with the
    sample.

    Nothing that they write lands in the repository.
    """

    def __init__(
        self, directory: Path, store: ObjectStore, checksums: ChecksumStore | None, *, exhaustive: bool
    ) -> None:
        self.directory, self._exhaustive = directory, exhaustive
        self._store, self._checksums = store, checksums
        for each in (store, checksums):
            if each is not None:
                each.upload(PROJECT / "samples" / "kafka-logs", "kafka-logs")
        self._ended: dict[str, subprocess.CompletedProcess[str]] = {}
        for name in LINKS:
            (directory / name).symlink_to(PROJECT / name)
        for name in (".venv", ".venv/bin"):
            (directory / name).mkdir()
            for path in (PROJECT / name).iterdir():
                if path.name not in ("bin", "kidx"):
                    (directory / name / path.name).symlink_to(path)
        # Links to the scripts would not do: they take the directory where they stand for the repository.
        self._script("spark-submit.sh", f'exec "{PROJECT}/spark-submit.sh" "$@"')
        self._script("setup.sh", f'exec "{PROJECT}/setup.sh" "$@"')
        spark_conf = directory / "spark-conf"
        spark_conf.mkdir()
        (spark_conf / "ivysettings.xml").write_text(_IVY_SETTINGS.format(jars=PROJECT / ".jars" / "spark-kafka"))
        (spark_conf / "spark-defaults.conf").write_text(
            f"spark.jars.ivySettings {spark_conf}/ivysettings.xml\nspark.jars.ivy {spark_conf}/ivy\n"
        )

    def run(self, page: str) -> dict[str, subprocess.CompletedProcess[str]]:
        """Run the blocks of a page in order, each once, after those of the README: how each has ended, by its name.

        Whoever reads a page has followed the README, and maybe no other page. A block that compares a copy is not run
        where no store computes checksums.
        """
        for blocks in (*processes(README), *processes(page)):
            is_left_out = blocks[0].is_slow and not self._exhaustive
            if blocks[0].name not in self._ended and self._store_of(blocks[0]) is not None and not is_left_out:
                self._ended |= self._run(blocks)
        return self._ended

    def _store_of(self, block: Block) -> ObjectStore | None:
        return self._checksums if "kidx compare" in block.text and "s3://" in block.text else self._store

    def _script(self, name: str, line: str) -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def _run(self, blocks: list[Block]) -> dict[str, subprocess.CompletedProcess[str]]:
        """Run blocks in one process. Each has ended as that did, but for those that were followed by another."""
        store, language = self._store_of(blocks[0]), blocks[0].language
        assert store is not None
        if language == "sh":
            (block,) = blocks
            command = ["bash", "-eo", "pipefail", "-c", block.text]
        else:
            command = [".venv/bin/python", "-c", program(blocks, _NEXT)]
        more = {"SPARK_CONF_DIR": str(self.directory / "spark-conf")} if language == "python" else {}
        ended = subprocess.run(
            command,
            cwd=self.directory,
            # These runs are short: a JVM that compiles less is ready sooner.
            env={
                **clean_environment(),
                **more,
                "AWS_ENDPOINT_URL": store.endpoint,
                "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        printed = ended.stdout.split(f"{_NEXT}\n")
        return {
            block.name: subprocess.CompletedProcess(
                ended.args,
                0 if number < len(printed) - 1 else ended.returncode,
                printed[number] if number < len(printed) else f"not run, as one before it failed: {ended.stdout}",
                ended.stderr,
            )
            for number, block in enumerate(blocks)
        }


@pytest.fixture(scope="session")
def workspace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _s3_server: ObjectStore, exhaustive: bool
) -> Iterator[Workspace]:
    checksums = request.getfixturevalue("_checksum_server") if SERVER.exists() else None
    workspace = Workspace(tmp_path_factory.mktemp("workspace"), _s3_server, checksums, exhaustive=exhaustive)
    with forked_kidx(workspace.directory / ".venv" / "bin" / "kidx"):
        yield workspace
