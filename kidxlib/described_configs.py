"""What Kafka's own tools print of topics' configurations → the values that retention rests on, and who set each.

Read are

- `kafka-configs --describe --all --entity-type topics`, of one topic or of all, as
  `ConfigCommand.describeResourceConfig` prints it from 2.5 to 4.3; without `--all` it tells what was set for the topic
  itself, no more:

        All configs for topic orders are:
          cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, …}

- the line that it printed of a topic before, with `--zookeeper`: `Configs for topic 'orders' are retention.ms=1000,…`
- the first line of a topic in `kafka-topics --describe`: `Topic: orders … Configs: cleanup.policy=compact,delete,…`
- JSON: an object of objects, `{"orders": {"cleanup.policy": "delete", "retention.ms": "1000"}}`
- `orders.properties`: the file of a topic's settings that `kafka-configs --add-config-file` takes, named after it

Lines around the first three are passed over: both tools log to where their answer goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from kidxlib.errors import UsageError
from kidxlib.retention import RESTED_ON

#: A release that knows no tiered storage (before 3.6) does not list whether a topic has it. That it is not listed tells
#: so only where all is listed: every release from 2.5 on lists these, at the beginning, in the middle and at the end.
_LISTED_BY_ALL: Final = frozenset(
    {"cleanup.policy", "compression.type", "flush.ms", "index.interval.bytes", "max.message.bytes", "preallocate"}
    | {"retention.bytes", "retention.ms", "segment.bytes", "segment.ms", "unclean.leader.election.enable"}
)
_TIERED: Final = "remote.storage.enable"
#: What Confluent's server calls it.
_TIERED_ELSEWHERE: Final = "confluent.tier.enable"
#: Of the topic itself; what else there is are settings of the broker, or of the release, as the broker told them.
_OF_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"

_HEAD: Final = re.compile(r"(All|Dynamic) configs for (topic|[a-z-]+) (\S+) are:\s*(.*)")
_ENTRY: Final = re.compile(r"(\S+?)=(.*) sensitive=(?:true|false) synonyms=\{(.*)\}")
_BEFORE: Final = re.compile(r"Configs for topic '(\S+)' are ?(.*)")
_TOPIC_LINE: Final = re.compile(r"Topic: ?(\S+)\s.*\bConfigs: ?(\S*)\s*")
#: In a list of values with commas, where the next key begins.
_NEXT: Final = re.compile(r",(?=[a-z][a-z0-9.]*=)")


@dataclass(frozen=True, slots=True)
class Said:
    """A value as it was told.

    Attributes:
        of_topic: it was set for the topic itself; else it is what its broker goes by where nothing is.
        line: where it stands in the file; 0 in JSON.
    """

    value: str
    of_topic: bool
    line: int


@dataclass(slots=True)
class _Block:
    """What is told of one topic, from its head line on."""

    line: int
    of_all: bool
    entries: dict[str, Said] = field(default_factory=dict)

    def told(self) -> dict[str, Said]:
        """The values that retention rests on."""
        told = {name: said for name, said in self.entries.items() if name in RESTED_ON}
        if (elsewhere := self.entries.get(_TIERED_ELSEWHERE)) is not None and elsewhere.value == "true":
            told[_TIERED] = elsewhere
        elif self.of_all and self.entries.keys() >= _LISTED_BY_ALL:
            told.setdefault(_TIERED, Said("false", of_topic=False, line=self.line))
        return told


#: By topic, the values that were told, by Kafka's names.
Described = Mapping[str, Mapping[str, Said]]

_PROPERTIES: Final = ".properties"
#: As `java.util.Properties.load` takes a line apart, where it has no escapes.
_PROPERTY: Final = re.compile(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)")


def is_described(path: Path, text: str) -> bool:
    """Whether a file is what this module reads."""
    return (
        path.suffix == _PROPERTIES
        or text.lstrip().startswith("{")
        or any(pattern.match(line) for line in text.splitlines() for pattern in (_HEAD, _BEFORE, _TOPIC_LINE))
    )


def read_described(path: Path, text: str) -> Described:
    """What a file says of topics.

    Raises:
        UsageError: it says two things of a topic, or what it says is cut off, or JSON or properties are not as above.
    """
    if path.suffix == _PROPERTIES:
        return _of_properties(path, text)
    if text.lstrip().startswith("{"):
        return _of_json(path, text)
    found: dict[str, dict[str, Said]] = {}
    for topic, block in _blocks(path, text):
        told = block.told()
        before = found.setdefault(topic, told)
        if {name: said.value for name, said in before.items()} != {name: said.value for name, said in told.items()}:
            _refuse(path, block.line, f"topic {topic}: described before, with other values; give one cluster's")
    return found


def _blocks(path: Path, text: str) -> Iterator[tuple[str, _Block]]:
    topic, block = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        if (head := _HEAD.match(line)) is not None:
            if block is not None:
                yield topic, block
            # Of a broker, a user, …: not asked for.
            topic, block = (head[3], _Block(number, head[1] == "All")) if head[2] == "topic" else ("", None)
        elif (one := _BEFORE.match(line) or _TOPIC_LINE.match(line)) is not None:
            yield one[1], _of_list(path, one[2], number)
        elif line.startswith("Default configs for "):
            if block is not None:
                yield topic, block
            topic, block = "", None
        elif block is not None and line.startswith("  "):
            _add(path, number, line.strip(), block)
    if block is not None:
        yield topic, block


def _add(path: Path, number: int, line: str, block: _Block) -> None:
    entry = _ENTRY.fullmatch(line)
    if entry is not None:
        if entry[1] in block.entries:
            _refuse(path, number, f"{entry[1]}: given twice")
        block.entries[entry[1]] = Said(entry[2], entry[3].startswith(f"{_OF_TOPIC}:"), number)
    elif line.partition("=")[0] in RESTED_ON:
        _refuse(path, number, f"{line!r}; expected KEY=VALUE sensitive=… synonyms={{…}}, is the output cut off?")


def _of_list(path: Path, text: str, number: int) -> _Block:
    block = _Block(number, of_all=False)
    for entry in _NEXT.split(text):
        name, equals, value = entry.partition("=")
        if name in block.entries:
            _refuse(path, number, f"{name}: given twice")
        if equals:
            block.entries[name] = Said(value, of_topic=True, line=number)
    return block


def _of_json(path: Path, text: str) -> Described:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:
                raise UsageError(f"{path}: {name}: given twice")
            values[name] = value
        return values

    try:
        document: Any = json.loads(text, object_pairs_hook=once)
        return {topic: _of_object(path, topic, values) for topic, values in document.items()}
    except ValueError as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: not valid JSON: nested too deeply") from error


def _of_object(path: Path, topic: str, values: object) -> dict[str, Said]:
    if not isinstance(values, dict):
        raise UsageError(f'{path}: {topic}: {values!r}; expected an object, {{"cleanup.policy": "delete", …}}')
    block = _Block(0, of_all=True)
    block.entries = {name: Said(_text(value), of_topic=True, line=0) for name, value in values.items()}
    return block.told()


def _of_properties(path: Path, text: str) -> Described:
    """What was set for the topic itself; what is not in the file its broker decides, and nobody has told that."""
    block = _Block(0, of_all=False)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        entry = _PROPERTY.fullmatch(line)
        if entry is None or "\\" in line:
            _refuse(path, number, f"{line!r}; expected KEY=VALUE, without a backslash")
        if entry[1] in block.entries:
            _refuse(path, number, f"{entry[1]}: given twice")
        block.entries[entry[1]] = Said(entry[2].rstrip(), of_topic=True, line=number)
    if any(name.startswith(("log.", "broker.")) for name in block.entries):
        number = next(said.line for name, said in block.entries.items() if name.startswith(("log.", "broker.")))
        _refuse(path, number, "a broker's settings; expected those of the topic that the file is named after")
    return {path.name.removesuffix(_PROPERTIES): block.told()}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse(path: Path, line: int, message: str) -> NoReturn:
    raise UsageError(f"{path}: line {line}: {message}")
