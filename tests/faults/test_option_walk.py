"""A random walk over the options of every command and job, with values and files that none of them can use.

Options are those that click knows, so that new ones come in by themselves. No worker process and no Spark is started:
this process does the work, and a job ends where it would start Spark.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pytest

import jobs
from kidxlib.cli.main import kidx
from kidxlib.engine.local import Workers
from kidxlib.errors import UsageError
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.run_command import run
from tests.conftest import Say
from tests.faults.trees import small_log, write_log
from tests.support.spark.jobs import Ended

_WALKS: Final = 500
_MANY_WALKS: Final = 20_000
_WOULD_START: Final = "Spark would start"

_NO_FILES: Final = (click.Choice, click.types.IntParamType, click.types.BoolParamType)

#: What may stand in the place of any value.
_WORDS: Final = (
    *("", " ", "x", "-1", "0", "1", "007", "1.5", "1e3", "nan", "inf", "99999999999999999999", "-9223372036854775809"),
    *("a\nb", "\udcff", "é", "ﷺ" * 40, "x" * 300, "a/" * 2_100, "a=b", "=", "..", ".", "~", "*", "(", "[red]"),
    *("s3://", "s3://bucket/../x", "https://host/x", "file:///tmp", "--", "-", "@", "7d", "2026-13-01"),
    *("/", "/dev/null", "/dev/full", "/proc/self/mem", "/proc/1/root", "'; DROP TABLE segments"),
)  # fmt: skip


def _inline(_: Workers, do: Callable[[Any, bool], Any], work: Sequence[Any], take: Callable[[Any], None]) -> None:
    """In place of worker processes: does the work in this one."""
    for unit in work:
        take(do(unit, False))


def _no_session() -> None:
    raise UsageError(_WOULD_START)


def _commands() -> dict[str, click.Command]:
    """Every command of `kidx`, and every job, by how it is called."""
    context = click.Context(kidx)
    found = {f"kidx {name}": kidx.get_command(context, name) for name in kidx.list_commands(context)}
    for path in sorted(Path(jobs.__path__[0]).glob("[a-z]*.py")):
        module = importlib.import_module(f"jobs.{path.stem}")
        found[f"./spark-submit.sh {path.stem}"] = getattr(module, path.stem)
    return {name: command for name, command in found.items() if command is not None}


@pytest.mark.parametrize("name", _commands())
def test_help_says_what_a_number_is_of(name: str) -> None:
    """An option that takes a number has a metavar of its own: `N`, `BYTES`, `MS`, `OFFSET`."""
    for option in _commands()[name].params:
        assert option.metavar or not isinstance(option.type, click.types.IntParamType), (name, option.opts)


def _files(root: Path) -> list[str]:
    """Files and directories that are not what anybody expects, and some that are."""
    write_log(root / "kafka-logs" / "topic-0", 0, small_log(4))
    write_log(root / "kafka-logs" / "topic-1", 0, small_log(4) + b"no batch")
    (root / "empty").touch()
    (root / "empty.log").touch()
    (root / "nothing").mkdir()
    (root / "loop").symlink_to("loop")
    (root / "nowhere").symlink_to("missing")
    (root / "bytes").write_bytes(bytes(range(256)))
    (root / "nul.toml").write_bytes(b'[build]\nindex_dir = "a\\u0000b"\n')
    (root / "wrong.toml").write_text('[build]\ninterval_bytes = "x"\nfast = true\n')
    (root / "broken.toml").write_bytes(b"[[[\xff")
    (root / "questions.csv").write_text("topic,partition,offset\ntopic,x,1\n")
    os.mkfifo(root / "fifo")
    with (root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    log = root / "kafka-logs" / "topic-0" / f"{0:020d}.log"
    places = [root / "kafka-logs", log.parent, root / "missing" / "x", log / "below", root / "new"]
    return [
        str(path) for path in (*root.iterdir(), *places, log, log.with_suffix(".index"), root / os.fsdecode(b"\xff"))
    ]


def _arguments(command: click.Command, files: Sequence[str], rng: random.Random) -> list[str]:
    """Some of its options, in any order, with any values; its arguments mostly."""
    chosen: list[list[str]] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            chosen += [[_value(parameter, files, rng)] for _ in range(rng.choice((0, 1, 1, 1, 2)))]
            continue
        assert isinstance(parameter, click.Option)
        if rng.random() < (0.8 if parameter.required else 2.5 / len(command.params)):
            name = rng.choice([*parameter.opts, *parameter.secondary_opts])
            chosen.append([name] if parameter.is_flag else [name, _value(parameter, files, rng)])
    rng.shuffle(chosen)
    return [word for words in chosen for word in words]


def _value(parameter: click.Parameter, files: Sequence[str], rng: random.Random) -> str:
    if rng.random() < 0.3:  # a right one, so that others are looked at
        return _right_value(parameter, files, rng)
    return rng.choice(files) if rng.random() < 0.6 else rng.choice(_WORDS)


def _right_value(parameter: click.Parameter, files: Sequence[str], rng: random.Random) -> str:
    if isinstance(parameter.type, click.Choice):
        return str(rng.choice(list(parameter.type.choices)))
    if isinstance(parameter.type, click.types.IntParamType):
        return str(rng.randrange(5_000))
    if parameter.name == "topic":
        return "topic"
    return next(path for path in files if path.endswith("kafka-logs"))


def _run(command: click.Command, name: str, arguments: list[str]) -> Ended:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(command, name, arguments)
        except SystemExit as end:
            code = int(str(end.code))
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
    return Ended(code, out.read(), err.read())


def test_no_option_and_no_file_ends_in_a_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Random commands, options and values; every fifty times in files that are new. A stack trace would come out of
    `run`, and fail this test with the arguments that led to it.
    """
    commands = _commands()
    monkeypatch.setattr(Workers, "run", _inline)
    monkeypatch.setattr("jobs.common.spark.session.ensure_reachable_master", _no_session)
    codes: Counter[str] = Counter()
    for number in range(_MANY_WALKS if exhaustive else _WALKS):
        root = tmp_path / str(number // 50)
        if number % 50 == 0:
            shutil.rmtree(tmp_path / str(number // 50 - 1), ignore_errors=True)
            root.mkdir()
            files = _files(root)
            monkeypatch.chdir(root)
        name = rng.choice(list(commands))
        arguments = _arguments(commands[name], files, rng)
        asked = f"{name} {arguments}"
        try:
            ended = _run(commands[name], name, arguments)
        except BaseException as error:  # also the end of the time that a test has
            error.add_note(asked)
            raise
        assert ended.code in (ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE, ExitCode.PROBLEMS_FOUND), (asked, ended)
        lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
        is_plan = name.endswith("recover") and ended.out != ""  # its lines say what is refused
        assert len(lines) == (ended.code in (ExitCode.FAILED, ExitCode.USAGE) and not is_plan), (asked, ended)
        assert "Traceback" not in ended.err, (asked, ended)
        codes["would start Spark" if _WOULD_START in ended.err else f"exit {ended.code}"] += 1
    say(", ".join(f"{what}: {count}" for what, count in sorted(codes.items())))


@pytest.mark.parametrize("name", _commands())
@pytest.mark.timeout(60)
def test_a_pipe_that_nobody_writes_to_holds_no_command_up(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of each value that may be a file, with the values that the command asks for."""
    command = _commands()[name]
    monkeypatch.setattr(Workers, "run", _inline)
    monkeypatch.setattr("jobs.common.spark.session.ensure_reachable_master", _no_session)
    monkeypatch.chdir(tmp_path)
    files = _files(tmp_path)
    pipe, rng = str(tmp_path / "pipe.prom"), random.Random(0)
    os.mkfifo(pipe)
    for tried in command.params:
        if (isinstance(tried, click.Option) and tried.is_flag) or isinstance(tried.type, _NO_FILES):
            continue
        arguments: list[str] = []
        for parameter in command.params:
            if parameter is tried or parameter.required:
                value = pipe if parameter is tried else _right_value(parameter, files, rng)
                arguments += [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]
        _run(command, name, arguments)
