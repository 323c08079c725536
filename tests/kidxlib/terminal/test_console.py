"""What is printed, on terminals and where there is none: messages in one line, colors where they are to be."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import threading
from pathlib import Path

import click
import pytest

from kidxlib.jit import compiling
from kidxlib.terminal import console, options
from kidxlib.terminal.console import (
    Phase,
    Progress,
    begin_phase,
    end_phases,
    more_line,
    note,
    print_line,
    shows_details,
    warn_of_first,
)
from kidxlib.terminal.outcome import print_table
from kidxlib.terminal.run_command import run as run_command
from kidxlib.text.times import Span
from tests.support.logs.golden import SAMPLES
from tests.support.terminal import has_colors, run, screen, shown, without_controls, without_progress


def test_colors_are_for_terminals_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken is red on a terminal; not where NO_COLOR is set, on a dumb terminal, or where there is none."""

    def show() -> None:
        print_table("audit", ("file", "identical", "safe", "broken"), [(".index", 4, 1, 2)], text_columns=1)
        print_line("broken: a-0 7 .index: missing")
        print_line("torn: a-0 7: 5 of 9 bytes")
        print_line("index files: var/index")

    colored = shown(80, show, monkeypatch)
    assert has_colors(colored)
    assert "\x1b[31mbroken:" in colored and "\x1b[33mtorn:" in colored and "\x1b[31m     2" in colored, colored
    assert "index files: var/index\n" in colored
    with monkeypatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        plain = shown(80, show, monkeypatch)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show()
    assert not has_colors(plain) and without_controls(plain) == without_controls(colored)
    assert "\x1b" not in out.getvalue()


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as err:
        note("warning: [bold]a\nb\x1b[31m" + 300 * "x")
    assert err.getvalue() == "warning: [bold]a\\nb\\x1b[31m" + 300 * "x" + "\n"


def test_the_first_of_each_kind_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """However many there are of one kind, one of another kind is not lost among them."""
    warn_of_first([*(f"dir/t-{number}: gone, with {number} bytes" for number in range(1022)), "another: bad", "bad"])
    reported = capsys.readouterr().err.splitlines()
    first = [f"warning: dir/t-{number}: gone, with {number} bytes" for number in range(5)]
    assert reported == [*first, "warning: … and 1,017 more of this kind", "warning: another: bad", "warning: bad"]


def test_how_many_more_there_are() -> None:
    lines = [list(more_line(left_out, " topics")) for left_out in (-1, 0, 1002)]
    assert lines == [[], [], ["… and 1,002 more topics"]]


HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
#: A command with phases, the result in the midst of them, a warning, and an end by `{}`.
_COMMAND = """
import click
from kidxlib.terminal import options
from kidxlib.terminal.run_command import run
from kidxlib.terminal.console import Progress, begin_phase, print_line, warn

@click.command()
@options.verbose
def command():
    begin_phase("starting")
    begin_phase("reading", done=lambda: Progress(1, 10, 2.0), segments=4, log_bytes=40)
    warn("one is odd")
    begin_phase("recording")
    print_line("the result")
    begin_phase("finishing")
    {}

run(command, "command")
"""


@pytest.mark.parametrize("end", ["pass", "raise KeyboardInterrupt", "raise KidxError('the disk is full')"])
def test_on_a_terminal_the_line_is_gone_in_the_end_and_the_cursor_is_there(end: str) -> None:
    """However the command ends; what it has said stands in lines of its own."""
    script = "from kidxlib.errors import KidxError" + _COMMAND.format(end)
    _, written = run([sys.executable, "-c", script], 80)
    stays = [line for line in screen(written) if line]
    assert stays[:2] == ["warning: one is odd", "the result"], written
    assert [line for line in stays[2:] if not line.startswith("error: ") and line != "Aborted!"] == [], written
    assert written.count(HIDE_CURSOR) == written.count(SHOW_CURSOR) > 0
    assert written.rindex(SHOW_CURSOR) > written.rindex(HIDE_CURSOR)
    assert "reading 1 of 4 segments, 10 bytes of 40 bytes" in written and "5 bytes/s, 6 s left" in written


