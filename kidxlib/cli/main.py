"""`kidx`: the library from a shell."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

import click

from kidxlib.engine.without_pandas import import_no_pandas
from kidxlib.terminal import interrupts

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: The commands, each in the module of its name, with the line that `kidx --help` has for it.
_COMMANDS: Final = {
    "accept": "Record that known damage may stay as it is.",
    "build": "Write the index files of a log dir's segments.",
    "compact": "Make index files smaller and fewer; change nothing without --apply.",
    "compare": "Compare a copy, or a replica, with its original; change nothing.",
    "doctor": "Show what is installed and what works here, for a bug report.",
    "dump": "Show what is in a segment's files.",
    "export": "Write the records of a log dir to files of Parquet, Arrow or JSON.",
    "fleet": "Say how long brokers would take to start after a crash, from a catalog.",
    "forget-source": "Take a source out of a catalog.",
    "recover": "Make a killed broker's log dirs ready for its start; change nothing without --apply.",
    "repair-tiered": "Make objects of remote segments anew; change no bucket without --apply.",
    "report": "Write a page that shows what a catalog knows.",
    "restore": "Restore a cluster from its brokers' disks; write nothing without --apply.",
    "restore-check": "Compare a restored cluster that runs with what was restored; change nothing.",
    "retention": "Plan which segments Kafka would delete, or apply a plan.",
    "seek": "Say where an offset or a time is.",
    "tables": "Keep a catalog's tables small and fast to query; change nothing without --apply.",
    "unpack": "Write the index files that a catalog keeps as single files.",
    "verify": "Audit index files and logs; change nothing.",
    "verify-tiered": "Audit remote segments of tiered storage; change nothing.",
    "who": "Say which producer wrote a record, and what became of its transaction.",
}


class _Commands(click.Group):
    """Imports a command when it is called: no command, and no worker process, waits for what the others import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"kidxlib.commands.{name}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Click would import all commands for their names, and a new wheel would compile loops."""
        from click.shell_completion import CompletionItem  # a millisecond that no other start waits for

        commands = [CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches  # 6 ms that no other start waits for

            meant = get_close_matches(name, _COMMANDS, n=1)
            hint = f"did you mean {meant[0]}?" if meant else f"there are: {', '.join(_COMMANDS)}"
            raise click.UsageError(f"no such command: {name}; {hint}")  # without ctx: nothing more is to be tried
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, invoke_without_command=True)
@click.version_option(package_name="kidx", message="kidx %(version)s; `kidx doctor` shows what else is installed")
@click.pass_context
def kidx(context: click.Context) -> None:
    """Kafka segments and their sparse indexes, on one machine, without a broker."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> NoReturn:
    interrupts.end_at_once()
    import_no_pandas()
    from kidxlib.terminal.run_command import run

    run(kidx, "kidx")
