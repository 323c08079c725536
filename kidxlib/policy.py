"""Retention policies: a file (TOML) with Kafka's own names → what each topic's configuration says.

    retention.ms = 604800000            # for all topics, and all policies below

    [policy.three-days]
    retention.ms = 259200000

    [[policy.three-days.topic]]
    match = "audit-.*"                  # a topic's full name
    retention.ms = -1

A file without `[policy.NAME]` is one policy, and its `[[topic]]` tables stand at the top.
"""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from kidxlib.errors import UsageError
from kidxlib.names import PARTITION_MAX
from kidxlib.retention import UNLIMITED, Cleanup, Reason, TopicPolicy

#: The one policy of a file that names none, or of none but options.
DEFAULT_NAME: Final = "default"

#: The controller's log: a broker removes what its snapshots cover, and asks no policy.
METADATA_TOPIC: Final = "__cluster_metadata"

#: Kafka's own topics, with what a broker sets when it makes them.
INTERNAL_TOPICS: Final[Mapping[str, Mapping[str, object]]] = {
    "__consumer_offsets": {"cleanup": frozenset({Cleanup.COMPACT})},
    "__transaction_state": {"cleanup": frozenset({Cleanup.COMPACT})},
    "__share_group_state": {"retention_ms": UNLIMITED},
    "__remote_log_metadata": {"retention_ms": UNLIMITED},
}

_LONG_MAX: Final = 2**63 - 1
_FIELDS: Final = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "cleanup.policy": "cleanup",
    "remote.storage.enable": "remote_storage",
}
_OF_PATTERN: Final = {**_FIELDS, "log.start.offsets": "log_start_offsets", "match": "match", "order": "order"}

#: A place in a TOML document: names of tables and keys, and numbers of the tables in an array.
_Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """What differs for the topics whose full name matches.

    Attributes:
        order: where several match, each needs one, and the smallest wins.
        line: of the file, where it stands.
    """

    match: re.Pattern[str]
    order: int | None
    line: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy for all topics.

    Attributes:
        values: fields of `TopicPolicy` that differ from Kafka's defaults.
        where: the file it stands in.
    """

    name: str = DEFAULT_NAME
    values: Mapping[str, Any] = field(default_factory=dict)
    patterns: tuple[TopicPattern, ...] = ()
    where: str = ""

    def of_topic(self, topic: str) -> TopicPolicy:
        """A topic's own.

        Raises:
            UsageError: two patterns match it, and nothing says which comes first.
        """
        matching = [pattern for pattern in self.patterns if pattern.match.fullmatch(topic)]
        matching.sort(key=lambda pattern: (pattern.order is None, pattern.order))
        for first, second in itertools.pairwise(matching):
            if second.order is None or first.order == second.order:
                upper, lower = sorted((first, second), key=lambda pattern: pattern.line)
                raise UsageError(
                    f"{self.where}: line {lower.line}: topic {topic} matches {lower.match.pattern!r}, and "
                    f"{upper.match.pattern!r} of line {upper.line}; give each an order, the smaller wins"
                )
        own = matching[0].values if matching else {}
        return TopicPolicy(**{**self.values, **INTERNAL_TOPICS.get(topic, {}), **own})


def kept_for_its_topic(topic: str, policy: TopicPolicy, include_internal: bool) -> Reason | None:
    """Why all of a topic's segments are kept, whatever its limits; None where that is not so."""
    if topic == METADATA_TOPIC or policy.remote_storage:
        return Reason.NOT_MODELLED
    return Reason.INTERNAL_TOPIC if topic in INTERNAL_TOPICS and not include_internal else None


