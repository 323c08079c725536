"""`kidx doctor`: what is installed, and what works here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import note, print_json, print_line, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import print_table

if TYPE_CHECKING:
    from kidxlib.operations.doctor import MachineFact


def _print_facts(facts: Sequence[MachineFact]) -> None:
    """Print a table on a terminal. Elsewhere print a line for each fact: the table is too wide for a bug report."""
    if sys.stdout.isatty():
        rows = [(fact.subject, fact.name, fact.found) for fact in facts]
        print_table("kidx doctor", ("about", "what", "found"), rows, text_columns=3)
        return
    for fact in facts:
        print_line(f"{fact.subject}, {fact.name}: {fact.found}")


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--compile",
    "compiles",
    is_flag=True,
    help="Compile all loops for this processor first. Without it, the first command that needs a loop compiles it, "
    "which takes half a minute. An image or a new machine does it ahead.",
)
@shared_options.as_json
@click.pass_context
def doctor(context: click.Context, compiles: bool, as_json: bool) -> None:
    """Show what is installed and what this machine has: packages, Java, processor, memory. Put it into a bug report.

    Exit codes: 0 all is well; 3 something does not work, which the last lines name; 1 failed.
    """
    if compiles:
        from kidxlib.operations.doctor import compile_all

        for module, package in compile_all().items():
            warn(f"{module}: not compiled: it needs {package}, which is not installed")
    from kidxlib.operations.doctor import examine

    facts = examine()
    problems = [fact for fact in facts if fact.problem is not None]
    if as_json:
        print_json({"facts": [asdict(fact) for fact in facts], "problems": len(problems)})
    else:
        _print_facts(facts)
        for fact in problems:
            note(f"{fact.subject}, {fact.name}: {fact.problem}")
    context.exit(ExitCode.PROBLEMS_FOUND if problems else ExitCode.OK)
