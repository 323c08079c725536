"""Terminals of any width, and the output to them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

#: Colors, movements of the cursor, and other sequences that a terminal does not show.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOR: Final = re.compile(r"\x1b\[[0-9;]*m")

#: Lines of progress of a slow command, on a standard error that is no terminal.
_PROGRESS: Final = re.compile(r"^\d\d:\d\d:\d\d [a-z].*\n", re.MULTILINE)

NO_VARIABLES: Final[Mapping[str, str]] = {}


class Terminal:
    """A terminal with a number of columns; a program may have its `end` as standard output and standard error."""

    def __init__(self, columns: int) -> None:
        self._ours, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> str:
        """Close the terminal, and return the output once nobody has its end any more."""
        os.close(self.end)
        self._reader.join()
        os.close(self._ours)
        return b"".join(self._chunks).decode().replace("\r\n", "\n")

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:  # the last end was closed
                return
            if not chunk:
                return
            self._chunks.append(chunk)


def shown(columns: int, show: Callable[[], None], monkeypatch: Any) -> str:
    """The output of `show` to a standard output that is a terminal with a number of columns."""
    terminal = Terminal(columns)
    with os.fdopen(os.dup(terminal.end), "w", encoding="utf-8") as out, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("COLUMNS", raising=False)
        show()
    return terminal.close()


def run(
    command: Sequence[str | Path],
    columns: int,
    variables: Mapping[str, str] = NO_VARIABLES,
    *,
    out: Any = None,
    do: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> tuple[int, str]:
    """The exit code of a command, and its output to a terminal with a number of columns. Its environment has more
    variables. `out` is its standard output if that is not the terminal. `do` is called with the command while it runs.
    """
    terminal = Terminal(columns)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=terminal.end if out is None else out,
        stderr=terminal.end,
        env={**environment, "TERM": "xterm-256color", **variables},
    ) as process:
        if do is not None:
            do(process)
    return process.returncode, terminal.close()


def without_controls(written: str) -> str:
    return _CONTROL.sub("", written)


def without_progress(err: str) -> str:
    """A command's standard error without lines of progress."""
    return _PROGRESS.sub("", err)


def has_colors(written: str) -> bool:
    """Whether something in the output is colored; bold and dim are no colors."""
    return any(30 <= int(number or 0) <= 107 for code in _COLOR.findall(written) for number in code[2:-1].split(";"))


def screen(written: str) -> list[str]:
    """The lines that stay on a terminal, without those that are cleared later, for the sequences of rich and click."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\n|\r)", written):
        if part == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part == "\x1b[1A":
            row = max(0, row - 1)
        elif part and not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return lines
