"""Errors: what is said of them, in one line that needs no manual of the operating system; one tree in one module."""

from __future__ import annotations

import ast
import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import kidxlib
from kidxlib import errors
from kidxlib.errors import KidxError, MalformedError, MalformedRecordsError, UnreadableMessageError, describe_error

_EACH = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KidxError)]


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
    assert describe_error(error) == said


def test_what_the_system_raises_is_described_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        os.scandir(tmp_path / "no such")
    assert describe_error(raised.value) == f"{tmp_path / 'no such'}: No such file or directory"


def test_no_other_module_has_a_public_error() -> None:
    elsewhere = [
        f"{path.stem}.{node.name}"
        for path in sorted(Path(kidxlib.__file__).parent.rglob("*.py"))
        if path.stem != "errors"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and not node.name.startswith("_")
    ]
    assert elsewhere == []


@pytest.mark.parametrize("kind", _EACH)
def test_each_says_when_it_is_raised(kind: type[KidxError]) -> None:
    assert kind.__doc__ is not None
    assert kind.__doc__ != KidxError.__doc__ or kind is KidxError


@pytest.mark.parametrize("kind", _EACH)
def test_each_comes_whole_from_a_worker_process(kind: Any) -> None:
    parts: dict[type[KidxError], tuple[Any, ...]] = {
        MalformedError: ("3 bytes", "8"),
        MalformedRecordsError: (17, "3 bytes", "8"),
        UnreadableMessageError: ("8 bytes", "no room"),
    }
    error = kind(*parts.get(kind, ("/a: no log",)))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (str(back), vars(back)) == (str(error), vars(error))
    said = ("/a: no log", "found 3 bytes, expected 8", "batch at byte 17: found 3 bytes, expected 8")
    assert str(error) in (*said, "expected 8 bytes: no room")
