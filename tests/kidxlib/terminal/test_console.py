"""What is printed, on terminals and where there is none: messages in one line, colors where they are to be."""

from __future__ import annotations

import contextlib
import io

import pytest

from kidxlib.terminal.console import more, note, print_line, warn_of_first
from kidxlib.terminal.outcome import print_table
from tests.support.terminal import has_colors, shown, without_controls


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
    lines = [list(more(left_out, " topics")) for left_out in (-1, 0, 1002)]
    assert lines == [[], [], ["… and 1,002 more topics"]]