def read_policies(path: Path) -> tuple[Policy, ...]:
    """The policies of a file.

    Raises:
        UsageError: it cannot be read or parsed, or a line says something that it may not.
    """
    try:
        text = path.read_text()
        document = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot read the policies: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start}: not UTF-8, expected a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    return _File(path, _lines(text)).policies(document)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    lines: Mapping[_Path, int]

    def policies(self, document: Mapping[str, Any]) -> tuple[Policy, ...]:
        shared = {key: value for key, value in document.items() if key not in ("policy", "topic")}
        values = self._values(shared, (), _FIELDS)
        named = document.get("policy", {})
        if not isinstance(named, dict) or not all(isinstance(table, dict) for table in named.values()):
            self._refuse(("policy",), "policy: expected tables [policy.NAME]")
        if not named:
            return (Policy(DEFAULT_NAME, values, self._patterns(document, ()), str(self.path)),)
        if "topic" in document:
            self._refuse(("topic",), "[[topic]] beside [policy.NAME]; put it into each as [[policy.NAME.topic]]")
        return tuple(self._policy(name, table, values) for name, table in named.items())

    def _policy(self, name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Policy:
        path: _Path = ("policy", name)
        own = self._values({key: value for key, value in table.items() if key != "topic"}, path, _FIELDS)
        return Policy(name, {**shared, **own}, self._patterns(table, path), str(self.path))

    def _patterns(self, table: Mapping[str, Any], path: _Path) -> tuple[TopicPattern, ...]:
        entries = table.get("topic", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self._refuse((*path, "topic"), "topic: expected tables [[topic]]")
        return tuple(self._pattern(entry, (*path, "topic", number)) for number, entry in enumerate(entries))

    def _pattern(self, entry: Mapping[str, Any], path: _Path) -> TopicPattern:
        values = self._values(entry, path, _OF_PATTERN)
        if "match" not in values:
            self._refuse(path, "[[topic]] without match; expected a regular expression for topics' full names")
        return TopicPattern(values.pop("match"), values.pop("order", None), self._line(path), values)

    def _values(self, table: Mapping[str, Any], path: _Path, known: Mapping[str, str]) -> dict[str, Any]:
        """The values of a table by what they are called here, each checked."""
        values = {}
        for key, value, where in self._settings(table, path, known):
            if known[key] in values:
                self._refuse(where, f"{key}: given twice")
            values[known[key]] = self._checked(key, value, where)
        return values

    def _settings(
        self, table: Mapping[str, Any], path: _Path, known: Collection[str], above: str = ""
    ) -> Iterator[tuple[str, Any, _Path]]:
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
                self._refuse(where, f"unknown key {key}; {hint}")

    def _checked(self, key: str, value: Any, where: _Path) -> Any:
        try:
            return _CHECKS[key](value)
        except ValueError as expected:
            self._refuse(where, f"{key} = {value!r}; expected {expected}")

    def _line(self, path: _Path) -> int:
        """The line of a key; where that is not known, of the table around it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]

    def _refuse(self, where: _Path, message: str) -> NoReturn:
        raise UsageError(f"{self.path}: line {self._line(where)}: {message}")


def _limit(value: object) -> int:
    return _whole_number(value, UNLIMITED, f"a whole number, {UNLIMITED} (no limit) or more")


def _order(value: object) -> int:
    return _whole_number(value, -_LONG_MAX, "a whole number")


def _whole_number(value: object, least: int, expected: str, most: int = _LONG_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(expected)
    return value


def _flag(value: object) -> bool:
    if value is True or value is False:
        return value
    raise ValueError("true or false")


def _cleanup(value: object) -> frozenset[Cleanup]:
    words = value.split(",") if isinstance(value, str) else value
    if words in (["none"], [""]):
        return frozenset()
    try:
        if isinstance(words, list):
            return frozenset(Cleanup(str(word).strip()) for word in words)
    except ValueError:
        pass
    raise ValueError("delete, compact, both with a comma between them, or none")


def _offsets_by_partition(value: object) -> tuple[tuple[int, int], ...]:
    expected = "offsets by partition number, such as { 0 = 1500, 1 = 0 }"
    if not isinstance(value, dict) or not all(re.fullmatch("[0-9]{1,10}", partition) for partition in value):
        raise ValueError(expected)
    return tuple(
        (_whole_number(int(partition), 0, expected, PARTITION_MAX), _whole_number(offset, 0, expected))
        for partition, offset in value.items()
    )


def _pattern(value: object) -> re.Pattern[str]:
    try:
        return re.compile(str(value))
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error


#: What each key's value is checked and read by; what it expected is the message of the `ValueError` that it raises.
_CHECKS: Final[Mapping[str, Callable[[object], Any]]] = {
    "retention.ms": _limit,
    "retention.bytes": _limit,
    "cleanup.policy": _cleanup,
    "remote.storage.enable": _flag,
    "log.start.offsets": _offsets_by_partition,
    "match": _pattern,
    "order": _order,
}

_TABLE: Final = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(#.*)?")
_KEY: Final = re.compile(r"\s*([^=#\[]+?)\s*=.*")


def _lines(text: str) -> dict[_Path, int]:
    """The lines on which tables and keys begin, as far as they begin a line. `tomllib` keeps none."""
    found: dict[_Path, int] = {(): 1}
    counts: dict[_Path, int] = {}
    table: _Path = ()
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
