"""Numbers, bytes and durations as people write them, and what is said of a value that is none."""

from __future__ import annotations

from typing import Final

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from kidxlib.errors import UsageError
from kidxlib.terminal.options import ByteSize, IntegerRange, Milliseconds, renamed_option

_KIND = Milliseconds(-1, 2**63 - 1)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (IntegerRange(0, 9), "ten", "ten: expected a whole number from 0 to 9"),
        (IntegerRange(0, 9), "10", "10: expected a whole number from 0 to 9"),
        (IntegerRange(0, 9), "٣", "٣: expected a whole number from 0 to 9"),
        (IntegerRange(1), "0", "0: expected a whole number, 1 or more"),
        (IntegerRange(), "4k", "4k: expected a whole number"),
    ],
)
def test_a_number_that_is_none_says_what_is_expected(kind: IntegerRange, given: str, expected: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        kind.convert(given, None, None)
    assert raised.value.message == expected
    assert IntegerRange(0, 10).convert("10", None, None) == 10


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (IntegerRange(1, 2**31 - 1), "Size.  [1 to 2147483647]"),
        (IntegerRange(1), "Size.  [1 or more]"),
        (IntegerRange(-1, 2**63 - 1), "Size.  [-1 or more]"),
        (IntegerRange(-(2**63), 2**63 - 1), "Size."),
        (IntegerRange(), "Size."),
    ],
)
def test_help_says_the_range_in_words(kind: IntegerRange, shown: str) -> None:
    option = click.Option(["--size"], metavar="BYTES", type=kind, help="Size.")
    assert option.get_help_record(click.Context(click.Command("x"))) == ("--size BYTES", shown)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1500", 1500),
        ("2kB", 2000),
        ("2 KiB", 2048),
        ("500MB", 500_000_000),
        ("3gib", 3 * 2**30),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5GB", "5 bytes", "GB", "9000000PB", "٣"])
def test_others(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a number of bytes below 2⁶³, such as"):
        ByteSize().convert(text, None, None)


@pytest.mark.parametrize(
    ("given", "milliseconds"), [("604800000", 604_800_000), ("7d", 604_800_000), ("0s", 0), ("5ms", 5), ("-1", -1)]
)
def test_a_unit_may_be_given(given: str, milliseconds: int) -> None:
    assert _KIND.convert(given, None, None) == milliseconds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "7w",
            "'7w' is not a duration; expected a whole number with ms, s, m, h or d, such as 60s; or a",
        ),
        ("-2", "-2: expected a whole number from -1 to 9223372036854775807"),
        ("1.5", "1.5: expected a whole number from -1 to 9223372036854775807"),
    ],
)
def test_what_is_none_says_what_is_expected(given: str, expected: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        _KIND.convert(given, None, None)
    assert raised.value.message.startswith(expected)


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
