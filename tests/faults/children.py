"""What runs in processes of its own here: the library as `kidx build` uses it, and those that disturb it.

Each function is given a pipe to send on first. Imports the library only, so that a process starts fast.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa

import kidxlib.compaction.compact_partition
import kidxlib.indexing.segments
from kidxlib.cli.main import kidx, main
from kidxlib.compaction.compact_partition import CompactionOptions, CompactionTask, Mode, compact_each_partition
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import compare_with_catalog
from kidxlib.indexing.finish_partition import UnfinishedSegment, fold_and_publish
from kidxlib.indexing.known_segments import KNOWN
from kidxlib.indexing.plan import AuxiliaryFiles, Plan
from kidxlib.indexing.segments import BuiltSegment
from kidxlib.indexing.source import parse_sources
from kidxlib.operations.compare.file_pairs import LogPair, compare_log_pair
from kidxlib.operations.compare.place import list_place
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.retention.delete import PartitionDeletion, delete_planned_segments
from kidxlib.storage.lock import locked
from kidxlib.storage.log_bytes import ChunkedLog
from kidxlib.storage.opened_log import map_log, open_local_log
from kidxlib.storage.publisher import sweep_staging_files
from kidxlib.terminal.run_command import run
from tests.support.plans import plan_of

_DAY_NS: Final = 24 * 3600 * 10**9

#: Before each of these Python tells its audit hooks; together they are all that a build does to files but flushes.
_STEPS: Final = ("open", "os.mkdir", "os.rename", "os.remove", "os.scandir", "os.chown", "os.chmod")


def _plan(log_dir: Path, index_dir: Path | None) -> Plan:
    return plan_of(parse_sources([str(log_dir)]), index_dir)


def _build(log_dir: Path, index_dir: Path | None, use_mmap: bool = True) -> Iterator[BuiltSegment]:
    plan = _plan(log_dir, index_dir)
    with locked(log_dir) if index_dir is None else contextlib.nullcontext():
        for partition in plan.partitions:
            sweep_staging_files(partition.index_directory, time.time_ns() - _DAY_NS)
        left_to_do: dict[PartitionKey, list[UnfinishedSegment]] = defaultdict(list)
        tasks = plan.build_tasks(publish_truncated=index_dir is not None)
        for built in kidxlib.indexing.segments.build_segments(tasks, use_mmap):
            left_to_do[built.task.segment.partition_key].append(UnfinishedSegment.of(built))
            yield built
        for _ in fold_and_publish(
            (listed.partition_task(AuxiliaryFiles()), left_to_do[listed.key]) for listed in plan.partitions
        ):
            pass


def build(send: Connection, log_dir: Path, index_dir: Path | None, together: Path | None = None) -> None:
    """Build into an index directory, or in place where there is none.

    Args:
        together: wait until nobody holds this file locked.
    """
    if together is not None:
        with together.open() as file:
            send.send("waiting")
            fcntl.flock(file, fcntl.LOCK_SH)
    for _ in _build(log_dir, index_dir):
        pass


def build_and_tell(send: Connection, log_dir: Path, index_dir: Path) -> None:
    """Build into an index directory in groups of eight files, and tell of each row as it is given out."""
    with mock.patch.object(kidxlib.indexing.segments, "GROUP_FILES", 8):
        for built in _build(log_dir, index_dir):
            send.send(Path(built.task.segment.path))


def flush_forever(send: Connection, path: Path) -> None:
    """Write to a file and flush that file alone, again and again, until killed or its disk is gone."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        send.send("flushing")
        while True:
            file.write(b"noise")
            os.fsync(file.fileno())


def build_until_step(send: Connection, log_dir: Path, index_dir: Path | None, last_step: int | None) -> None:
    """Build in groups of four files; kill this process just before step number `last_step`. Sends the steps it took."""
    steps = _killed_before(last_step)
    with mock.patch.object(kidxlib.indexing.segments, "GROUP_FILES", 4):
        for _ in _build(log_dir, index_dir):
            pass
    send.send(steps())


def build_measured(send: Connection, log_dir: Path, index_dir: Path, use_mmap: bool) -> None:
    """Build; sends how each segment ended, then how much more memory this took, and how many bytes it read."""
    pa.array([0])  # pyarrow imports pandas at the first one, which is no cost of a build
    memory, read = _peak_memory(), _bytes_read()
    for built in _build(log_dir, index_dir, use_mmap):
        send.send((built.task.segment.base_offset, built.end, built.published))
    send.send((_peak_memory() - memory, _bytes_read() - read))


