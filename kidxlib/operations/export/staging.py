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
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.gaps_met import LogRead
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.file_version import FileVersion

_PLAN: Final = "plan.json"
_LOCK: Final = "lock"
_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """What an export writes.

    Attributes:
        units: what each part is made of.
        left_out: what the plan left out or did not find and a person should look at; `ReadPlan.left_out`.
        failed: partitions that could not be planned, a line each.
    """

    units: Sequence[Sequence[SegmentRead]]
    left_out: tuple[LeftOut, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndedPartition:
    """A partition of which nothing more is exported, as something is wrong with a log.

    Attributes:
        base_offset, position: of the segment, or the part of one, in which that is: what stands in it before that was
            exported, and nothing that follows.
    """

    topic: str
    partition: int
    base_offset: int
    position: int
    why: str

    def ends_before(self, read: SegmentRead) -> bool:
        """Whether something stands after what was exported of the partition."""
        is_of_it = (read.topic, read.partition) == (self.topic, self.partition)
        return is_of_it and (read.base_offset, read.position) > (self.base_offset, self.position)


@dataclass(frozen=True, slots=True)
class FinishedPart:
    """What is in a part.

    Attributes:
        reads: how many of the unit it has been made of: those that come after the end of a partition are left out.
        damage: what was passed over, a line each.
        ended: partitions that end in it before they should.
        logs: those that were read to their ends, or parts of them.
    """

    rows: int
    reads: int
    damage: tuple[str, ...]
    ended: tuple[EndedPartition, ...]
    logs: tuple[LogRead, ...] = ()


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
        self.directory.mkdir(exist_ok=True)
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

    def plan(self, asked: dict[str, Any]) -> PlannedExport | None:
        """What an earlier run has planned; None where none has.

        Raises:
            UsageError: that one was asked for something else.
        """
        try:
            found = json.loads((self.directory / _PLAN).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise KidxError(f"{self.directory / _PLAN}: not JSON; remove {self.directory}, and start anew") from error
        if found["version"] != _VERSION or found["asked"] != asked:
            raise UsageError(
                f"{self.directory}: an export with other options was begun and not finished; give those options again, "
                "or remove this directory"
            )
        return PlannedExport(
            [[_of_json(read) for read in unit] for unit in found["units"]],
            tuple(map(_left_out_of_json, found["left_out"])),
            tuple(found["failed"]),
        )

    def keep_plan(self, asked: dict[str, Any], plan: PlannedExport) -> None:
        """Keep what is planned, for a later run."""
        units = [[_as_json(read) for read in unit] for unit in plan.units]
        told = {"left_out": [asdict(each) for each in plan.left_out], "failed": plan.failed}
        self._write(_PLAN, json.dumps({"version": _VERSION, "asked": asked, "units": units, **told}))

    def part(self, number: int) -> Path:
        """The file of a unit's rows."""
        return self.directory / f"part-{number:05}{self._suffix}"

    def finished(self, number: int) -> FinishedPart | None:
        """What is known of a part that is whole; None where it is not."""
        if not (self.part(number).exists() and self._facts(number).exists()):
            return None
        found = json.loads(self._facts(number).read_text())
        ended = tuple(EndedPartition(**each) for each in found["ended"])
        logs = tuple(LogRead(**each) for each in found["logs"])
        return FinishedPart(found["rows"], found["reads"], tuple(found["damage"]), ended, logs)

    def discard(self, number: int) -> None:
        """Remove a part that is to be written again."""
        self._facts(number).unlink()
        self.part(number).unlink()

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

    def give_up(self) -> None:
        """Have nothing left for a later run."""
        (self.directory / _PLAN).unlink()

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


def _left_out_of_json(found: dict[str, Any]) -> LeftOut:
    return LeftOut(**{**found, "partition": TopicPartition(**found["partition"]), "why": Why(found["why"])})
