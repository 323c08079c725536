"""Wrong usage of a command: what is wrong, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import click

from kidxlib.errors import UsageError

#: What is spark-submit's, and so stands after `--`; without those that our jobs have, too.
_SPARK_OPTIONS: Final = re.compile(
    "--(master|deploy-mode|class|name|jars|(exclude-)?packages|repositories|py-files|files|archives|conf|queue|"
    "properties-file|load-spark-defaults|proxy-user|principal|keytab|supervise|num-executors|total-executor-cores|"
    "(driver|executor)-(memory|cores)|driver-(java-options|library-path|class-path))|-c"
)
_SPARK_PROGRAM: Final = "./spark-submit.sh"


def wrong_usage(error: click.ClickException) -> str:
    """What click says, and what to do where it does not say that."""
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    if isinstance(error, click.NoSuchOption) and context.command_path.startswith(_SPARK_PROGRAM):
        name = error.option_name
        if _SPARK_OPTIONS.fullmatch(name):
            how = f"{context.command_path} … -- {name} …"
            return f"{message.rstrip('.')}; it is an option of spark-submit, and those come after --: {how}"
    if message.startswith("Got unexpected extra argument") and _works_from_catalog(context.command):
        return f"{message.rstrip('.')}; {context.command_path} works from a catalog: name it with --catalog DIR"
    if message.endswith("?") or (
        isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    ):
        return message
    help_option = context.help_option_names[-1] if context.help_option_names else "--help"
    return f"{message.rstrip('.')}; try {context.command_path} {help_option}"


def _works_from_catalog(command: click.Command) -> bool:
    """Whether a command reads what builds have recorded, and no log dir that is named."""
    named = {each.name: each for each in command.params}
    takes_directories = any(isinstance(each, click.Argument) for each in command.params)
    if "sources" in named:
        takes_directories = takes_directories or named["sources"].metavar != "NAME"
    return "catalog" in named and not takes_directories


def ensure_no_empty_values(command: click.Command, arguments: Sequence[str]) -> None:
    """An empty word is what is left of a variable that is not set. For a directory it would mean the default one,
    for a pattern everything.
    """
    before = ""
    for word in arguments:
        option, equals, value = word.partition("=")
        if not word or (option.startswith("--") and equals and not value):
            raise UsageError(_what_is_empty(_called(command, arguments), option or before))
        before = word


def ensure_no_option_twice(command: click.Command, arguments: Sequence[str]) -> None:
    """Refuse a second value of an option that takes one: the last would count, and the others would be passed over."""
    if not arguments:
        return
    options = [each for each in _called(command, arguments).params if isinstance(each, click.Option)]
    by_name = {name: each for each in options for name in (*each.opts, *each.secondary_opts)}
    seen: set[str | None] = set()
    words = iter(arguments)
    for word in words:
        if word == "--":
            return
        name, equals, _ = word.partition("=")
        option = by_name.get(name)
        if option is None or option.is_flag or option.count:
            continue
        if not option.multiple and option.name in seen:
            raise UsageError(f"{name}: given twice, and takes one value; give it once")
        seen.add(option.name)
        if not equals:
            next(words, None)


def _called(command: click.Command, arguments: Sequence[str]) -> click.Command:
    """The command itself, or that of a group that is called."""
    if not isinstance(command, click.Group):
        return command
    return command.get_command(click.Context(command), arguments[0]) or command


def _what_is_empty(command: click.Command, option: str) -> str:
    """What to say of an option that has no value; of an argument, where the word before takes none."""
    flags = [each for each in command.params if isinstance(each, click.Option) and each.is_flag]
    names = {"--"}.union(*(flag.opts + flag.secondary_opts for flag in flags))
    if option.startswith("-") and option not in names:
        return f"{option}: empty; expected a value; else leave the option out (is a variable not set?)"
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    name = arguments[0].make_metavar(click.Context(command)).strip("[].…") if len(arguments) == 1 else "an argument"
    return f"{name}: empty; expected a value (is a variable not set?)"
