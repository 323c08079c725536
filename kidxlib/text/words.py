"""Words of messages: numbers with a noun, quoted values of files on one readable line, whatever the file contains, and
options of commands that somebody will paste into a shell.
"""

from __future__ import annotations

import shlex
from typing import Final

#: The most characters of a value that are quoted.
_LENGTH_MAX: Final = 60


def counted(count: int, one: str, more: str | None = None) -> str:
    """`1 segment`, `2,000 segments`; `more` is the noun's plural if that is not the singular with an s."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def shell_option(name: str, value: object) -> str:
    """`--topic=orders`: an option with its value, to paste into a shell. A topic may be called `--help`: after a space,
    Kafka's tools would take it for another option.
    """
    return f"{name}={shlex.quote(str(value))}"


def quoted(value: object) -> str:
    """A value of a file in quotes. A long value is cut, with its length; NUL bytes are counted."""
    if isinstance(value, (str, bytes)):
        nul = "\0" if isinstance(value, str) else b"\0"
        if value and not value.strip(nul):  # type: ignore[arg-type]
            return f"{len(value):,} NUL byte{'s' if len(value) > 1 else ''}"
        if len(value) > _LENGTH_MAX:
            return f"{value[:_LENGTH_MAX]!r}… ({len(value):,} {'characters' if isinstance(value, str) else 'bytes'})"
        return repr(value)
    text = repr(value)
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}… ({len(text):,} characters)"
