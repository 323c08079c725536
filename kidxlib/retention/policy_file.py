"""Files of retention policies, of two kinds. What the keys mean: `kidxlib.retention.policy`.

TOML with Kafka's own names, checked:

    cleanup.policy = "delete"           # for all topics, and all policies below
    retention.ms = 604800000

    [policy.three-days]
    retention.ms = 259200000

    [[policy.three-days.topic]]
    match = "audit-.*"                  # a topic's full name
    retention.ms = -1

A file without `[policy.NAME]` is one policy, with its `[[topic]]` tables at the top.

The output of Kafka's own tools, as one policy: the values that retention needs, and who set each. It is

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
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.retention.policy import (
    DECIDING_CONFIGS,
    REMOTE_STORAGE_ENABLE,
    UNLIMITED,
    Cleanup,
    Origin,
    Policy,
    TopicConfig,
    TopicPattern,
    TopicPolicy,
)
from kidxlib.text.toml_file import LONG_MAX, Pattern, TomlTable, expected, parse_toml, read_toml_text
from kidxlib.text.words import quoted


def _cleanup_words(value: object) -> object:
    words = value.split(",") if isinstance(value, str) else value
    return [] if words in (["none"], [""]) else words


def _by_number(offsets: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    by_number = tuple((int(partition), offset) for partition, offset in offsets.items())
    if any(partition > PARTITION_MAX for partition, _ in by_number):
        raise ValueError("no partition has that number")
    return by_number


_Limit = Annotated[int, Field(ge=UNLIMITED, le=LONG_MAX), expected(f"a whole number, {UNLIMITED} (no limit) or more")]
_Cleanup = Annotated[
    frozenset[Annotated[Cleanup, BeforeValidator(lambda word: Cleanup(str(word).strip()))]],
    Field(strict=False),
    BeforeValidator(_cleanup_words),
    expected("delete, compact, both with a comma between them, or none"),
]
_Offsets = Annotated[
    dict[Annotated[str, Field(pattern="^[0-9]{1,10}$")], Annotated[int, Field(ge=0, le=LONG_MAX)]],
    AfterValidator(_by_number),
    expected("offsets by partition number, such as { 0 = 1500, 1 = 0 }"),
]

_POLICY_FIELDS: Final = frozenset(field.name for field in fields(TopicPolicy))

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


class _TopicTable(TomlTable):
    cleanup: _Cleanup | None = Field(default=None, alias="cleanup.policy")
    retention_ms: _Limit | None = Field(default=None, alias="retention.ms")
    retention_bytes: _Limit | None = Field(default=None, alias="retention.bytes")
    remote_storage: Annotated[bool, expected("true or false")] | None = Field(
        default=None, alias="remote.storage.enable"
    )

    def values(self) -> dict[str, Any]:
        """The fields of `TopicPolicy` that the table has."""
        return {name: value for name, value in self.given().items() if name in _POLICY_FIELDS}


class _PatternTable(_TopicTable):
    """`[[topic]]`."""

    match: Pattern
    order: Annotated[int, Field(ge=-LONG_MAX, le=LONG_MAX), expected("a whole number")] | None = None
    log_start_offsets: _Offsets | None = Field(default=None, alias="log.start.offsets")


class _PolicyTable(_TopicTable):
    """`[policy.NAME]`."""

    topic: tuple[_PatternTable, ...] = Field(default=(), strict=False)

    def patterns(self) -> tuple[TopicPattern, ...]:
        return tuple(TopicPattern(table.match, table.order, table.values()) for table in self.topic)


class _File(_PolicyTable):
    policy: dict[str, _PolicyTable] = Field(default_factory=dict)


def read_policies(path: Path) -> tuple[Policy, ...]:
    text = read_toml_text(path)
    if _is_described(path, text):
        described = {
            topic: config_of_described(path, topic, configs) for topic, configs in _read_described(path, text).items()
        }
        return (Policy(described=described, where=str(path)),)
    file = parse_toml(path, text, _File)
    shared = file.values()
    if not file.policy:
        return (Policy(values=shared, patterns=file.patterns(), where=str(path)),)
    if "topic" in file.model_fields_set:
        raise UsageError(f"{path}: [[topic]] beside [policy.NAME]; put it into each as [[policy.NAME.topic]]")
    return tuple(
        Policy(name, {**shared, **table.values()}, patterns=table.patterns(), where=f"{path}: policy.{name}")
        for name, table in file.policy.items()
    )


def config_of_described(where: object, topic: str, configs: Mapping[str, ConfigEntry]) -> TopicConfig:
    """A topic's configuration from its described values; nobody has set the others. `where`, a file or a directory, is
    named in errors.
    """
    try:
        table = _TopicTable.model_validate({name: _value(config.value) for name, config in configs.items()})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        line = f"line {configs[name].line}: " if configs[name].line else ""
        wrong = f"{name}={configs[name].value}; {first['ctx']['error']}"
        raise UsageError(f"{where}: {line}topic {topic}: {wrong}") from error
    origins = {name: Origin.TOPIC if config.of_topic else Origin.BROKER for name, config in configs.items()}
    return TopicConfig(TopicPolicy(**table.values()), {**dict.fromkeys(DECIDING_CONFIGS, Origin.KAFKA), **origins})


def _value(text: str) -> object:
    """The value that TOML would have in place of a text."""
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """The settings of one topic in the output of Kafka's tools.

    Attributes:
        of_topic: the values that were set for the topic itself, by Kafka's names.
        listed: the names of all settings that the output has.
    """

    of_topic: Mapping[str, str]
    listed: frozenset[str]


def read_own_settings(path: Path, text: str) -> dict[str, OwnSettings]:
    """All settings of the topics that `kafka-configs --describe` lists in a file; none where it lists no topic.

    Raises:
        UsageError: a line is cut off, or a topic is described twice and differently.
    """
    topics: dict[str, OwnSettings] = {}
    for topic, block in _blocks(path, text):
        of_topic = {name: entry.value for name, entry in block.entries.items() if entry.of_topic}
        own = OwnSettings(of_topic, frozenset(block.entries))
        if topics.setdefault(topic, own) != own:
            _raise_described_twice(path, block.line, topic)
    return topics


def _read_described(path: Path, text: str) -> _Described:
    """The topics' configurations in a file."""
    if path.suffix == _PROPERTIES:
        return _of_properties(path, text)
    if text.lstrip().startswith("{"):
        return _of_json(path, text)
    configs_by_topic: dict[str, dict[str, ConfigEntry]] = {}
    for topic, block in _blocks(path, text):
        configs = block.configs()
        before = configs_by_topic.setdefault(topic, configs)
        if {name: config.value for name, config in before.items()} != {
            name: config.value for name, config in configs.items()
        }:
            _raise_described_twice(path, block.line, topic)
    return configs_by_topic