@pytest.mark.parametrize("columns", [40, 160])
def test_a_build_on_a_terminal_leaves_its_result_alone(columns: int, tmp_path: Path) -> None:
    """Standard output is one JSON object; of standard error nothing stays on the screen, and no line of it is wider."""
    kidx = [sys.executable, "-c", "from kidxlib.cli.main import main; main()"]
    with (tmp_path / "out").open("wb") as out:
        code, written = run(
            [*kidx, "build", SAMPLES, "--topics", "plain-zstd", "--index-dir", tmp_path / "index", "--json"],
            columns,
            out=out,
        )
    assert (code, json.loads((tmp_path / "out").read_text())["segments"]) == (0, 2)
    assert not any(screen(written)), written
    assert all(phase in written for phase in ("listing", "reading 2 segments"[: columns - 4])), written
    assert written.count(HIDE_CURSOR) == written.count(SHOW_CURSOR) > 0


def test_where_there_is_no_terminal_a_long_phase_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, what is done, and a rate that leaves out what it took to begin; at first what there is
    to do, and when all is read, what goes on then."""
    done = iter([Progress(), Progress(1, 1_000_000, 0.5), Progress(4, 4_000_000, 2.0)])
    asked = threading.Semaphore(0)

    def tell() -> Progress:
        try:
            return next(done)
        except StopIteration:
            asked.release()
            return Progress(4, 4_000_000, 2.0)

    monkeypatch.setattr(console, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(compiling, "is_compiling", lambda: False)  # as the process of another test may be
    monkeypatch.setattr(console, "slow_store_message", lambda: "")  # of which another test may have made requests again
    with contextlib.redirect_stderr(io.StringIO()) as err:
        begin_phase("reading", done=tell, segments=4, log_bytes=4_000_000, after="recording in the catalog")
        asked.acquire()
        end_phases()
    lines = err.getvalue().splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines[:3]] == [
        "reading 4 segments, 4.0 MB",
        "reading: 1 of 4 segments, 1.0 MB of 4.0 MB, 2.0 MB/s, 2 s left",
        "recording in the catalog",
    ]
    assert without_progress(err.getvalue()) == ""


def test_where_nobody_knows_how_much_there_is_what_is_done_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Semaphore(0)

    def tell() -> Progress:
        asked.release()
        return Progress(segments=1_234)

    monkeypatch.setattr(console, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)
    with contextlib.redirect_stderr(io.StringIO()) as err:
        begin_phase("listing", done=tell)
        asked.acquire()
        asked.acquire()
        end_phases()
    assert "listing: 1,234 segments so far" in err.getvalue()


def test_a_quick_phase_says_nothing_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUIET_SECONDS", 3600.0)
    with contextlib.redirect_stderr(io.StringIO()) as err:
        begin_phase("listing")
        begin_phase("reading")
        end_phases()
    assert err.getvalue() == ""


@pytest.mark.parametrize("arguments", [["-v"], ["-v", "--unknown"]])
def test_details_are_those_of_one_command(arguments: list[str]) -> None:
    """A process may run several, as Airflow's workers do: `-v` ends with its command, also where that is refused."""

    @click.command()
    @options.verbose
    def command() -> None:
        begin_phase("listing")

    with contextlib.redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit):
        run_command(command, "command", arguments)
    assert ("took: listing" in err.getvalue()) == ("--unknown" not in arguments)
    assert not shows_details()


def test_the_time_of_reading_is_from_the_first_that_began_to_the_last_that_ended() -> None:
    assert Span().seconds == 0.0
    assert (Span() | Span(5.0, 6.0) | Span(3.0, 4.0)).seconds == 3.0


def test_what_is_left_goes_by_bytes_and_else_by_segments() -> None:
    """A HEAD takes as long for a small object as for a large one."""
    done = Progress(segments=30, log_bytes=1_000, seconds=3.0)
    by_bytes = Phase("reading", 0.0, lambda: done, segments=40, log_bytes=4_000, after="")
    by_segments = Phase("asking", 0.0, lambda: done, segments=40, log_bytes=0, after="")
    assert (by_bytes.share(done), by_bytes.seconds_left(done), by_bytes.speed(done)) == (0.25, 9.0, "333 bytes/s")
    assert (by_segments.share(done), by_segments.seconds_left(done)) == (0.75, 1.0)
    assert (by_segments.amount(done), by_segments.speed(done)) == ("30 of 40 segments", "10 segments/s")
    unknown = Phase("reading", 0.0, lambda: done, segments=0, log_bytes=0, after="")
    assert (unknown.share(done), unknown.seconds_left(done)) == (0.0, None)
