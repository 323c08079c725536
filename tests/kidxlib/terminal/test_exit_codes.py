"""Exit codes are those of the page, and of signals what a shell expects."""

from __future__ import annotations

import re
import signal

from kidxlib.terminal.exit_codes import ExitCode
from tests.docs.pages import read


def test_the_page_has_each_code_once() -> None:
    page = read("docs/exit-codes.md")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == sorted(ExitCode)


def test_a_signal_is_128_more_than_its_number() -> None:
    assert {ExitCode.HUNG_UP, ExitCode.INTERRUPTED, ExitCode.OUTPUT_CLOSED, ExitCode.TERMINATED} == {
        128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
    }
    assert [code for code in ExitCode if code < 128] == [0, 1, 2, 3]
