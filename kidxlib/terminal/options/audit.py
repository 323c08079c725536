"""What `kidx verify` and the job verify_index can both be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import click

from kidxlib.audit.finding import Verdict
from kidxlib.terminal.options.renamed import renamed_option

_CLEAN: Final = "clean"

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How to audit.

    Attributes:
        deep: look at the records, too.
        fail_on: the mildest verdict that the command fails for.
        tiering: also check segments against what tiered storage needs.
        clean_shutdown: how the broker stopped; None asks its log dir.
    """

    deep: bool
    fail_on: Verdict
    tiering: bool
    clean_shutdown: bool | None

    @classmethod
    def of(cls, *, deep_iteration: bool, fail_on: str, require_tiering: bool, shutdown: str | None) -> Self:
        """The options of `audit_options` as they were given."""
        return cls(
            deep=deep_iteration,
            fail_on=Verdict(fail_on),
            tiering=require_tiering,
            clean_shutdown=None if shutdown is None else shutdown == _CLEAN,
        )


def audit_options(command: _Command) -> _Command:
    """Give a command the options of `AuditOptions`."""
    options = (
        click.option(
            "--deep-iteration",
            is_flag=True,
            help="Also decompress and read all records, and check them against the headers of their batches.",
        ),
        click.option(
            "--fail-on",
            type=click.Choice([Verdict.BROKEN.value, Verdict.TORN.value, Verdict.SAFE.value]),
            default=Verdict.BROKEN.value,
            show_default=True,
            help="Exit 3 if any file has this verdict or a worse one: safe, torn, broken.",
        ),
        renamed_option(
            "--require-tiering",
            old="--gate",
            old_type=click.Choice(["tiering"]),
            read_old=lambda _: True,
            is_flag=True,
            help="Exit 3 if a segment lacks what tiered storage needs.",
        ),
        click.option(
            "--shutdown",
            type=click.Choice([_CLEAN, "unclean"]),
            help="How the broker stopped, for its next start. [default: as the log dir says]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
