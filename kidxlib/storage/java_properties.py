"""Files of settings as `java.util.Properties.load` reads them: `server.properties`, `meta.properties`."""

from __future__ import annotations

import re
from typing import Final

#: Where a key ends: at the first `=`, `:` or blank that no backslash stands before.
_KEY: Final = re.compile(r"((?:[^\s=:\\]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(content: bytes) -> dict[str, str]:
    """The settings in a file that have a name; of one that is given twice the last.

    Bytes are read as ISO 8859-1, as Java does. A `\\u` without four hexadecimal digits, at which Java throws, is a `u`.
    """
    found = {}
    for line in _logical_lines(content.decode("latin-1")):
        match = _KEY.fullmatch(line)
        assert match is not None
        found[_unescaped(match[1])] = _unescaped(match[2])
    found.pop("", None)
    return found


def listed(value: str) -> list[str]:
    """The words of a value that is a list (`ConfigDef.Type.LIST`)."""
    return [word for word in map(str.strip, value.split(",")) if word]


def _logical_lines(text: str) -> list[str]:
    """Lines without comments; one that ends in a backslash goes on in the next."""
    lines: list[str] = []
    begun = ""
    for line in _LINE_END.split(text):
        stripped = line.lstrip(_BLANKS)
        if not begun and stripped[:1] in ("", "#", "!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2 == 1:
            begun += stripped[:-1]
        else:
            lines.append(begun + stripped)
            begun = ""
    return [*lines, begun]


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
