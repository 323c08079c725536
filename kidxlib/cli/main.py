"""`kidx`: the library from a shell."""

from __future__ import annotations

from typing import NoReturn

import click

from kidxlib.cli.build import build
from kidxlib.cli.dump import dump
from kidxlib.cli.seek import seek
from kidxlib.cli.verify import verify
from kidxlib.command import run


@click.group()
@click.version_option(package_name="kidx")
def kidx() -> None:
    """Kafka segments and their sparse indexes, on one machine, without a broker."""


kidx.add_command(build)
kidx.add_command(dump)
kidx.add_command(seek)
kidx.add_command(verify)


def main() -> NoReturn:
    """Run the command."""
    run(kidx, "kidx")
