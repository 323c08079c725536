"""Reads topics' configurations in the output of Kafka's own tools: the values that retention needs, and who set each.

It reads

- `kafka-configs --describe --all --entity-type topics`, of one topic or of all, as
  `ConfigCommand.describeResourceConfig` prints it from 2.5 to 4.3; without `--all` it has only what was set for the
  topic itself:

        All configs for topic orders are:
          cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, …}

- the line that it printed of a topic before, with `--zookeeper`: `Configs for topic 'orders' are retention.ms=1000,…`
- the first line of a topic in `kafka-topics --describe`: `Topic: orders … Configs: cleanup.policy=compact,delete,…`
- JSON: an object of objects, `{"orders": {"cleanup.policy": "delete", "retention.ms": "1000"}}`
- `orders.properties`: the file of a topic's settings that `kafka-configs --add-config-file` takes, named after it

Other lines around the first three are skipped: both tools log to the same output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from kidxlib.errors import UsageError
from kidxlib.retention.policy import DECIDING_CONFIGS, REMOTE_STORAGE_ENABLE
from kidxlib.text.words import quoted


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A value in the output of Kafka's tools.

    Attributes:
        of_topic: whether it was set for the topic itself; else it is the broker's value.
        line: its line in the file; 0 in JSON.
    """

    value: str
    of_topic: bool
    line: int


@dataclass(slots=True)
class DescribedTopic:
    """A topic in the output of Kafka's tools, from its head line on. `of_all`: the tool was asked for all settings."""

    line: int
    of_all: bool
    entries: dict[str, ConfigEntry] = field(default_factory=dict)

    def configs(self) -> dict[str, ConfigEntry]:
        """The described values that retention needs."""
        configs = {name: config for name, config in self.entries.items() if name in DECIDING_CONFIGS}
        if (elsewhere := self.entries.get(_TIERED_ELSEWHERE)) is not None and elsewhere.value == "true":
            configs[REMOTE_STORAGE_ENABLE] = elsewhere
        elif self.of_all and self.entries.keys() >= _LISTED_BY_ALL:
            configs.setdefault(REMOTE_STORAGE_ENABLE, ConfigEntry("false", of_topic=False, line=self.line))
        return configs


def _raise_malformed(path: Path, line: int, message: str) -> NoReturn:
    raise UsageError(f"{path}: line {line}: {message}")


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """The settings of one topic in the output of Kafka's tools.

    Attributes:
        of_topic: the values that were set for the topic itself, by Kafka's names.
        listed: the names of all settings that the output has.
    """

    of_topic: Mapping[str, str]
    listed: frozenset[str]


#: The values of each topic by Kafka's names.
Described = Mapping[str, Mapping[str, ConfigEntry]]

_PROPERTIES: Final = ".properties"
#: A line as `java.util.Properties.load` parses it, without escapes.
_PROPERTY: Final = re.compile(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)")

#: The source of a topic's own values; other sources are settings of the broker or of its release.
_OF_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"

_HEAD: Final = re.compile(r"(All|Dynamic) configs for (topic|[a-z-]+) (\S+) are:\s*(.*)")
_ENTRY: Final = re.compile(r"(\S+?)=(.*) sensitive=(?:true|false) synonyms=\{(.*)\}")
_BEFORE: Final = re.compile(r"Configs for topic '(\S+)' are ?(.*)")
_TOPIC_LINE: Final = re.compile(r"Topic: ?(\S+)\s.*\bConfigs: ?(\S*)\s*")
#: The comma before the next key, in a list whose values contain commas.
_NEXT: Final = re.compile(r",(?=[a-z][a-z0-9.]*=)")

#: A release that knows no tiered storage (before 3.6) does not list whether a topic has it. So a topic is not tiered if
#: that is not listed and everything else is: every release from 2.5 on lists these, at the beginning, in the middle and
#: at the end.
_LISTED_BY_ALL: Final = frozenset(
    {"cleanup.policy", "compression.type", "flush.ms", "index.interval.bytes", "max.message.bytes", "preallocate"}
    | {"retention.bytes", "retention.ms", "segment.bytes", "segment.ms", "unclean.leader.election.enable"}
)
#: The name in Confluent's server.
_TIERED_ELSEWHERE: Final = "confluent.tier.enable"


def is_described(path: Path, text: str) -> bool:
    """Whether this module can read a file."""
    return (
        path.suffix == _PROPERTIES
        or text.lstrip().startswith("{")
        or any(pattern.match(line) for line in text.splitlines() for pattern in (_HEAD, _BEFORE, _TOPIC_LINE))
    )


