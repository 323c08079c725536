"""Logs that `kidx recover --truncate` cuts, compared with what Kafka's `LogLoader` makes of the same directories."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.format.checkpoint_files import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, offset_checkpoint
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, parse_segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.partition_fold import Producers
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_offset_checkpoint
from tests.conftest import Say
from tests.faults.processes import kidx
from tests.kafka.loaded import files_of, load, offsets_go_back, spoil
from tests.support.cluster_metadata import write_checkpoints
from tests.support.kafka.classes import Kafka
from tests.support.kafka.jars import OLDER, with_older_kafkas
from tests.support.logs.random_logs import write_random_log

#: Why a partition is not cut, in parts of the refusals.
_REFUSED: Final = {
    "fails": ("a broker fails on it", "a broker does not start with it", "a broker that starts ends with an error"),
    "split": ("a broker splits the segment",),
    "swap": ("about to put it in the place",),
    "no producers": ("no producer snapshot",),
    "left": ("leaves it to the broker",),
    "wrong log start": ("log-start-offset-checkpoint is wrong",),
    "the end lies aside": (" begin there", " begins there"),
}


def _take_snapshots(directory: Path) -> None:
    """Snapshots as a broker takes them; these logs are of no idempotent producers."""
    for log in sorted(directory.glob(f"*{LOG_SUFFIX}"))[1:]:
        log.with_suffix(SNAPSHOT_SUFFIX).write_bytes(Producers().snapshot())


class _LogDir:
    """A killed broker's log dir with spoilt partitions, and a copy of it that kidx does not see."""

    def __init__(self, directory: Path, rng: random.Random, count: int) -> None:
        self.path, self.untouched = directory / "logs", directory / "untouched"
        self.path.mkdir()
        (self.path / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
        write_checkpoints(self.path)
        self.partitions = [TopicPartition("test", number) for number in range(count)]
        for each in self.partitions:
            write_random_log(self.path / each.directory, rng)
            if rng.random() < 0.7:  # else nothing may tell a broker of its producers
                _take_snapshots(self.path / each.directory)
            spoil(self.path / each.directory, rng)
            (self.path / each.directory / PARTITION_METADATA).write_text(
                "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
            )
        self.points = {each: rng.choice([0, 0, rng.randrange(60)]) for each in self.partitions}
        self.starts = {each: rng.choice([0, 0, 0, rng.randrange(60)]) for each in self.partitions}
        self._write_checkpoints()
        shutil.copytree(self.path, self.untouched)

    def take_away(self, partition: TopicPartition) -> None:
        """With all that names it: a partition that a checkpoint names is missing otherwise."""
        shutil.rmtree(self.path / partition.directory)
        self.partitions.remove(partition)
        self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        for name, offsets in ((RECOVERY_POINT_CHECKPOINT, self.points), (LOG_START_OFFSET_CHECKPOINT, self.starts)):
            (self.path / name).write_bytes(offset_checkpoint({each: offsets[each] for each in self.partitions}))


@pytest.mark.promised_alone("starts are simulated with both")
@pytest.mark.parametrize("level", ["checkpoint", "marker"])
def test_logs_are_cut_as_by_log_loader(
    level: str, kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """Where a log is cut, and what is dropped, is what Kafka does by itself. Once Kafka has loaded what is left, logs,
    ends and the indexes of all segments that it would have recovered are byte by byte the same. Random logs are spoilt.
    Partitions that are refused are taken away, once the reason was compared with Kafka's. The others are cut; then
    Kafka loads these, and a copy that nobody has touched.
    """
    say(f"{level}, as Kafka's: {_cut_many(level, kafka, scratch, rng, 1_500 if exhaustive else 80)}")


@pytest.mark.parametrize("level", ["checkpoint", "marker"])
@with_older_kafkas
@pytest.mark.parametrize("version", OLDER)
def test_logs_are_cut_as_by_older_brokers(
    version: str, level: str, scratch: Path, rng: random.Random, say: Say
) -> None:
    with Kafka(version=version) as kafka:
        otherwise = version.startswith(("3.", "4.0."))
        say(f"Kafka {version}, {level}: {_cut_many(level, kafka, scratch, rng, 300, searches_otherwise=otherwise)}")


def _cut_many(
    level: str, kafka: Kafka, scratch: Path, rng: random.Random, count: int, *, searches_otherwise: bool = False
) -> dict[str, int]:
    """Compare so many partitions with a Kafka; how each ended.

    Args:
        searches_otherwise: leave out logs whose offsets go back.
    """
    log_dir, ends = _LogDir(scratch, rng, count), Counter[str]()
    for partition in list(log_dir.partitions) if searches_otherwise else []:
        if offsets_go_back(log_dir.path / partition.directory):
            ends["offsets go back"] += 1
            log_dir.take_away(partition)
    arguments = ("recover", log_dir.path, "--level", level, "--truncate", "--keep", scratch / "kept", "--accept-loss")
    ended = kidx(*arguments, "--json")
    assert ended.code in (0, 2, 3), ended
    planned = ended.json
    left = {Path(each["directory"]) for each in planned["partitions"] if each["left_to_the_broker"]}
    for partition in list(log_dir.partitions):
        directory = log_dir.path / partition.directory
        refusals = [each for each in planned["refused"] if each.startswith((f"{directory}:", f"{directory}/"))]
        if refusals or directory in left:
            why = _why(refusals)
            ends[why] += 1
            alone = load(
                kafka,
                log_dir.untouched / partition.directory,
                log_dir.starts[partition],
                log_dir.points[partition],
                clean=False,
            )
            assert (alone is None) == (why == "fails") or why in ("swap", "split"), (partition, refusals)
            log_dir.take_away(partition)
    ended = kidx(*arguments, "--apply", "--json")
    assert ended.code in (0, 3), ended.json["refused"]
    cut = {Path(each["directory"]).name for each in ended.json["partitions"] if each["cut"]}
    assert len(cut) > len(log_dir.partitions) / 10
    points = read_offset_checkpoint(log_dir.path / RECOVERY_POINT_CHECKPOINT) or {}
    for partition in log_dir.partitions:
        is_cut = partition.directory in cut
        ends["cut" if is_cut else "whole"] += 1
        _compare(kafka, log_dir, partition, points.get(partition, 0), is_cut=is_cut, clean=level == "marker")
    return dict(ends)


def _why(refusals: list[str]) -> str:
    for why, parts in _REFUSED.items():
        if any(part in refusal for refusal in refusals for part in parts):
            return why
    assert not refusals, refusals
    return "left"


def _compare(
    kafka: Kafka, log_dir: _LogDir, partition: TopicPartition, point: int, *, is_cut: bool, clean: bool
) -> None:
    ours, theirs = log_dir.path / partition.directory, log_dir.untouched / partition.directory
    start, point_before = log_dir.starts[partition], log_dir.points[partition]
    simulated = simulate_startup(
        theirs, RecoverOptions(), clean_shutdown=False, recovery_point=point_before, log_start_offset=start
    )
    recovered = {each.base_offset for each in simulated.segments if each.action is not StartupAction.LOAD}
    before = files_of(ours, (LOG_SUFFIX,))
    alone = load(kafka, theirs, start, point_before, clean=False)
    loaded = load(kafka, ours, start, point, clean=clean)
    assert alone is not None and loaded is not None, partition
    if is_cut:
        assert before == alone.logs
    assert (loaded.segments, loaded.ends, loaded.logs) == (alone.segments, alone.ends, alone.logs), partition

    def of_recovered(indexes: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: each for name, each in indexes.items() if (parse_segment_file(name) or (-1,))[0] in recovered}

    assert of_recovered(loaded.indexes) == of_recovered(alone.indexes), partition
