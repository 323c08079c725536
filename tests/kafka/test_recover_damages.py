"""Every damage of a killed broker's disk at each level, trusted or not, beside a broker that starts by itself."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kidxlib.errors import UntrustedError
from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.recover.page_cache import last_message, mount_of, note_down
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import Ended, kidx
from tests.kafka.crashed import logs_of
from tests.kafka.damaged_disk import PARTITIONS, killed_disk
from tests.kafka.outcome import Outcome, Sent, expected_answers, last_sent, outcome
from tests.support.kafka.broker import Broker
from tests.support.kafka.tiered import tiered_twin


@dataclass(frozen=True, slots=True)
class _Way:
    """How a disk is recovered.

    Attributes:
        trusts: the page cache.
        cuts: ends of logs, and does not leave them to the broker.
    """

    level: str
    trusts: bool
    cuts: bool

    def __str__(self) -> str:
        return f"{self.level}{'-trusted' if self.trusts else ''}{'-cut' if self.cuts else ''}"

    def recover(self, broker: Broker, *arguments: str) -> Ended:
        cut = ("--truncate", "--keep", broker.directory / "kept") if self.cuts else ()
        trust = ("--trust-page-cache",) if self.trusts else ()
        options = ("--level", self.level, "--accept-loss", *cut, *trust, *arguments)
        return kidx("recover", *broker.log_dirs, *options, "--json")


#: With a marker ends have to be cut.
_WAYS: Final = [
    _Way(level, trusts, cuts)
    for level, trusts, cuts in itertools.product(("checkpoint", "marker"), (False, True), (False, True))
    if cuts or level == "checkpoint"
]
_SEEDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Disk:
    """A killed broker's disk, and what its producers sent last."""

    broker: Broker
    sent: Mapping[tuple[str, int], Sent]

    def damaged(self, directory: Path, seed: int, *, untold: bool) -> Broker:
        """A copy with all damages.

        Args:
            untold: also with those that `--trust-page-cache` does not look for.
        """
        twin = tiered_twin(self.broker, directory)
        for (kind, number), damage in PARTITIONS.items():
            if untold or damage.headers_tell:
                damage.do(twin.log_dir / f"{kind}-{number}", random.Random(f"{seed} {kind} {number}"))
        return twin


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> _Disk:
    broker = killed_disk(tmp_path_factory.mktemp("damaged") / "broker", broker_version)
    return _Disk(broker, last_sent(broker))


