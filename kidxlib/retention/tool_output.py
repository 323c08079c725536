"""Parses topics' configurations in the lines that `kafka-configs` and `kafka-topics` print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kidxlib.retention.described_topic import Block, ConfigEntry, raise_malformed
from kidxlib.retention.topic_policy import DECIDING_CONFIGS
from kidxlib.text.quoted import quoted

#: Of the topic itself; what else there is are settings of the broker, or of the release, as the broker described them.
_OF_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"

HEAD: Final = re.compile(r"(All|Dynamic) configs for (topic|[a-z-]+) (\S+) are:\s*(.*)")
_ENTRY: Final = re.compile(r"(\S+?)=(.*) sensitive=(?:true|false) synonyms=\{(.*)\}")
BEFORE: Final = re.compile(r"Configs for topic '(\S+)' are ?(.*)")
TOPIC_LINE: Final = re.compile(r"Topic: ?(\S+)\s.*\bConfigs: ?(\S*)\s*")
#: In a list of values with commas, where the next key begins.
_NEXT: Final = re.compile(r",(?=[a-z][a-z0-9.]*=)")


def blocks(path: Path, text: str) -> Iterator[tuple[str, Block]]:
    """The topics, each with its description; a topic may come more than once."""
    topic, block = "", None
    for number, line in enumerate(text.splitlines(), start=1):
        if (head := HEAD.match(line)) is not None:
            if block is not None:
                yield topic, block
            # Of a broker, a user, …: not asked for.
            topic, block = (head[3], Block(number, head[1] == "All")) if head[2] == "topic" else ("", None)
        elif (one := BEFORE.match(line) or TOPIC_LINE.match(line)) is not None:
            yield one[1], _of_list(path, one[2], number)
        elif line.startswith("Default configs for "):
            if block is not None:
                yield topic, block
            topic, block = "", None
        elif block is not None and line.startswith("  "):
            _add(path, number, line.strip(), block)
    if block is not None:
        yield topic, block


def _add(path: Path, number: int, line: str, block: Block) -> None:
    entry = _ENTRY.fullmatch(line)
    if entry is not None:
        if entry[1] in block.entries:
            raise_malformed(path, number, f"{entry[1]}: given twice; keep one of them")
        block.entries[entry[1]] = ConfigEntry(entry[2], entry[3].startswith(f"{_OF_TOPIC}:"), number)
    elif line.partition("=")[0] in DECIDING_CONFIGS:
        raise_malformed(
            path, number, f"{quoted(line)}; expected KEY=VALUE sensitive=… synonyms={{…}}, is the output cut off?"
        )


def _of_list(path: Path, text: str, number: int) -> Block:
    block = Block(number, of_all=False)
    for entry in _NEXT.split(text):
        name, equals, value = entry.partition("=")
        if name in block.entries:
            raise_malformed(path, number, f"{name}: given twice; keep one of them")
        if equals:
            block.entries[name] = ConfigEntry(value, of_topic=True, line=number)
    return block
