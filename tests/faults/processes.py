"""The command `kidx` and the library in processes of their own, to be watched, stopped and killed."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from kidxlib.storage.log_bytes import CHUNK_BYTES
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults import children
from tests.support.terminal import without_progress

#: Nothing here takes as long; what does, hangs.
DEADLINE_SECONDS: Final = 60.0
_MOMENT_SECONDS: Final = 10.0
#: Between two looks at a process, of which each takes some time of a core.
_PAUSE_SECONDS: Final = 0.002

KIDX: Final = "from kidxlib.cli.main import main; main()"
#: A `kidx` that gets Ctrl-C in the moment after a function of a module has ended.
INTERRUPTED_AFTER: Final = f"""
import os, signal
import {{module}} as module
function = module.{{name}}
def interrupted(*arguments, **options):
    done = function(*arguments, **options)
    os.kill(os.getpid(), signal.SIGINT)
    return done
module.{{name}} = interrupted
{KIDX}
"""

# A process of the library then costs a fork in place of a second of imports. The server is a fresh interpreter.
_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["tests.faults.preloaded"])

_Process: TypeAlias = subprocess.Popen[str] | ForkServerProcess
_T = TypeVar("_T")
_P = ParamSpec("_P")


class TooLateError(Exception):
    """A `kidx` was faster than the test that wanted to disturb it, as can happen where other processes are busy."""


def again_if_too_late(test: Callable[_P, None]) -> Callable[_P, None]:
    """Run a test again that came too late; the fifth time that counts as a failure."""

    @functools.wraps(test)
    def run(*arguments: _P.args, **named: _P.kwargs) -> None:
        for _ in range(4):
            with contextlib.suppress(TooLateError):
                return test(*arguments, **named)
        return test(*arguments, **named)

    return run


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its exit code, and what it printed but for lines that say how far a slow run is.

    `left` are the processes that it started and that did not end with it.
    """

    code: int
    out: str
    err: str
    left: tuple[int, ...] = ()

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def assert_one_line(self, code: ExitCode, *parts: object, former: str = "") -> None:
        """It ended with that code, printed nothing but one line `error: …`, and that line has all the parts.

        Args:
            former: an old spelling, which is told in a line before.
        """
        assert self.code == code and self.out == "", self
        lines = [line for line in self.err.splitlines() if line]
        if former:
            assert lines.pop(0).startswith(f"warning: {former} is now "), self.err
        assert len(lines) == 1 and lines[0].startswith("error: "), self.err
        assert [part for part in parts if str(part) not in lines[0]] == [], self.err