def build_as_nobody(send: Connection, log_dir: Path, index_dir: Path) -> None:
    """Build as a user without rights; sends each segment's path and how it ended, then what a catalog would change."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    for built in _build(log_dir, index_dir):
        send.send((Path(built.task.segment.path), built.end, built.published))
    wanted = AuxiliaryFiles(snapshots=True)
    plan = _plan(log_dir, index_dir)
    send.send(
        compare_with_catalog(
            plan, KNOWN.empty_table(), wanted, publish_truncated=True, explicit_interval=False, rebuild=False
        )
    )


def compare_as_nobody(send: Connection, one: Path, other: Path) -> None:
    """List a copy as a user without rights, and compare a log; sends what is said of each directory and of the log."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    directories = list_place(str(other)).directories
    log = next(path for path in sorted(one.glob("topic-0/*.log")))
    pair = LogPair(
        directory="topic-0",
        base_offset=0,
        one=str(log),
        other=str(other / "topic-0" / log.name),
        one_bytes=log.stat().st_size,
        other_bytes=log.stat().st_size,
    )
    send.send(({name: each.problem for name, each in directories.items()}, compare_log_pair(pair, False).problem))


def own_pid(work: str, use_mmap: bool) -> int:
    """Which process does a piece of work."""
    return os.getpid()


def be_kidx(out: Path, err: Path, arguments: list[str], variables: Mapping[str, str], directory: Path) -> None:
    """Be the command `kidx` that somebody else starts, as the first process of a session of its own.

    Args:
        out, err: new files, of its standard output, which is strict, and standard error.
        variables: its environment.
        directory: in which it works.
    """
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # it depends on the environment
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "utf-8", "strict")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.argv = ["kidx", *arguments]
    main()


def run_kidx(send: Connection, arguments: list[str]) -> None:
    """Run `kidx` and end with its exit code; sends what it printed on standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(kidx, "kidx", arguments)
        finally:
            send.send(out.getvalue())
            send.send(err.getvalue())


def run_kidx_until_step(send: Connection, arguments: list[str], last_step: int | None) -> None:
    """Run `kidx` with little to do, which it does by itself; kill this process just before step number `last_step`.
    Sends the steps it took.
    """
    steps = _killed_before(last_step)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            run(kidx, "kidx", arguments)
        except SystemExit as ended:
            send.send(ended.code)
            send.send(steps())


def hold_lock(send: Connection, lock_file: Path) -> None:
    """Lock a log dir as a broker does (`FileChannel.tryLock`: fcntl, the whole file), until killed."""
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    send.send("held")
    signal.pause()


def scan_logs(send: Connection, logs: Sequence[tuple[Path, int, RecoverOptions, int | None]]) -> None:
    """Scan logs, each with its base offset and options, mapped or in chunks of that many bytes.

    Sends the result of each, and last by how many bytes the peak of memory grew after the first one.
    """
    memory = None
    for path, base_offset, options, chunk_bytes in logs:
        with open_local_log(str(path)) as (descriptor, version):
            log = (
                map_log(descriptor, version.size)
                if chunk_bytes is None
                else ChunkedLog(descriptor, version.size, chunk_bytes)
            )
            send.send(recover(log, base_offset, options))
        memory = memory or _peak_memory()
    send.send(_peak_memory() - (memory or 0))


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def compact_until_step(
    send: Connection, log_dir: Path, tasks: Sequence[CompactionTask], options: CompactionOptions, last_step: int | None
) -> None:
    """Compact in groups of four changes; kill this process just before step number `last_step`. Sends each change as it
    is given out, and then the steps it took.
    """
    with locked(log_dir), mock.patch.object(kidxlib.compaction.compact_partition, "GROUP_FILES", 4):
        steps = _killed_before(last_step)
        for change in compact_each_partition(
            tasks, replace(options, locked=frozenset([str(log_dir)])), Mode.APPLY, use_mmap=True
        ):
            send.send(change)
    send.send(steps())


def _killed_before(last_step: int | None) -> Callable[[], int]:
    """Kill this process just before step number `last_step`. Returns what tells how many steps it took."""
    steps = 0

    def count(event: str, _: tuple[Any, ...]) -> None:
        nonlocal steps
        if event in _STEPS:
            if steps == last_step:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1

    sys.addaudithook(count)
    return lambda: steps


def apply_until_step(
    send: Connection, log_dir: Path, deletions: Sequence[PartitionDeletion], last_step: int | None
) -> None:
    """Apply a plan; kill this process just before step number `last_step`. Sends what it would have recorded, as
    soon as it would, and then the steps it took.
    """
    with locked(log_dir):
        steps = _killed_before(last_step)
        delete_planned_segments(deletions, send.send, lambda: None)
    send.send(steps())


def die_in_a_worker(_: object) -> None:
    """Units of work that end their worker, as the kernel does where memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_good(_: object) -> None:
    """Units of work that do not end by themselves. They make a file first, which the environment names."""
    Path(os.environ["KIDX_TEST_BEGUN"]).touch()
    while True:
        signal.pause()
