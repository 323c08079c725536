"""The settings file, and options that a script left empty: one line before anything is done, whatever stands there."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from jobs.build_index import build_index
from jobs.compact_index import compact_index
from jobs.forget_source import forget_source
from jobs.retention import retention
from jobs.seek import seek
from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.run.settings import Settings, read_settings
from kidxlib.terminal.options import SETTINGS_FILE
from tests.jobs.archive import assert_refused
from tests.support.spark.jobs import run_here


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


def test_a_setting_of_earlier_releases_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "kidx.toml"
    path.write_text('[spark]\nevent_log_dir = "/logs"\ncommits = "spark"\ndriver_rows_max = 5\n')
    assert read_settings(path).spark.event_log_dir == "/logs"
    assert [message.partition(":")[0] for message in caplog.messages] == ["commits", "driver_rows_max"]


def test_a_settings_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "Is a directory"), (tmp_path / "no", "No such file or directory")):
        with pytest.raises(UsageError, match=f"{path}: cannot read the settings: {says}"):
            read_settings(path)


_EMPTY: list[tuple[click.Command, tuple[str, ...], str]] = [
    (build_index, ("--source", "x", "--catalog", ""), "--catalog: empty"),
    (build_index, ("--index-dir=", "--source", "x"), "--index-dir: empty"),
    (retention, ("--topics", ""), "--topics: empty"),
    (retention, ("--database", ""), "--database: empty"),
    (compact_index, ("--orphans", "--topics=", "--apply"), "--topics: empty"),
    (compact_index, ("--orphans", "--delete-delay", ""), "--delete-delay: empty"),
    (seek, ("--topic", "", "--partition", "0"), "--topic: empty"),
    (forget_source, ("",), "SOURCE: empty"),
    (kidx, ("verify", ""), "DIR: empty"),
    (kidx, ("build", "--in-place", ""), "DIR: empty"),
    (kidx, ("",), "an argument: empty"),
]


@pytest.mark.parametrize(("command", "arguments", "says"), _EMPTY, ids=[each[2] for each in _EMPTY])
def test_an_empty_option_is_not_the_default(command: click.Command, arguments: tuple[str, ...], says: str) -> None:
    """`--topics "$TOPICS"` of a variable that is not set would plan, and compact, all topics."""
    assert_refused(run_here(command, *arguments), f"{says}; expected a value")
