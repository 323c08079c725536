"""A command ends with its exit code, whatever threads of Arrow and delta-rs still hold of Python; an option that is
given twice is wrong usage.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import click
import pytest

from kidxlib.errors import UsageError
from kidxlib.terminal.run_command import ensure_no_option_twice

#: Arrow reads ahead from a file of Python in a thread of its own, as it does where delta-rs reads for it, and waits for
#: more. What it waits for comes when Python takes the modules apart, and Arrow's thread asks for Python's lock.
_READ_AHEAD: Final = """
import atexit, os, sys, threading, types
import click
import pyarrow.csv
from kidxlib.terminal.run_command import run

reader, writer = os.pipe()
waits = threading.Event()

class File:
    closed = False
    blocks = [b"a,b\\n1,2\\n"]
    def readable(self):
        return True
    def read(self, size):
        if self.blocks:
            return self.blocks.pop()
        waits.set()
        return os.read(reader, size)

class TakenApart:
    def __del__(self, write=os.write, writer=writer):
        write(writer, b"3,4\\n")

def read_ahead():
    sys.modules["apart"] = types.ModuleType("apart")
    sys.modules["apart"].object = TakenApart()
    threading.Thread(target=pyarrow.csv.open_csv, args=(File(),), daemon=True).start()
    waits.wait()
    atexit.register(print, "at exit")
    threading.Thread(target=print, args=("a thread",)).start()
"""
_COMMAND: Final = """
@click.command()
def command():
    read_ahead()
    {}
    return 3

run(command, "command")
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 lets such threads wait for ever, and may itself")
def test_python_alone_does_not_live_through_it() -> None:
    """Else nothing is tested here."""
    ended = _python(_READ_AHEAD + "read_ahead()\n")
    assert ended.returncode < 0, ended


@pytest.mark.parametrize(
    ("statement", "code", "error"),
    [
        ("print('done')", 3, ""),
        ("raise click.ClickException('no')", 2, "error: no\n"),
        ("raise OSError(24, 'Too many open files', 'a file')", 1, "error: a file: Too many open files\n"),
    ],
)
def test_a_command_ends_with_its_code(statement: str, code: int, error: str) -> None:
    ended = _python(_READ_AHEAD + _COMMAND.format(statement))
    assert (ended.returncode, ended.stderr) == (code, error)
    assert sorted(ended.stdout.splitlines()) == sorted(["a thread", "at exit", *["done"] * (code == 3)])
    assert ended.stdout.endswith("at exit\n")


def test_what_nobody_caught_is_told_and_is_a_failure() -> None:
    ended = _python(_READ_AHEAD + _COMMAND.format("raise ArithmeticError('a bug')"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback ") and ended.stderr.endswith("ArithmeticError: a bug\n")
    assert "at exit" in ended.stdout


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_output_that_nobody_reads_changes_no_code(closed: str) -> None:
    """That is flushed once more at the end."""
    statement = f"print('done', file=sys.{closed}); os.close(sys.{closed}.fileno())"
    ended = _python(_READ_AHEAD + _COMMAND.format(f"{statement}; raise click.ClickException('no')"))
    assert ended.returncode == 2


def _python(script: str) -> subprocess.CompletedProcess[str]:
    """A process that waits for ever fails here."""
    unbuffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=unbuffered, timeout=60
    )


@click.command()
@click.argument("places", nargs=-1)
@click.option("--name")
@click.option("-s", "--source", multiple=True)
@click.option("--quick", is_flag=True)
def _command(places: tuple[str, ...], name: str | None, source: tuple[str, ...], quick: bool) -> None:
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--name a",
        "--name --name",
        "-s a -s b --source=c",
        "--quick --quick",
        "--name a -- --name b",
        "a b --name=a",
    ],
)
def test_options_that_are_given_once(arguments: str) -> None:
    """Or may be given more often; a value may look like an option."""
    ensure_no_option_twice(_command, arguments.split())


@pytest.mark.parametrize("arguments", ["--name a --name b", "--name=a x --name b", "--name a --quick --name=a"])
def test_an_option_that_takes_one_value_is_given_once(arguments: str) -> None:
    with pytest.raises(UsageError, match="--name: given twice, and takes one value; give it once"):
        ensure_no_option_twice(_command, arguments.split())
