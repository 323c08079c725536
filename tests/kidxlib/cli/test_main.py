"""What a shell waits for: names are completed and help is shown without what does the work; and old spellings."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.terminal.exit_codes import ExitCode
from tests.docs.pages import PROJECT
from tests.kidxlib.test_library import started
from tests.support.spark.jobs import run_here


def test_a_shell_completes_commands_without_importing_them() -> None:
    """In a new wheel that would compile for half a minute, while somebody waits for a key."""
    code = """
import sys
import click
from kidxlib.cli.main import kidx
print([item.value for item in kidx.shell_complete(click.Context(kidx), "re")])
print([name for name in sys.modules if name.startswith("kidxlib.commands")])
"""
    assert started(code).splitlines() == [
        "['recover', 'repair-tiered', 'report', 'restore', 'restore-check', 'retention']",
        "[]",
    ]


def test_old_spellings_do_the_same_and_say_what_to_type(tmp_path: Path) -> None:
    place, metadata = (
        str(PROJECT / "samples" / "tiered"),
        ("--tiered-metadata", str(PROJECT / "samples/tiered/log-dir")),
    )
    mirror = ("--index-dir", str(tmp_path / "mirror"))
    for old, new in (
        (("verify", "--tiered", place, *metadata), ("verify-tiered", place, *metadata)),
        (("build", *metadata, f"--tiered={place}", *mirror), ("repair-tiered", place, *metadata, *mirror)),
    ):
        ended, by_new = (CliRunner().invoke(kidx, words, standalone_mode=False) for words in (old, new))
        assert ended.exception is None and by_new.exception is None
        assert (ended.stdout, ended.return_value) == (by_new.stdout, by_new.return_value)
        hint = f"warning: {old[0]} --tiered is now kidx {new[0]} PLACE; the old spelling goes with the next release\n"
        assert hint in ended.stderr and hint not in by_new.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("verify", "--tiered", "nowhere"), "kidx verify-tiered PLACE"),
        (("verify", "--tiered", str(PROJECT / "samples" / "tiered"), "--in-place"), "kidx verify-tiered PLACE"),
        (("verify", "--copy", "nowhere"), "kidx compare SOURCE URL --catalog DIR"),
        (("recover", "--catalog", "nowhere", "--dry-run"), "kidx fleet --catalog DIR"),
    ],
)
def test_an_old_spelling_that_ends_with_an_error_says_what_to_type(old: tuple[str, ...], new: str) -> None:
    """Also where the new command does not have an option of the old one."""
    ended = run_here(kidx, *old)
    hint = f"warning: {old[0]} {old[1]} is now {new}; the old spelling goes with the next release\n"
    assert ended.code == ExitCode.USAGE and hint in ended.err, ended


def test_the_help_of_a_command_on_a_catalog_imports_nothing_that_works_on_it() -> None:
    code = """
import sys
import click
from kidxlib.cli.main import kidx
context = click.Context(kidx)
assert all(kidx.get_command(context, name) for name in kidx.list_commands(context))
print(sorted({"deltalake", "numba", "pyarrow"} & sys.modules.keys()))
"""
    assert started(code) == "[]"