def start_kidx(
    *arguments: str | Path,
    cwd: Path | None = None,
    before: Sequence[str] = (),
    terminal: int | None = None,
    program: str = KIDX,
    **variables: str | Path,
) -> subprocess.Popen[str]:
    """Start `kidx` as the first process of a session of its own. Its output is strict, as in most UTF-8 locales.

    Args:
        before: the command that starts it, as nohup.
        terminal: where its output goes.
        program: what it is to Python.
        variables: more, for its environment.
    """
    output = subprocess.PIPE if terminal is None else terminal
    return subprocess.Popen(
        [*before, sys.executable, "-c", program, *map(str, arguments)],
        stdout=output,
        stderr=output,
        text=True,
        errors="surrogateescape",
        start_new_session=True,
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict", **{name: str(each) for name, each in variables.items()}},
    )


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for a `kidx` to end, and kill what it leaves.

    Its workers and Python's resource tracker end when they see that it has: a moment after it, and by themselves.
    """
    with process:
        try:
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
            left = _left(process)
        finally:
            kill_session(process)
    return Ended(process.returncode, out or "", without_progress(err or ""), left)  # a terminal keeps what it gets


def _left(process: _Process) -> tuple[int, ...]:
    return tuple(pid for pid in session(process) if not wait_for_end(pid, _MOMENT_SECONDS))


def kidx(*arguments: str | Path, cwd: Path | None = None) -> Ended:
    """Run `kidx` to its end, as `start_kidx` and `end` would, in a process that has imported it: see `preloaded`."""
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        asked = [str(argument) for argument in arguments], dict(os.environ), cwd or Path.cwd()
        process: ForkServerProcess = _forkserver.Process(target=children.be_kidx, args=(out, err, *asked))
        process.start()
        try:
            process.join(DEADLINE_SECONDS)
            assert process.exitcode is not None, "it hangs"
            left = _left(process)
        finally:
            process.kill()  # where it has no session yet
            _kill(process)
            process.join()
        printed = [path.read_text("utf-8", "surrogateescape") for path in (out, err)]
    return Ended(process.exitcode, printed[0], without_progress(printed[1]), left)


def refused_kidx(*arguments: str | Path) -> Ended:
    """Run a `kidx` that is expected to refuse its arguments, in a process that may start no others."""
    with Child(children.run_kidx, [str(argument) for argument in arguments]) as child:
        (out, err), code = child.end()
    return Ended(code, out, without_progress(err))


def session(process: _Process) -> list[int]:
    """The processes of a `kidx` that are alive, its workers among them, also when it has ended itself."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, session_id = (directory / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session_id) == process.pid and state not in "ZX":
                found.append(int(directory.name))
    return found


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes of a `kidx` that read segments; it has started them itself."""
    found = []
    for pid in _children(process):
        with contextlib.suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _children(process: subprocess.Popen[str]) -> list[int]:
    """The processes that another one has started: to be asked for again and again, so without a look at all others."""
    with contextlib.suppress(OSError):  # it has ended
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
    return []


def kill_session(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a `kidx` and its workers."""
    _kill(process)
    process.wait()


