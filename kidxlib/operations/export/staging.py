"""The parts of an export while it is not whole: a directory beside the output, which a later run takes up."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import KidxError, UsageError
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.plan import SegmentRead
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.file_version import FileVersion
from kidxlib.terminal.console import note

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_VERSION: Final = 2

#: Of the options that rows depend on, whether damage is passed over.
SKIPS_DAMAGE: Final = "skip_damage"


@dataclass(frozen=True, slots=True)
class FinishedPart:
    """What is in a part.

    Attributes:
        damage: what was passed over, a line each.
    """

    rows: int
    damage: tuple[str, ...]


class Staging:
    """A directory with the plan of an export and its finished parts. A part has its final name once it is whole."""

    def __init__(self, output: Path, suffix: str) -> None:
        """
        Args:
            suffix: of the parts' names.
        """
        self.directory = output.with_name(f"{output.name}.kidx-export")
        self._suffix = suffix

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While the context lasts no other run works here.

        Raises:
            UsageError: another one does.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / _LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(f"{self.directory}: another export to this output is at work; wait for it") from error
            try:
                yield
            finally:
                if not (self.directory / _PLAN).exists():  # nothing was begun, or all is done
                    shutil.rmtree(self.directory, ignore_errors=True)

    def plan(self, asked: dict[str, Any]) -> list[list[SegmentRead]] | None:
        """What an earlier run has planned, in units; None where none has. One that stopped at damage makes way for one
        that passes it over, as messages advise: that one reads each segment as a whole, and divides them otherwise.

        Raises:
            UsageError: that one was asked for something else.
        """
        try:
            found = json.loads((self.directory / _PLAN).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise KidxError(f"{self.directory / _PLAN}: not JSON; remove {self.directory}, and start anew") from error
        if found["version"] == _VERSION and {**found["asked"], SKIPS_DAMAGE: True} == asked != found["asked"]:
            note(f"{self.directory}: begun without --skip-damage; all is read again")
            for part in self.directory.glob(f"part-*{self._suffix}"):
                part.unlink()
            return None
        if found["version"] != _VERSION or found["asked"] != asked:
            raise UsageError(
                f"{self.directory}: an export with other options was begun and not finished; give those options again, "
                "or remove this directory"
            )
        return [[_of_json(read) for read in unit] for unit in found["units"]]

    def keep_plan(self, asked: dict[str, Any], units: Sequence[Sequence[SegmentRead]]) -> None:
        """Keep what is planned, for a later run."""
        content = {"version": _VERSION, "asked": asked, "units": [[_as_json(read) for read in unit] for unit in units]}
        self._write(_PLAN, json.dumps(content))

    def part(self, number: int) -> Path:
        """The file of a unit's rows."""
        return self.directory / f"part-{number:05}{self._suffix}"

    def finished(self, number: int) -> FinishedPart | None:
        """What is known of a part that is whole; None where it is not."""
        if not (self.part(number).exists() and self._facts(number).exists()):
            return None
        found = json.loads(self._facts(number).read_text())
        return FinishedPart(found["rows"], tuple(found["damage"]))

    def finish(self, number: int, part: FinishedPart, written: Path) -> None:
        """Give a written part its name."""
        self._write(self._facts(number).name, json.dumps(asdict(part)))
        written.rename(self.part(number))
        _sync(self.directory)

    def become(self, output: Path) -> None:
        """Give the directory the name of the output, with the parts alone in it. The plan goes last: of parts of which
        nothing else is known a later run takes none for its own.
        """
        plan = self.directory / _PLAN
        for path in list(self.directory.iterdir()):
            if path.suffix != self._suffix and path != plan:
                path.unlink()
        plan.unlink()
        self.directory.rename(output)
        _sync(output.parent)

    def give(self, whole: Path, output: Path) -> None:
        """Give a file the name of the output, and remove the directory."""
        whole.rename(output)
        _sync(output.parent)
        shutil.rmtree(self.directory)

    def _facts(self, number: int) -> Path:
        return self.directory / f"part-{number:05}.json"

    def _write(self, name: str, text: str) -> None:
        path = self.directory / f"{name}.tmp"
        with path.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.rename(self.directory / name)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _as_json(read: SegmentRead) -> dict[str, Any]:
    return {**asdict(read), "aborted": base64.b64encode(read.aborted.packed).decode()}


def _of_json(found: dict[str, Any]) -> SegmentRead:
    return SegmentRead(
        **{
            **found,
            "version": FileVersion(**found["version"]),
            "wanted": Wanted(**found["wanted"]),
            "aborted": AbortedRanges(base64.b64decode(found["aborted"])),
        }
    )
