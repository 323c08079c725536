"""What a run that forgets a source is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.run.context import RunContext
from kidxlib.run.settings import read_settings
from kidxlib.storage.location import as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOptions:
    """The options as they were given; None or False where they were not."""

    source: str
    catalog: str | None
    database: str | None
    apply: bool
    settings_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """What to do.

    Attributes:
        source: by name.
        apply: remove its rows, and do not only count them.
    """

    context: RunContext
    source: str
    apply: bool


def forget_request(options: ForgetOptions) -> ForgetRequest:
    """Put options and settings together.

    Raises:
        UsageError: the settings file or an option is wrong, or there is no catalog.
    """
    if (name := as_text(options.source)) != options.source:
        raise UsageError(
            f"{name}: found bytes that are not UTF-8, which the name of no source has; name one of the catalog"
        )
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, None).with_catalog()
    return ForgetRequest(context=context, source=options.source, apply=options.apply)
