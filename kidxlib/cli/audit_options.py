"""What `kidx verify` and the job verify_index can both be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import click

from kidxlib.audit import Verdict
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.show_audit import START_RATE_DEFAULT

_CLEAN: Final = "clean"
_TIERING: Final = "tiering"

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How to audit.

    Attributes:
        deep: look at the records, too.
        fail_on: the mildest verdict that the command fails for.
        tiering: hold segments to what tiered storage needs, too.
        clean_shutdown: how the broker stopped; None asks its log dir.
        start_rate: bytes a second that a broker reads when it recovers.
    """

    deep: bool
    fail_on: Verdict
    tiering: bool
    clean_shutdown: bool | None
    start_rate: int

    @classmethod
    def of(cls, *, deep_iteration: bool, fail_on: str, gate: str | None, shutdown: str | None, start_rate: int) -> Self:
        """The options of `audit_options` as they were given."""
        return cls(
            deep=deep_iteration,
            fail_on=Verdict(fail_on),
            tiering=gate == _TIERING,
            clean_shutdown=None if shutdown is None else shutdown == _CLEAN,
            start_rate=start_rate,
        )


def audit_options(command: _Command) -> _Command:
    """Give a command the options of `AuditOptions`."""
    options = (
        click.option(
            "--deep-iteration",
            is_flag=True,
            help="Decompress and read all records, too, and hold them to the headers of their batches.",
        ),
        click.option(
            "--fail-on",
            type=click.Choice([Verdict.BROKEN.value, Verdict.TORN.value, Verdict.SAFE.value]),
            default=Verdict.BROKEN.value,
            show_default=True,
            help="Exit 3 if any file has this verdict or a worse one: safe, torn, broken.",
        ),
        click.option(
            "--gate", type=click.Choice([_TIERING]), help="End with 3 where a segment lacks what tiered storage needs."
        ),
        click.option(
            "--shutdown",
            type=click.Choice([_CLEAN, "unclean"]),
            help="How the broker stopped, for its next start. [default: as the log dir says]",
        ),
        click.option(
            "--start-rate",
            metavar="BYTES/S",
            type=WholeNumber(1),
            default=START_RATE_DEFAULT,
            show_default=True,
            help="How fast a broker reads when it recovers.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
