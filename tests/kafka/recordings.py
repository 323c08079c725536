"""What brokers did with disks, kept as JSON beside this module: each run of the tests compares kidx with it.

`--exhaustive` starts the brokers again and fails where one does something else than what was recorded. `--record`
writes what they do in cases of which nothing is recorded, so that a run that was stopped goes on; remove a case, or its
file, to have it recorded again. A recording is of one Kafka; it says when it was made and with which seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.kafka.jars import compared_with, release_of

_DIRECTORY: Final = Path(__file__).parent / "recorded"


@dataclass(frozen=True, slots=True)
class Recordings:
    """How recordings are used in this run.

    Attributes:
        starts_brokers: brokers are started, and what they do is compared with what was recorded.
        writes: what they do is recorded where nothing is, in place of being compared.
        chosen: the only version that this run is about; None without `--kafka-version`.
    """

    starts_brokers: bool
    writes: bool
    chosen: str | None

    def versions(self, name: str) -> list[str]:
        """The versions of Kafka that this run compares with the cases of a name, the newest last: those that each
        run is about, so that one of which nothing is recorded fails, and others that have a recording.
        """
        if self.chosen is not None:
            return [self.chosen]
        recorded = {path.stem.removeprefix(f"{name}-") for path in _DIRECTORY.glob(f"{name}-*.json")}
        return sorted(recorded.union(compared_with(None)), key=release_of)

    def of(self, name: str, case: str, observe: Callable[[], Any], *, kafka: str, seed: int) -> Any:
        """What a broker did in a case.

        Args:
            name: of the file, without the version. One file has many cases of one kind.
            case: what was done to the disk, in words; a key of the file.
            observe: starts a broker on the disk and says what it did, as JSON knows it: nothing that differs from run
                to run, as ports, times and directories do. Called only where brokers are started.
            kafka: the version that `observe` starts.
            seed: of whatever is random in the disk.

        Raises:
            AssertionError: nothing was recorded for the case, or the broker did something else this time.
        """
        path = _path(name, kafka)
        recorded = _recorded(path)
        if self.starts_brokers and not self.writes and not recorded:
            return observe()
        if self.writes and case not in recorded:
            recorded[case] = {
                "kafka": kafka,
                "seed": seed,
                "date": datetime.now(UTC).date().isoformat(),
                "did": observe(),
            }
            _DIRECTORY.mkdir(exist_ok=True)
            path.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        found = self._case(path, recorded, case)
        assert (found["kafka"], found["seed"]) == (kafka, seed), f"{path}: {case!r} is of another Kafka or seed"
        if self.starts_brokers and not self.writes:
            assert observe() == found["did"], (
                f"{path}: {case!r}: Kafka {kafka} does something else since {found['date']}"
            )
        return found["did"]

    def known(self, name: str, case: str, *, kafka: str) -> Any:
        """What a broker did in a case by its recording, which another test makes, or compares with a broker.

        Raises:
            AssertionError: nothing was recorded for the case.
        """
        path = _path(name, kafka)
        recorded = _recorded(path)
        if self.writes and case not in recorded:
            pytest.skip(f"{case!r} is recorded in this run; run the test without --record")
        return self._case(path, recorded, case)["did"]

    def _case(self, path: Path, recorded: dict[str, Any], case: str) -> dict[str, Any]:
        if not recorded and self.chosen is not None:
            pytest.skip(f"nothing of Kafka {self.chosen} is recorded; --exhaustive --record does it")
        assert case in recorded, f"{path}: nothing recorded for {case!r}; run the test with --exhaustive --record"
        found: dict[str, Any] = recorded[case]
        return found


def _path(name: str, version: str) -> Path:
    return _DIRECTORY / f"{name}-{version}.json"


def _recorded(path: Path) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return recorded
