"""Ctrl-C, SIGTERM and SIGHUP, sent for real: one line that says what is done, nothing left over, their exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.conftest import Guard
from tests.faults.processes import (
    INTERRUPTED_AFTER,
    Ended,
    TooLateError,
    again_if_too_late,
    end,
    kidx,
    start_kidx,
    wait_for_end,
    watched,
    while_it_runs,
)
from tests.faults.trees import in_memory, indexes, lying_log, small_log, snapshot, staging_files, write_log
from tests.support.logs import golden
from tests.support.restored import killed_log_dir
from tests.support.terminal import without_progress

_CODES: Final = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HUNG_UP,
}
#: All signals take the same way, which a dump takes with each of them at each run.
_EACH_SIGNAL: Final = [
    pytest.param(signal_, marks=() if signal_ is signal.SIGTERM else pytest.mark.exhaustive("takes seconds for each"))
    for signal_ in _CODES
]
_BASE_LOG: Final = f"{0:020d}.log"
_TXN: Final = "txn-mixed-0"


@pytest.fixture(autouse=True)
def heard_hangups() -> Iterator[None]:
    """SIGHUP reaches what is started here under nohup, too: a process inherits what is ignored, but no handler."""
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    if is_nohup:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    yield
    if is_nohup:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.fixture(scope="module")
def slow_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log that takes a moment to be checked. Only ever linked."""
    log = lying_log(tmp_path_factory.mktemp("slow"), 0, 1 << 30)
    with in_memory(log):
        yield log


@pytest.fixture
def log_dir(tmp_path: Path, slow_log: Path) -> Path:
    """A segment that takes a moment to be checked, the sample's transactions, and small segments."""
    directory = tmp_path / "kafka-logs"
    (directory / "slow-0").mkdir(parents=True)
    os.link(slow_log, directory / "slow-0" / _BASE_LOG)
    shutil.copytree(golden.SAMPLES / _TXN, directory / _TXN)
    write_log(directory / "slow-0", 1, small_log(base_offset=1))  # so that the other one is not active, and mapped
    for base_offset in (0, 40):
        write_log(directory / "fast-0", base_offset, small_log(base_offset=base_offset))
    return directory


def assert_interrupted(ended: Ended, signal_: signal.Signals, *parts: str) -> None:
    """One line, or one more for who waits, and none of Python's own."""
    lines = [
        line
        for line in without_progress(ended.err).splitlines()
        if not line.startswith("interrupted: the current work")
    ]
    assert (ended.code, ended.out) == (_CODES[signal_], ""), ended
    assert len(lines) == 1 and lines[0].startswith("error: interrupted: "), ended
    assert [part for part in parts if part not in lines[0]] == [], ended


@again_if_too_late
@pytest.mark.parametrize("signal_", _EACH_SIGNAL, ids=lambda signal_: str(signal_.name))
def test_an_interrupted_build_keeps_what_is_done_and_leaves_nothing_else(
    signal_: signal.Signals, tmp_path: Path, log_dir: Path, guard: Guard
) -> None:
    """What was begun is done, what was not is said, and no temporary file stays, in place neither. The signal to all
    processes, as a terminal sends it, while a worker stands amid a scan and the other one has held back the offset
    indexes of segments with transactions. Then the same command again.
    """
    guard(log_dir)
    for path in log_dir.rglob("*.*index"):  # of an attempt that came too late
        path.unlink()
    scratch = Path(tempfile.mkdtemp(dir=tmp_path))
    process = start_kidx("build", log_dir, "--in-place", "--accept-truncated", "--processes", "2", TMPDIR=scratch)
    with watched(process) as running, running.stopped_within(log_dir / "slow-0" / _BASE_LOG):
        while_it_runs(process, lambda: len(list(log_dir.rglob(".kidx-held-*"))) == 4 or None)
        os.killpg(process.pid, signal_)
    if running.ended.code == ExitCode.PROBLEMS_FOUND:
        raise TooLateError
    assert_interrupted(running.ended, signal_, " of 8 segments read; run the same command again")
    assert staging_files(log_dir) == [] and list(scratch.iterdir()) == []
    found = indexes(log_dir)
    assert not any(name.startswith(_TXN) and name.endswith(OFFSET_INDEX_SUFFIX) for name in found), found
    assert found, "what was read before has its index files"

    again = kidx("build", log_dir, "--in-place", "--accept-truncated", "--processes", "1")
    assert again.code == ExitCode.PROBLEMS_FOUND, again
    assert kidx("verify", log_dir, "--topics", "txn-mixed|fast").code == ExitCode.OK


_OPERATIONS: Final = "kidxlib.operations"
_STAYS: Final = "what is done stays, the rest is not done; run the same command again"


@pytest.mark.parametrize(
    ("command", "module", "name", "says"),
    [
        (["build", "--in-place"], f"{_OPERATIONS}.build.build", "build_once", _STAYS),
        (["recover", "--apply"], f"{_OPERATIONS}.recover.recover", "recover_log_dirs", _STAYS),
        (["recover"], f"{_OPERATIONS}.recover.recover", "recover_log_dirs", "nothing was done"),
        (
            ["build", "--in-place", "--json-line=-"],
            "kidxlib.commands.command",
            "_write_json_line",
            "all is done, and was printed",
        ),
    ],
    ids=["build", "recover", "plan", "line of JSON"],
)
def test_between_the_end_of_its_work_and_its_own_end_a_command_says_what_it_has_done(
    command: list[str], module: str, name: str, says: str, tmp_path: Path
) -> None:
    """In no context that knows how far the work is."""
    log_dir = killed_log_dir(tmp_path, 1)
    ended = end(start_kidx(*command, log_dir, program=INTERRUPTED_AFTER.format(module=module, name=name)))
    lines = [line for line in ended.err.splitlines() if line.startswith("error: interrupted: ")]
    assert ended.code == ExitCode.INTERRUPTED and len(lines) == 1, ended
    assert lines[0].startswith(f"error: interrupted: {says}")


