"""What is wrong with a file that people write is said in one line with its key, whatever the file is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from kidxlib.errors import UsageError
from kidxlib.text.toml_file import Pattern, TomlTable, expected, parse_toml, read_toml_text

PATH = Path("policy.toml")


class Inner(TomlTable):
    log_bytes: Annotated[int, Field(ge=0), expected("a number of bytes, 0 or more")] = Field(0, alias="log.bytes")
    match: Pattern | None = None


class Outer(TomlTable):
    rule: tuple[Inner, ...] = Field(default=(), strict=False)
    named: dict[str, Inner] = Field(default_factory=dict)


@pytest.mark.parametrize("text", ["log.bytes = 7", "'log.bytes' = 7", "[log]\nbytes = 7"])
def test_a_key_with_a_dot_is_read_however_it_is_written(text: str) -> None:
    read = parse_toml(PATH, text, Inner)
    assert read.log_bytes == 7 and read.given() == {"log_bytes": 7}
    assert parse_toml(PATH, "", Inner).given() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]]\n[[rule]]\nlog.bytes = -1", "rule 2: log.bytes = -1; expected a number of bytes, 0 or more"),
        ("[[rule]]\nlog.bytes = 7\n'log.bytes' = 7", "rule 1: log.bytes: given twice; keep one of them"),
        ("[[rule]]\nlog.byte = 7", "rule 1: log.byte: unknown key; did you mean log.bytes?"),
        ("[named.'a b']\nxyz = 7", "named.'a b'.xyz: unknown key; known: log.bytes, match"),
        ("[[rule]]\nmatch = '('", "rule 1: match = '('; expected a regular expression"),
        ("rule = 7", "rule = 7; expected tables [[rule]]"),
        ("named = 7", "named = 7; expected tables [named.NAME]"),
        ("named.a = 7", "named.a = 7; expected a table"),
        ("rule", "not valid TOML: "),
        (f"x = {'9' * 5000}", "a number of more than 4,300 digits"),
        (f"x = {'[' * 5000}", "its values are nested too deeply"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_toml(PATH, text, Outer)
    assert str(raised.value).startswith(f"policy.toml: {said}")


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"# \xff")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 65 << 20)
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, said in (
        ("endless", "no file of rules: a pipe, or more than 67,108,864 bytes; give a regular file"),
        ("pipe", "no file of rules: a pipe, or more than 67,108,864 bytes; give a regular file"),
        ("large", "no file of rules: a pipe, or more than 67,108,864 bytes; give a regular file"),
        ("bytes", "byte 2: not UTF-8, expected a TOML file"),
        ("away", "cannot read the rules: No such file or directory"),
        (".", "cannot read the rules: Is a directory"),
    ):
        with pytest.raises(UsageError) as raised:
            read_toml_text(tmp_path / name, "rules")
        assert str(raised.value) == f"{tmp_path / name}: {said}"
