"""Options that were renamed: the old name means what it meant, and says what it is called now."""

from __future__ import annotations

from typing import Final

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from kidxlib.errors import UsageError
from kidxlib.terminal.options.given import renamed_option

_OF_GATE: Final = "warning: --gate is now --require-tiering; the old name goes with the next release\n"
_OF_FOLDER: Final = "warning: --folder is now --directory; the old name goes with the next release\n"


@click.command()
@renamed_option("--directory", old="--folder", default="dist", help="Where files go.")
@renamed_option(
    "--require-tiering",
    old="--gate",
    old_type=click.Choice(["tiering"]),
    read_old=lambda _: True,
    is_flag=True,
    help="Exit 3.",
)
def _command(directory: str, require_tiering: bool) -> None:
    click.echo(f"{directory} {require_tiering}")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(_command, arguments)


@pytest.mark.parametrize(
    ("arguments", "shown", "warnings"),
    [
        ((), "dist False", ""),
        (("--directory", "x", "--require-tiering"), "x True", ""),
        (("--folder", "x"), "x False", _OF_FOLDER),
        (("--folder=x",), "x False", _OF_FOLDER),
        (("--gate", "tiering"), "dist True", _OF_GATE),
        (("--gate=tiering", "--directory", "x"), "x True", _OF_GATE),
        (("--gate", "tiering", "--folder", "x"), "x True", _OF_GATE + _OF_FOLDER),
    ],
)
def test_either_name_means_the_same(arguments: tuple[str, ...], shown: str, warnings: str) -> None:
    ended = _run(*arguments)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, f"{shown}\n", warnings)


def test_an_old_name_takes_the_values_that_it_took() -> None:
    ended = _run("--gate", "other")
    assert ended.exit_code == 2
    assert "'--gate'" in ended.stderr


@pytest.mark.parametrize("arguments", [("--gate", "tiering", "--require-tiering"), ("--directory", "x", "--folder=x")])
def test_both_names_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"^--\w+: is the old name of --[a-z-]+; give one of the two$"):
        _command.main(arguments, standalone_mode=False)


def test_old_names_are_shown_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    helped = _run("--help").stdout
    completed = ShellComplete(_command, {}, "command", "_COMMAND_COMPLETE").get_completions(["--gate", "tiering"], "-")
    names = [item.value for item in completed]
    assert "--require-tiering" in helped and "--require-tiering" in names and "--directory" in names
    assert not any(old in text for old in ("--gate", "--folder") for text in (helped, *names))
    assert capsys.readouterr().err == ""
