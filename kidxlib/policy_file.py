"""Files of policies (TOML): their values checked one by one, and what is wrong said with its line.

Keys have Kafka's dots. To TOML `retention.ms` is a table `retention` with a key `ms`, quoted or not; both are read.
"""

from __future__ import annotations

import difflib
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeAlias

from kidxlib.errors import UsageError

#: Of a file that people write.
_BYTES_MAX: Final = 64 * 1024 * 1024
LONG_MAX: Final = 2**63 - 1

#: A place in a TOML document: names of tables and keys, and numbers of the tables in an array.
Place: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a key sets.

    Attributes:
        field: what it is called here.
        check: what makes of a value what it means; what it expected is the message of the `ValueError` that it raises.
    """

    field: str
    check: Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A file of policies.

    Attributes:
        document: what it holds, as TOML has it.
    """

    path: Path
    document: Mapping[str, Any]
    lines: Mapping[Place, int]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            UsageError: it cannot be read or parsed.
        """
        return cls.parse(path, read_text(path))

    @classmethod
    def parse(cls, path: Path, text: str) -> Self:
        """Likewise, of what it holds.

        Raises:
            UsageError: it cannot be parsed.
        """
        return cls(path, parse_toml(path, text), _lines(text))

    def values(self, table: Mapping[str, Any], path: Place, known: Mapping[str, Setting]) -> dict[str, Any]:
        """The values of a table by what they are called here, each checked.

        Args:
            path: the table's place.
            known: the keys that it may have.

        Raises:
            UsageError: a key is none of these or is given twice, or a value is not what it may be.
        """
        values = {}
        for key, value, where in self._settings(table, path, known):
            setting = known[key]
            if setting.field in values:
                self.refuse(where, f"{key}: given twice")
            try:
                values[setting.field] = setting.check(value)
            except ValueError as expected:
                self.refuse(where, f"{key} = {shown(value)}; expected {expected}")
            except RecursionError:
                self.refuse(where, f"{key}: nested too deeply")
        return values

    def _settings(
        self, table: Mapping[str, Any], path: Place, known: Collection[str], above: str = ""
    ) -> Iterator[tuple[str, Any, Place]]:
        """Keys with their dots, quoted or not: to TOML `retention.ms` is a table `retention` with a key `ms`."""
        for name, value in table.items():
            key, where = above + name, (*path, name)
            if key in known:
                yield key, value, where
            elif isinstance(value, dict) and any(each.startswith(f"{key}.") for each in known):
                yield from self._settings(value, where, known, f"{key}.")
            else:
                nearest = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(sorted(known))}"
                self.refuse(where, f"unknown key {key}; {hint}")

    def tables(self, table: Mapping[str, Any], name: str, path: Place) -> list[Mapping[str, Any]]:
        """The tables of an array `[[name]]`.

        Raises:
            UsageError: it is something else.
        """
        entries = table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.refuse((*path, name), f"{name}: expected tables [[{name}]]")
        return entries

    def line(self, path: Place) -> int:
        """The line of a key; where that is not known, of the table around it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def refuse(self, where: Place, message: str) -> NoReturn:
        """Say what is wrong there.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self.path}: line {self.line(where)}: {message}")


def read_text(path: Path, what: str = "policies") -> str:
    """What a file holds that people write.

    Args:
        what: it is expected to hold, for messages.

    Raises:
        UsageError: it cannot be read, or is no such file.
    """
    try:
        if stat.S_ISFIFO(path.stat().st_mode) or path.stat().st_size > _BYTES_MAX:
            raise UsageError(f"{path}: no file of {what}: a pipe, or more than {_BYTES_MAX:,} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot read the {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start}: not UTF-8, expected a TOML file") from error


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """What a TOML document holds.

    Raises:
        UsageError: it cannot be parsed.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except ValueError as error:
        raise UsageError(f"{path}: a number of more than {sys.get_int_max_str_digits():,} digits") from error
    except RecursionError as error:
        raise UsageError(f"{path}: its values are nested too deeply") from error


def shown(value: object) -> str:
    """A value in a message, as far as Python writes it."""
    try:
        return repr(value)
    except (RecursionError, ValueError):  # of a hexadecimal number of too many digits
        return "…"


def whole_number(value: object, least: int, expected: str, most: int = LONG_MAX) -> int:
    """A whole number from `least` to `most`.

    Raises:
        ValueError: it is none; the message is `expected`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(expected)
    return value


def pattern(value: object) -> re.Pattern[str]:
    """A regular expression.

    Raises:
        ValueError: it is none.
    """
    try:
        return re.compile(str(value))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a regular expression ({error})") from error


_TABLE: Final = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(#.*)?")
_KEY: Final = re.compile(r"\s*([^=#\[]+?)\s*=.*")


def _lines(text: str) -> dict[Place, int]:
    """The lines on which tables and keys begin, as far as they begin a line. `tomllib` keeps none."""
    found: dict[Place, int] = {(): 1}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TABLE.fullmatch(line):
            table = ()
            parts = _parts(match[2])
            for place, part in enumerate(parts):
                table += (part,)
                if match[1] == "[[" and place == len(parts) - 1:
                    counts[table] = counts.get(table, -1) + 1
                if table in counts:
                    found.setdefault(table, number)
                    table += (counts[table],)
            found.setdefault(table, number)
        elif match := _KEY.fullmatch(line):
            path = table
            for part in _parts(match[1]):
                path += (part,)
                found.setdefault(path, number)
    return found


def _parts(key: str) -> list[str]:
    """A key's parts, as TOML reads them; none where it is no key."""
    try:
        table = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return []
    parts = []
    while isinstance(table, dict):
        [(part, table)] = table.items()
        parts.append(part)
    return parts
