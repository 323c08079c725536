"""What is said of errors, in one line that needs no manual of the operating system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click
import pytest

from kidxlib.cli.whole_number import WholeNumber
from kidxlib.errors import KidxError, why


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (OSError(errno.EIO, "Input/output error", b"/x/\xff"), "/x/\udcff: Input/output error"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("a store says so"), "a store says so"),
        (FileNotFoundError(), "FileNotFoundError"),
        (KidxError("x: found y, expected z"), "x: found y, expected z"),
    ],
)
def test_an_error_is_described_without_its_number(error: Exception, said: str) -> None:
    assert why(error) == said


def test_what_the_system_raises_is_described_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        os.scandir(tmp_path / "no such")
    assert why(raised.value) == f"{tmp_path / 'no such'}: No such file or directory"


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (WholeNumber(0, 9), "ten", "ten: expected a whole number from 0 to 9"),
        (WholeNumber(0, 9), "10", "10: expected a whole number from 0 to 9"),
        (WholeNumber(1), "0", "0: expected a whole number, 1 or more"),
        (WholeNumber(), "4k", "4k: expected a whole number"),
    ],
)
def test_a_number_that_is_none_says_what_is_expected(kind: WholeNumber, given: str, expected: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        kind.convert(given, None, None)
    assert raised.value.message == expected
    assert WholeNumber(0, 10).convert("10", None, None) == 10