@again_if_too_late
@pytest.mark.parametrize("command", ["build", "verify"])
def test_what_was_not_begun_is_not_begun(command: str, tmp_path: Path, log_dir: Path, guard: Guard) -> None:
    """One segment more at most for each worker, and the line counts those that were read. One worker, which reads the
    largest first and is stopped amid that.
    """
    guard(log_dir)
    before = snapshot(log_dir)
    index_dir = Path(tempfile.mkdtemp(dir=tmp_path))
    process = start_kidx(command, log_dir, "--index-dir", index_dir, "--processes", "1")
    with watched(process) as running, running.stopped_within(log_dir / "slow-0" / _BASE_LOG):
        process.send_signal(signal.SIGINT)
    if running.ended.code == ExitCode.PROBLEMS_FOUND:
        raise TooLateError
    assert_interrupted(running.ended, signal.SIGINT, "1 of 8 segments ")
    assert len(indexes(index_dir)) == (2 if command == "build" else 0)
    assert staging_files(index_dir) == [] and snapshot(log_dir) == before


@again_if_too_late
def test_the_second_signal_ends_at_once(tmp_path: Path, log_dir: Path, guard: Guard) -> None:
    """Signal after signal while the only worker is stopped, so that it cannot come to its end."""
    guard(log_dir)
    process = start_kidx("build", log_dir, "--index-dir", tmp_path / "index", "--processes", "1")
    with watched(process) as running, running.stopped_within(log_dir / "slow-0" / _BASE_LOG):
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            wait_for_end(process.pid, 0.1)
    assert_interrupted(running.ended, signal.SIGINT, "ended at once")
    assert running.ended.left == ()


@pytest.mark.parametrize("signal_", _CODES, ids=lambda signal_: str(signal_.name))
def test_a_dump_that_is_interrupted_is_one_line(signal_: signal.Signals, tmp_path: Path) -> None:
    """Its reader takes nothing more once the first line is there, so that it stands amid its output."""
    log = write_log(tmp_path / "topic-0", 0, small_log(batches=20_000))
    process = start_kidx("dump", log)
    assert process.stdout is not None and process.stdout.readline().startswith("Dumping ")
    process.send_signal(signal_)
    ended = end(process)
    assert ended.code == _CODES[signal_] and ended.err == "error: interrupted: the rest is not shown\n", ended.err


def test_a_signal_at_the_start_is_one_line(tmp_path: Path) -> None:
    """While modules are imported: as soon as the process has handlers of its own, at which moment ever that is."""
    process = start_kidx("verify", golden.SAMPLES)
    while_it_runs(process, lambda: _catches(process.pid, signal.SIGTERM) or None)
    process.send_signal(signal.SIGTERM)
    assert_interrupted(end(process), signal.SIGTERM)


@again_if_too_late
def test_a_terminal_that_has_gone(tmp_path: Path, log_dir: Path, guard: Guard) -> None:
    """Nothing is left over, and the exit code says why; a traceback would end it with 1. A pseudo-terminal whose other
    side is closed, as sshd does it when a connection drops, while the only worker stands amid a scan.
    """
    guard(log_dir)
    scratch, index_dir = (Path(tempfile.mkdtemp(dir=tmp_path)) for _ in range(2))
    ours, terminal = os.openpty()
    arguments = ("build", log_dir, "--index-dir", index_dir, "--processes", "1")
    process = start_kidx(*arguments, terminal=terminal, TMPDIR=scratch)
    os.close(terminal)
    with watched(process) as running, running.stopped_within(log_dir / "slow-0" / _BASE_LOG):
        os.close(ours)
        os.killpg(process.pid, signal.SIGHUP)
    assert running.ended.code == ExitCode.HUNG_UP
    assert running.ended.left == () and list(scratch.iterdir()) == [] and staging_files(index_dir) == []


@again_if_too_late
def test_nohup_goes_on(log_dir: Path, tmp_path: Path, guard: Guard) -> None:
    """What is to be ignored at the start stays so: the run comes to its end, with all segments."""
    guard(log_dir)
    index_dir = tempfile.mkdtemp(dir=tmp_path)
    arguments = ("build", log_dir, "--index-dir", index_dir, "--processes", "1", "--json")
    process = start_kidx(*arguments, before=("nohup",))
    with watched(process) as running, running.stopped_within(log_dir / "slow-0" / _BASE_LOG):
        os.killpg(process.pid, signal.SIGHUP)
    assert running.ended.code == ExitCode.PROBLEMS_FOUND, running.ended
    assert sum(running.ended.json["by_status"].values()) == 8


def _catches(pid: int, signal_: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, as the kernel says."""
    (caught,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught.split()[1], 16) & 1 << (signal_ - 1))