def _described_topics(path: Path, text: str) -> Iterator[tuple[str, DescribedTopic]]:
    """The topics with their descriptions; a topic may come more than once."""
    topic, described = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        if (head := _HEAD.match(line)) is not None:
            if described is not None:
                yield topic, described
            # The configuration of a broker, a user, … is passed over.
            topic, described = (head[3], DescribedTopic(number, head[1] == "All")) if head[2] == "topic" else ("", None)
        elif (listed := _BEFORE.match(line) or _TOPIC_LINE.match(line)) is not None:
            yield listed[1], _topic_of_list(path, listed[2], number)
        elif line.startswith("Default configs for "):
            if described is not None:
                yield topic, described
            topic, described = "", None
        elif described is not None and line.startswith("  "):
            _add(path, number, line.strip(), described)
    if described is not None:
        yield topic, described


def _add(path: Path, number: int, line: str, described: DescribedTopic) -> None:
    entry = _ENTRY.fullmatch(line)
    if entry is not None:
        if entry[1] in described.entries:
            _raise_malformed(path, number, f"{entry[1]}: given twice; keep one of them")
        described.entries[entry[1]] = ConfigEntry(entry[2], entry[3].startswith(f"{_OF_TOPIC}:"), number)
    elif line.partition("=")[0] in DECIDING_CONFIGS:
        _raise_malformed(
            path, number, f"{quoted(line)}; expected KEY=VALUE sensitive=… synonyms={{…}}, is the output cut off?"
        )


def _topic_of_list(path: Path, text: str, number: int) -> DescribedTopic:
    described = DescribedTopic(number, of_all=False)
    for entry in _NEXT.split(text):
        name, equals, value = entry.partition("=")
        if name in described.entries:
            _raise_malformed(path, number, f"{name}: given twice; keep one of them")
        if equals:
            described.entries[name] = ConfigEntry(value, of_topic=True, line=number)
    return described


def read_described(path: Path, text: str) -> Described:
    """The topics' configurations in a file."""
    if path.suffix == _PROPERTIES:
        return _of_properties(path, text)
    if text.lstrip().startswith("{"):
        return _of_json(path, text)
    configs_by_topic: dict[str, dict[str, ConfigEntry]] = {}
    for topic, described in _described_topics(path, text):
        configs = described.configs()
        before = configs_by_topic.setdefault(topic, configs)
        if {name: config.value for name, config in before.items()} != {
            name: config.value for name, config in configs.items()
        }:
            _raise_malformed(
                path, described.line, f"topic {topic}: described before, with other values; give one cluster's"
            )
    return configs_by_topic


def read_own_settings(path: Path, text: str) -> dict[str, OwnSettings]:
    """All settings of the topics that `kafka-configs --describe` lists in a file; none where it lists no topic.

    Raises:
        UsageError: a line is cut off, or a topic is described twice and differently.
    """
    topics: dict[str, OwnSettings] = {}
    for topic, described in _described_topics(path, text):
        own = OwnSettings(
            {name: entry.value for name, entry in described.entries.items() if entry.of_topic},
            frozenset(described.entries),
        )
        if topics.setdefault(topic, own) != own:
            _raise_malformed(
                path, described.line, f"topic {topic}: described before, with other values; give one cluster's"
            )
    return topics


def _of_json(path: Path, text: str) -> Described:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:
                raise UsageError(f"{path}: {name}: given twice; keep one of them")
            values[name] = value
        return values

    try:
        document: Any = json.loads(text, object_pairs_hook=once)
        return {topic: _of_object(path, topic, values) for topic, values in document.items()}
    except ValueError as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: not valid JSON: nested too deeply, expected an object for each topic") from error


def _of_object(path: Path, topic: str, values: object) -> dict[str, ConfigEntry]:
    if not isinstance(values, dict):
        raise UsageError(f'{path}: {topic}: {quoted(values)}; expected an object, {{"cleanup.policy": "delete", …}}')
    described = DescribedTopic(0, of_all=True)
    described.entries = {name: ConfigEntry(_text(value), of_topic=True, line=0) for name, value in values.items()}
    return described.configs()


def _of_properties(path: Path, text: str) -> Described:
    """The values that were set for the topic itself. Values that are not in the file are the broker's, and nobody has
    reported them.
    """
    described = DescribedTopic(0, of_all=False)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        entry = _PROPERTY.fullmatch(line)
        if entry is None or "\\" in line:
            _raise_malformed(path, number, f"{quoted(line)}; expected KEY=VALUE, without a backslash")
        if entry[1] in described.entries:
            _raise_malformed(path, number, f"{entry[1]}: given twice; keep one of them")
        described.entries[entry[1]] = ConfigEntry(entry[2].rstrip(), of_topic=True, line=number)
    if any(name.startswith(("log.", "broker.")) for name in described.entries):
        number = next(config.line for name, config in described.entries.items() if name.startswith(("log.", "broker.")))
        _raise_malformed(path, number, "a broker's settings; expected those of the topic that the file is named after")
    return {path.name.removesuffix(_PROPERTIES): described.configs()}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
