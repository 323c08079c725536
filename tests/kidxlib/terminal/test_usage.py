"""Options that are given twice."""

from __future__ import annotations

import click
import pytest

from kidxlib.errors import UsageError
from kidxlib.terminal.usage import ensure_no_option_twice


@click.command()
@click.argument("places", nargs=-1)
@click.option("--name")
@click.option("-s", "--source", multiple=True)
@click.option("--quick", is_flag=True)
def _command(places: tuple[str, ...], name: str | None, source: tuple[str, ...], quick: bool) -> None:
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--name a",
        "--name --name",
        "-s a -s b --source=c",
        "--quick --quick",
        "--name a -- --name b",
        "a b --name=a",
    ],
)
def test_options_that_are_given_once(arguments: str) -> None:
    """Or may be given more often; a value may look like an option."""
    ensure_no_option_twice(_command, arguments.split())


@pytest.mark.parametrize("arguments", ["--name a --name b", "--name=a x --name b", "--name a --quick --name=a"])
def test_an_option_that_takes_one_value_is_given_once(arguments: str) -> None:
    with pytest.raises(UsageError, match="--name: given twice, and takes one value; give it once"):
        ensure_no_option_twice(_command, arguments.split())
