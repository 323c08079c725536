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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kidxlib.errors import UsageError
from kidxlib.retention.described_topic import Block, ConfigEntry, raise_malformed
from kidxlib.retention.tool_output import BEFORE, HEAD, TOPIC_LINE, blocks
from kidxlib.text.quoted import quoted

#: By topic, the values that were described, by Kafka's names.
Described = Mapping[str, Mapping[str, ConfigEntry]]

_PROPERTIES: Final = ".properties"
#: As `java.util.Properties.load` takes a line apart, where it has no escapes.
_PROPERTY: Final = re.compile(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)")


def is_described(path: Path, text: str) -> bool:
    """Whether this module can read a file."""
    return (
        path.suffix == _PROPERTIES
        or text.lstrip().startswith("{")
        or any(pattern.match(line) for line in text.splitlines() for pattern in (HEAD, BEFORE, TOPIC_LINE))
    )


def read_described(path: Path, text: str) -> Described:
    """The topics' configurations in a file.

    Raises:
        UsageError: it contradicts itself on a topic, is truncated, or has JSON or properties that are not as above.
    """
    if path.suffix == _PROPERTIES:
        return _of_properties(path, text)
    if text.lstrip().startswith("{"):
        return _of_json(path, text)
    found: dict[str, dict[str, ConfigEntry]] = {}
    for topic, block in blocks(path, text):
        configs = block.configs()
        before = found.setdefault(topic, configs)
        if {name: config.value for name, config in before.items()} != {
            name: config.value for name, config in configs.items()
        }:
            raise_malformed(path, block.line, f"topic {topic}: described before, with other values; give one cluster's")
    return found


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
    block = Block(0, of_all=True)
    block.entries = {name: ConfigEntry(_text(value), of_topic=True, line=0) for name, value in values.items()}
    return block.configs()


def _of_properties(path: Path, text: str) -> Described:
    """The values that were set for the topic itself. The broker decides those that are not in the file, and nobody has
    reported them.
    """
    block = Block(0, of_all=False)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        entry = _PROPERTY.fullmatch(line)
        if entry is None or "\\" in line:
            raise_malformed(path, number, f"{quoted(line)}; expected KEY=VALUE, without a backslash")
        if entry[1] in block.entries:
            raise_malformed(path, number, f"{entry[1]}: given twice; keep one of them")
        block.entries[entry[1]] = ConfigEntry(entry[2].rstrip(), of_topic=True, line=number)
    if any(name.startswith(("log.", "broker.")) for name in block.entries):
        number = next(config.line for name, config in block.entries.items() if name.startswith(("log.", "broker.")))
        raise_malformed(path, number, "a broker's settings; expected those of the topic that the file is named after")
    return {path.name.removesuffix(_PROPERTIES): block.configs()}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