@pytest.mark.exhaustive("takes minutes; what brokers did with each damage is recorded, and compared in each run")
def test_what_becomes_of_each_damage(
    disk: _Disk, tmp_path: Path, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """Goal: a broker that starts after `kidx recover` says, gives, accepts and leaves what one does that starts by
    itself, for each partition; so does the controller. It reads the last segment of each partition again at the level
    of checkpoints, and nothing with a marker.

    Method: each partition of one disk has a damage of its own. Damages that no kernel can have made that still has all
    pages are left out where it is trusted: headers do not tell them, and nobody has promised that they do. Partitions
    for which a marker is refused are made whole, so that there is one for the others.
    """
    for _ in range(_SEEDS if exhaustive else 1):
        seed = rng.randrange(2**32)
        alone = outcome(disk.damaged(tmp_path / f"{seed}-alone", seed, untold=True), disk.sent)
        _ensure_whole(disk, alone)
        for way in _WAYS if exhaustive else [rng.choice(_WAYS)]:
            if way.trusts and (why := _why_untrusted(tmp_path)) is not None:
                say(f"nothing is trusted here: {why}")
                continue
            broker = disk.damaged(tmp_path / f"{seed}-{way}", seed, untold=not way.trusts)
            compared = _compare(disk, broker, way, alone)
            say(f"{way}, seed {seed}: {compared} of {len(PARTITIONS)} partitions as by itself")
            shutil.rmtree(broker.directory)


def _compare(disk: _Disk, broker: Broker, way: _Way, alone: Outcome) -> int:
    """Recover a damaged disk, start a broker on it, and compare; how many partitions."""
    if way.trusts:
        note_down(broker.log_dirs)  # it is a copy, of what the kernel has
    refused = _make_whole(disk, broker, way)
    names = [
        f"{kind}-{number}"
        for (kind, number), damage in PARTITIONS.items()
        if f"{kind}-{number}" not in refused and (damage.headers_tell or not way.trusts)
    ]
    but = _first_snapshots(broker)
    if way.trusts:
        own = _own_files(broker, alone)
        but = {name: files | but.get(name, set()) for name, files in own.items()}
    ended = way.recover(broker, "--apply")
    assert ended.code == ExitCode.PROBLEMS_FOUND and ended.json["applied"] and not ended.json["untrusted"], ended
    found = outcome(broker, disk.sent)
    assert list(found.differences(alone, names, but)) == []
    assert found.controller == alone.controller and len(found.controller) == 1
    planned = {Path(each["directory"]).name: each for each in ended.json["partitions"]}
    drops = {f"{kind}-{number}" for (kind, number), damage in PARTITIONS.items() if damage.drops}
    assert {name for name in names if planned[name]["dropped"]} == drops.intersection(names)
    readable = [name for name in names if alone.uncommitted[name].end >= 0]
    ends = {name: planned[name]["log_end_offset"] for name in readable}
    assert ends == {name: alone.uncommitted[name].end for name in readable}
    left = {name for name, each in planned.items() if each["left_to_the_broker"]}
    expected = {name: alone.recovered[name] if name in left else int(way.level == "checkpoint") for name in names}
    assert {name: found.recovered[name] for name in names} == expected
    assert found.skipped == (len(broker.log_dirs) if way.level == "marker" else 0)
    return len(names)


def _make_whole(disk: _Disk, broker: Broker, way: _Way) -> set[str]:
    """Partitions that are refused, and are put back as they were: for a marker those of which nothing tells the
    producers, and tiered ones without leader epochs, of which a broker would delete remote segments.
    """
    planned = way.recover(broker).json
    without_epochs, refused = set[str](), set[str]()
    for each in planned["refused"]:
        place, is_of_epochs, _ = each.partition("/leader-epoch-checkpoint: ")
        (without_epochs if is_of_epochs else refused).add(Path(place.split(": no producer snapshot")[0]).name)
    assert all(name.startswith("tiered-") for name in without_epochs), planned["refused"]
    _put_back(disk, broker, without_epochs | refused)
    if way.level != "marker":
        assert not refused, planned["refused"]
        return without_epochs
    without = {(kind, number) for (kind, number), damage in PARTITIONS.items() if not damage.keeps_snapshots}
    assert refused <= {f"{kind}-{number}" for kind, number in without if kind != "deleted"}, planned["refused"]
    assert refused | without_epochs >= {f"{kind}-{number}" for kind, number in without if kind == "tiered"}
    return refused | without_epochs


def _put_back(disk: _Disk, broker: Broker, names: Iterable[str]) -> None:
    for name in names:
        shutil.rmtree(broker.log_dir / name)
        shutil.copytree(disk.broker.log_dir / name, broker.log_dir / name)


def _why_untrusted(directory: Path) -> str | None:
    try:
        mount_of(directory)
        last_message()
    except UntrustedError as error:
        return str(error)
    return None


def _ensure_whole(disk: _Disk, alone: Outcome) -> None:
    """Partitions without a damage have lost nothing, and the transaction that was open does not hang."""
    for (kind, number), damage in PARTITIONS.items():
        if damage.name == "whole":
            name = f"{kind}-{number}"
            answers = expected_answers(disk.sent[kind, number], alone.uncommitted[name].end)
            assert alone.answers[name] == answers, name
            stable, end = alone.stable[name]
            assert stable == end, name


def _first_snapshots(broker: Broker) -> dict[str, set[str]]:
    """Where tiered partitions have lost all snapshots, a broker that recovers takes one, of no producers, at the first
    offset that is not in the bucket alone. Nobody needs it: segments before it are copied.
    """
    return {
        f"{kind}-{number}": {logs_of(broker, f"{kind}-{number}")[0].with_suffix(SNAPSHOT_SUFFIX).name}
        for (kind, number), damage in PARTITIONS.items()
        if kind == "tiered" and not damage.keeps_snapshots
    }


def _own_files(broker: Broker, alone: Outcome) -> dict[str, set[str]]:
    """Files of segments that the broker had finished, which are right, and others than a recovery makes. Where it went
    on after it was stopped, it counts the interval of indexes from there. And it has seen producers, and transactions
    that were aborted, before compaction took their records away.
    """
    points = read_offset_checkpoint(broker.log_dir / RECOVERY_POINT_CHECKPOINT) or {}
    found: dict[str, set[str]] = {}
    for kind, number in PARTITIONS:
        logs = logs_of(broker, f"{kind}-{number}")
        first = [log for log in logs if int(log.stem) <= points[TopicPartition(kind, number)]][-1]
        own = [first.with_suffix(suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        if kind == "compacted":
            own += [log.with_suffix(suffix) for log in logs for suffix in (TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)]
        if kind == "compacted" and int(logs[-1].stem) > alone.uncommitted[f"{kind}-{number}"].end:
            # The last log is dropped, and with it what would tell the same of producers.
            own += map(Path, alone.producers[f"{kind}-{number}"])
        found[f"{kind}-{number}"] = {path.name for path in own}
    return found