def _is_described(path: Path, text: str) -> bool:
    """Whether a file is the output of Kafka's tools."""
    return (
        path.suffix == _PROPERTIES
        or text.lstrip().startswith("{")
        or any(pattern.match(line) for line in text.splitlines() for pattern in (_HEAD, _BEFORE, _TOPIC_LINE))
    )


@dataclass(slots=True)
class _Block:
    """The description of one topic, from its head line on. `of_all`: the tool was asked for all settings."""

    line: int
    of_all: bool
    entries: dict[str, ConfigEntry] = field(default_factory=dict)

    def configs(self) -> dict[str, ConfigEntry]:
        """The values that retention needs."""
        configs = {name: config for name, config in self.entries.items() if name in DECIDING_CONFIGS}
        if (elsewhere := self.entries.get(_TIERED_ELSEWHERE)) is not None and elsewhere.value == "true":
            configs[REMOTE_STORAGE_ENABLE] = elsewhere
        elif self.of_all and self.entries.keys() >= _LISTED_BY_ALL:
            configs.setdefault(REMOTE_STORAGE_ENABLE, ConfigEntry("false", of_topic=False, line=self.line))
        return configs


def _raise_described_twice(path: Path, line: int, topic: str) -> NoReturn:
    _raise_malformed(path, line, f"topic {topic}: described before, with other values; give one cluster's")


def _raise_malformed(path: Path, line: int, message: str) -> NoReturn:
    raise UsageError(f"{path}: line {line}: {message}")


#: The values of each topic by Kafka's names.
_Described = Mapping[str, Mapping[str, ConfigEntry]]


def _blocks(path: Path, text: str) -> Iterator[tuple[str, _Block]]:
    """The topics with their descriptions; a topic may come more than once."""
    topic, block = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        if (head := _HEAD.match(line)) is not None:
            if block is not None:
                yield topic, block
            # The configuration of a broker, a user, … is passed over.
            topic, block = (head[3], _Block(number, head[1] == "All")) if head[2] == "topic" else ("", None)
        elif (listed := _BEFORE.match(line) or _TOPIC_LINE.match(line)) is not None:
            yield listed[1], _block_of_list(path, listed[2], number)
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
            _raise_malformed(path, number, f"{entry[1]}: given twice; keep one of them")
        block.entries[entry[1]] = ConfigEntry(entry[2], entry[3].startswith(f"{_OF_TOPIC}:"), number)
    elif line.partition("=")[0] in DECIDING_CONFIGS:
        _raise_malformed(
            path, number, f"{quoted(line)}; expected KEY=VALUE sensitive=… synonyms={{…}}, is the output cut off?"
        )


def _block_of_list(path: Path, text: str, number: int) -> _Block:
    block = _Block(number, of_all=False)
    for entry in _NEXT.split(text):
        name, equals, value = entry.partition("=")
        if name in block.entries:
            _raise_malformed(path, number, f"{name}: given twice; keep one of them")
        if equals:
            block.entries[name] = ConfigEntry(value, of_topic=True, line=number)
    return block


def _of_json(path: Path, text: str) -> _Described:
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
    block = _Block(0, of_all=True)
    block.entries = {name: ConfigEntry(_text(value), of_topic=True, line=0) for name, value in values.items()}
    return block.configs()


def _of_properties(path: Path, text: str) -> _Described:
    """The values that were set for the topic itself. Values that are not in the file are the broker's, and nobody has
    reported them.
    """
    block = _Block(0, of_all=False)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        entry = _PROPERTY.fullmatch(line)
        if entry is None or "\\" in line:
            _raise_malformed(path, number, f"{quoted(line)}; expected KEY=VALUE, without a backslash")
        if entry[1] in block.entries:
            _raise_malformed(path, number, f"{entry[1]}: given twice; keep one of them")
        block.entries[entry[1]] = ConfigEntry(entry[2].rstrip(), of_topic=True, line=number)
    if any(name.startswith(("log.", "broker.")) for name in block.entries):
        number = next(config.line for name, config in block.entries.items() if name.startswith(("log.", "broker.")))
        _raise_malformed(path, number, "a broker's settings; expected those of the topic that the file is named after")
    return {path.name.removesuffix(_PROPERTIES): block.configs()}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
