"""`kidx`: the library from a shell."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NoReturn

import click

from kidxlib.command import run

#: Each stands in the module of its name.
_COMMANDS: Final = ("build", "dump", "seek", "verify")


class _Commands(click.Group):
    """Imports a command when it is called, so that none, nor a worker process of it, waits for what others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"kidxlib.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_Commands)
@click.version_option(package_name="kidx")
def kidx() -> None:
    """Kafka segments and their sparse indexes, on one machine, without a broker."""


def main() -> NoReturn:
    """Run the command."""
    run(kidx, "kidx")
