"""Many small segments: how many are scanned in a second, and what publishing adds to the bare file operations."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Target, record
from benchmarks.library import TimedBuild, at_once, plan_build, timed_build
from benchmarks.links import content_file, write_log_dir
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.location import Directory
from kidxlib.storage.opened_log import map_log, open_local_log
from kidxlib.storage.publisher import GROUP_FILES, Publisher
from kidxlib.terminal.console import note
from tests.support.page_cache import held_in_memory

_libc: Final = ctypes.CDLL(None, use_errno=True)


@click.command(name="small_segments")
@click.option("--segments", type=click.IntRange(2), default=20_000, show_default=True)
@click.option("--segment-bytes", type=click.IntRange(20_000), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def small_segments(segments: int, segment_bytes: int, rounds: int, directory: Path) -> None:
    """Build segments of 1 MB, hard links to few files in memory, by the library on all cores at once.

    Then publish as many index files of the same bytes in one process, by turns with a loop that writes, flushes and
    renames them in the same groups, and does nothing else.
    """
    place = directory.resolve() / f"small-segments-{segments}x{segment_bytes}"
    if not (place / "kafka-logs").exists():
        note(f"linking {segments:,} segments below {place} …")
        write_log_dir(place / "kafka-logs", segment_bytes, segments)
    shutil.rmtree(place / "aside", ignore_errors=True)
    builds, publishing, bare = [], [], []
    files = list(_index_files(place, segments))
    for number in range(rounds):
        note(f"round {number + 1} of {rounds} …")
        builds.append(_build(place))
        publishing.append(_timed(place, _publish, files))
        bare.append(_timed(place, _write_flush_rename, files))
    shutil.rmtree(place / "index")
    shutil.rmtree(place / "aside")
    slowest = [max(each, key=lambda build: build.seconds) for each in builds]
    scanning = [max(build.seconds - build.commit_seconds for build in each) for each in builds]
    targets = [
        Target(
            name="small segments: scanned and staged, on all cores",
            unit="segments/s",
            values=[segments / seconds for seconds in scanning],
            at_least=2000,
        ),
        Target(
            name="small segments: publishing, to write, flush and rename alone",
            unit="×",
            values=[ours / theirs for ours, theirs in zip(publishing, bare, strict=True)],
            at_most=1.5,
        ),
        Target(
            name="small segments: published too, on all cores",
            unit="segments/s",
            values=[segments / build.seconds for build in slowest],
        ),
        Target(name="small segments: publishing, one process", unit="s", values=publishing),
        Target(name="small segments: write, flush and rename, one process", unit="s", values=bare),
    ]
    record(directory, "small_segments", targets, builds=[[asdict(build) for build in each] for each in builds])


def _set_results_aside(place: Path) -> None:
    """Let the next round begin from nothing, but with nothing removed: for minutes ext4 passes over each inode that was
    freed, one by one, before it takes another (`recently_deleted`), so the next round would pay for the removal.
    """
    aside = place / "aside"
    aside.mkdir(exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (place / "index").rename(aside / str(len(os.listdir(aside))))
    os.sync()


def _build(place: Path) -> list[TimedBuild]:
    _set_results_aside(place)
    cores = len(os.sched_getaffinity(0))
    warm_up, *tasks = plan_build(place).build_tasks(publish_truncated=True)
    with held_in_memory(*map(content_file, (place / "kafka-logs").iterdir())):
        return at_once(timed_build, [(warm_up, tasks[core::cores]) for core in range(cores)])


@dataclass(frozen=True, slots=True)
class _File:
    partition: str
    name: str
    content: bytes


def _index_files(place: Path, segments: int) -> Iterator[_File]:
    """What a build of the segments publishes."""
    for partition in sorted((place / "kafka-logs").iterdir()):
        with open_local_log(str(partition / segment_file(0, LOG_SUFFIX))) as (descriptor, version):
            recovered = recover(map_log(descriptor, version.size), 0, RecoverOptions())
        for log in partition.iterdir():
            base_offset = int(log.stem)
            yield _File(partition.name, segment_file(base_offset, TIME_INDEX_SUFFIX), recovered.time_index)
            yield _File(partition.name, segment_file(base_offset, OFFSET_INDEX_SUFFIX), recovered.offset_index)


def _timed(place: Path, work: Callable[[Path, list[_File]], None], files: list[_File]) -> float:
    """Seconds for work in an empty index directory, when the disk has nothing else to do for us."""
    index_dir = place / "index"
    _set_results_aside(place)
    for partition in {file.partition for file in files}:
        (index_dir / partition).mkdir(parents=True)
    os.sync()
    start = time.perf_counter()
    work(index_dir, files)
    return time.perf_counter() - start


def _publish(index_dir: Path, files: list[_File]) -> None:
    with Publisher() as publisher:
        for file in files:
            publisher.stage(Directory(str(index_dir), file.partition), file.name, file.content)
            if publisher.staged_files >= GROUP_FILES:
                publisher.commit()
        publisher.commit()


def _write_flush_rename(index_dir: Path, files: list[_File]) -> None:
    root = os.open(index_dir, os.O_RDONLY | os.O_DIRECTORY)
    for start in range(0, len(files), GROUP_FILES):
        paths = []
        for file in files[start : start + GROUP_FILES]:
            paths.append(f"{index_dir}/{file.partition}/{file.name}")
            descriptor = os.open(f"{paths[-1]}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(descriptor, file.content)
            os.close(descriptor)
        _libc.syncfs(root)
        for path in paths:
            os.rename(f"{path}.tmp", path)
        _libc.syncfs(root)
    os.close(root)