def _kill(process: _Process) -> None:
    for pid in session(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_gently(process: subprocess.Popen[str]) -> None:
    """Ask a process to end itself and what it has started, and kill what is left a moment later."""
    process.terminate()
    wait_for_end(process.pid, _MOMENT_SECONDS)
    kill_session(process)


def wait_for_end(pid: int, seconds: float) -> bool:
    """Wait until a process has ended; False where it has not after that time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def while_it_runs(
    process: subprocess.Popen[str], condition: Callable[[], _T | None], seconds: float = DEADLINE_SECONDS
) -> _T:
    """Ask again and again, every few milliseconds, until the answer is not None, and give it.

    Raises:
        TooLateError: the process has ended without.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer is not None:
            return answer
        if wait_for_end(process.pid, _PAUSE_SECONDS):
            raise TooLateError
    raise AssertionError("it hangs")


class Running:
    """A `kidx` in its own session, to be disturbed; `ended` stands when the context has ended.

    Args:
        find_workers: how to find the processes that read segments, for what is not `kidx`.
        seconds: nothing that is waited for takes as long.
    """

    ended: Ended

    def __init__(
        self,
        process: subprocess.Popen[str],
        find_workers: Callable[[subprocess.Popen[str]], list[int]] = workers,
        seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.process, self._find_workers, self._seconds = process, find_workers, seconds

    def mapping(self, log: Path) -> int:
        """The worker that has mapped a log, so has noted its version and scans it, as soon as there is one."""
        return while_it_runs(self.process, lambda: _mapping(self._find_workers(self.process), log), self._seconds)

    @contextlib.contextmanager
    def stopped_within(self, log: Path) -> Iterator[int]:
        """The worker that scans a log that it has mapped, stopped for as long as the context lasts.

        It has come some way, so it has asked what is in memory; and not to the last eighth, which it will touch.
        """
        worker = while_it_runs(self.process, lambda: self._stop_within(log), self._seconds)
        with stopped(worker):
            yield worker

    def _stop_within(self, log: Path) -> int | None:
        worker = _mapping(self._find_workers(self.process), log)
        if worker is not None:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(worker, signal.SIGSTOP)
                while_it_runs(self.process, lambda: stands_still(worker) or None, self._seconds)
                if 0 < _touched(worker, log) < log.stat().st_size * 7 // 8:
                    return worker
                os.kill(worker, signal.SIGCONT)
        return None

    def reading(self, log: Path) -> int:
        """The worker that reads a log in chunks, as soon as it has read some."""
        worker = while_it_runs(self.process, lambda: _opened(self._find_workers(self.process), log), self._seconds)
        start = _bytes_read(worker)
        while_it_runs(self.process, lambda: _bytes_read(worker) > start + 2 * CHUNK_BYTES or None, self._seconds)
        return worker

    def killed(self, worker: int) -> None:
        """Wait until a worker is dead."""
        while_it_runs(self.process, lambda: wait_for_end(worker, 0) or None, self._seconds)

    def kill(self, worker: int) -> None:
        """Kill a worker (-9), and wait until it is dead."""
        os.kill(worker, signal.SIGKILL)
        assert wait_for_end(worker, DEADLINE_SECONDS)


@contextlib.contextmanager
def stopped(worker: int) -> Iterator[None]:
    """Stop a process for as long as the context lasts."""
    os.kill(worker, signal.SIGSTOP)
    yield
    with contextlib.suppress(ProcessLookupError):  # it was killed
        os.kill(worker, signal.SIGCONT)


@contextlib.contextmanager
def running_kidx(*arguments: str | Path) -> Iterator[Running]:
    """Start `kidx`. The end of the context waits for its end; where the body failed, kills it."""
    with watched(start_kidx(*arguments)) as running:
        yield running


@contextlib.contextmanager
def watched(process: subprocess.Popen[str]) -> Iterator[Running]:
    """The same for one that was started."""
    running = Running(process)
    try:
        yield running
    except BaseException:
        kill_session(running.process)
        raise
    finally:
        running.ended = end(running.process)


def stands_still(pid: int) -> bool:
    """Whether a process that was sent SIGSTOP has stopped: it does when the kernel has done what it is at."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _mapping(pids: Iterable[int], log: Path) -> int | None:
    for pid in pids:
        with contextlib.suppress(OSError):
            if f"{log}\n" in Path(f"/proc/{pid}/maps").read_text():
                return pid
    return None


def _touched(pid: int, log: Path) -> int:
    """How many bytes of a log a process has touched where it has mapped it; 0 where it has not."""
    mapped = re.search(
        rf" {re.escape(str(log))}\n(?:\w+: .*\n)*?Rss: +(\d+) kB", Path(f"/proc/{pid}/smaps").read_text()
    )
    return int(mapped[1]) * 1024 if mapped else 0


def _opened(pids: Iterable[int], log: Path) -> int | None:
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") == str(log):
                        return pid
    return None


def _bytes_read(pid: int) -> int:
    """How many bytes a process has got from reading, so without those of mapped files; 0 where it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])
    return 0


class Child:
    """A function of `tests.faults.children` in a process of its own. Use as a context: it does not outlive it.

    `received` gives what the function sends.
    """

    def __init__(self, function: Callable[..., None], *arguments: object) -> None:
        self.received, sender = _forkserver.Pipe(duplex=False)
        self.process: ForkServerProcess = _forkserver.Process(target=function, args=(sender, *arguments), daemon=True)
        self.process.start()
        sender.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self.received.close()

    def end(self) -> tuple[list[Any], int]:
        """Wait for it to end: what it sent, and its exit code (−9 for a kill)."""
        messages = []
        with contextlib.suppress(EOFError):
            while self.received.poll(DEADLINE_SECONDS):
                messages.append(self.received.recv())
        self.process.join(DEADLINE_SECONDS)
        assert self.process.exitcode is not None, "it hangs"
        return messages, self.process.exitcode


def run_child(function: Callable[..., None], *arguments: object) -> list[Any]:
    """Run a function in a process of its own: what it sent."""
    with Child(function, *arguments) as child:
        messages, code = child.end()
    assert code == 0, f"exit code {code}"
    return messages
