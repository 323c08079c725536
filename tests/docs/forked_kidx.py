"""`kidx` of the pages, forked from a process that has imported it: the imports take most of what each run takes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from tests.docs.pages import PROJECT
from tests.faults.processes import kill_session, while_it_runs

_SECONDS_MAX: Final = 120.0
_LOOK_SECONDS: Final = 10.0
#: Hands its arguments, environment, directory and standard streams over, and ends as the one that gets them.
_CLIENT: Final = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({place!r})
    socket.send_fds(server, [b"k"], [0, 1, 2])
    server.sendall(json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode())
    server.shutdown(socket.SHUT_WR)
    code = server.recv(8)
sys.exit(int(code))
"""


@contextlib.contextmanager
def forked_kidx(command: Path) -> Iterator[None]:
    """Write an executable that does what `.venv/bin/kidx` does, by a server that stands for as long as the context."""
    python = PROJECT / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="kidx-") as directory:  # the name of a socket is short
        place = Path(directory, "socket")
        serving = [str(python), "-c", "from tests.docs.forked_kidx import serve; serve()", str(place)]
        process = subprocess.Popen(serving, cwd=PROJECT, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
        try:
            while_it_runs(process, lambda: place.exists() or None, _SECONDS_MAX)  # until kidx is imported
            command.write_text(_CLIENT.format(python=python, place=str(place)))
            command.chmod(0o755)
            yield
        finally:
            kill_session(process)


def serve() -> None:
    """Listen at the place that is the first argument, and fork a `kidx` for each that connects, until who started this
    has ended.
    """
    from tests.faults import preloaded  # noqa: F401  (for what it imports)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    place, started_by = sys.argv[1], os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{place}.new")
        server.listen()
        server.settimeout(_LOOK_SECONDS)
        os.rename(f"{place}.new", place)
        while os.getppid() == started_by:
            with contextlib.suppress(TimeoutError):
                client, _ = server.accept()
                if os.fork() == 0:
                    server.close()
                    _answer(client)
                client.close()


def _answer(client: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    with client.makefile("rb") as asked:
        arguments, variables, directory = json.loads(asked.read())
    child = os.fork()
    if child == 0:
        client.close()
        _be_kidx(streams, arguments, variables, directory)
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    client.sendall(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _be_kidx(streams: list[int], arguments: list[str], variables: dict[str, str], directory: str) -> NoReturn:
    from kidxlib.cli.main import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # it depends on the environment
    sys.argv = arguments
    main()
