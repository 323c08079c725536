"""The settings file, and options that a script left empty: one line before anything is done, whatever stands there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.run.project import SETTINGS_FILE
from kidxlib.run.settings import Settings, read_settings
from tests.jobs.archive import assert_refused
from tests.support.spark.jobs import Ended, build_here, compact_here, forget_here, retention_here, run_here, seek_here


def test_the_settings_that_are_shipped_are_the_defaults() -> None:
    """So whoever takes a file of their own changes what it says, and nothing else."""
    assert read_settings(SETTINGS_FILE) == Settings()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[build]\ncatalog = ''", "build.catalog = ''; expected the path of a directory, or a URL"),
        (b'[build]\nindex_dir = "a\\u0000b"', "build.index_dir = 'a\\x00b'; expected the path"),
        (b"[build]\nindex_dir = 5", "build.index_dir = 5; expected to be a valid string"),
        (b"[build]\ntopics = '(a'", "build.topics = '(a'; expected a regular expression ("),
        (b"[build]\ntopics = 'a{99999999999}'", "expected a regular expression ("),
        (b"[build]\nverify_crc = 'no'", "build.verify_crc = 'no'; expected to be a valid boolean"),
        (b"[build]\nwave_bytes = 0", "build.wave_bytes = 0; expected to be greater than or equal to 1"),
        (b"[build]\nlongest_run_hours = 99999999999", "less than or equal to 8760"),
        (b"[build]\nwave_seconds = " + b"9" * 400, "less than or equal to 31536000"),
        (b"[build]\ncatalg = 'x'", "build.catalg: unknown key; did you mean catalog?"),
        (b"[[topic]]\ninterval_bytes = 5", "topic 1: match: missing"),
        (b"[build]\ntopics = '\xff'", "byte 18: not UTF-8, expected a TOML file"),
        (b"build", "not valid TOML"),
        (b"x = " + b"[" * 5000, "nested too deeply"),
        (b"[build]\nwave_bytes = " + b"9" * 5000, "a number of more than 4,300 digits"),
        (b"[build]\nwave_bytes = 0x" + b"f" * 5000, "build.wave_bytes = …; "),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_settings_are_one_line(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "kidx.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_settings(path)
    assert str(raised.value).startswith(f"{path}: ") and says in str(raised.value)


def test_a_settings_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "Is a directory"), (tmp_path / "no", "No such file or directory")):
        with pytest.raises(UsageError, match=f"{path}: cannot read the settings: {says}"):
            read_settings(path)


_EMPTY: list[tuple[Callable[..., Ended], tuple[str, ...], str]] = [
    (build_here, ("--source", "x", "--catalog", ""), "--catalog: empty"),
    (build_here, ("--index-dir=", "--source", "x"), "--index-dir: empty"),
    (retention_here, ("--topics", ""), "--topics: empty"),
    (retention_here, ("--database", ""), "--database: empty"),
    (compact_here, ("--orphans", "--topics=", "--apply"), "--topics: empty"),
    (compact_here, ("--orphans", "--delete-delay", ""), "--delete-delay: empty"),
    (seek_here, ("--topic", "", "--partition", "0"), "--topic: empty"),
    (forget_here, ("",), "SOURCE: empty"),
    (lambda *words: run_here(kidx, *words), ("verify", ""), "DIR: empty"),
    (lambda *words: run_here(kidx, *words), ("build", "--in-place", ""), "DIR: empty"),
    (lambda *words: run_here(kidx, *words), ("",), "an argument: empty"),
]


@pytest.mark.parametrize(("command", "arguments", "says"), _EMPTY, ids=[each[2] for each in _EMPTY])
def test_an_empty_option_is_not_the_default(
    command: Callable[..., Ended], arguments: tuple[str, ...], says: str
) -> None:
    """`--topics "$TOPICS"` of a variable that is not set would plan, and compact, all topics."""
    assert_refused(command(*arguments), f"{says}; expected a value")
