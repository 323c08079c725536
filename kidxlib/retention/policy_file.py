"""Files of retention policies: TOML with Kafka's own names, checked. What the keys mean: `kidxlib.retention.policy`.

    cleanup.policy = "delete"           # for all topics, and all policies below
    retention.ms = 604800000

    [policy.three-days]
    retention.ms = 259200000

    [[policy.three-days.topic]]
    match = "audit-.*"                  # a topic's full name
    retention.ms = -1

A file without `[policy.NAME]` is one policy, with its `[[topic]]` tables at the top. The output of Kafka's tools is
also read, as one policy (`kidxlib.retention.described_configs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.retention.described_configs import ConfigEntry, is_described, read_described
from kidxlib.retention.policy import (
    DECIDING_CONFIGS,
    UNLIMITED,
    Cleanup,
    Origin,
    Policy,
    TopicConfig,
    TopicPattern,
    TopicPolicy,
)
from kidxlib.text.toml_file import LONG_MAX, Pattern, TomlTable, expected, parse_toml, read_toml_text


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


def read_retention_policies(path: Path) -> tuple[Policy, ...]:
    """Read the retention policies in a file: TOML, or the output of Kafka's own tools."""
    text = read_toml_text(path)
    if is_described(path, text):
        described = {
            topic: checked_config(path, topic, configs) for topic, configs in read_described(path, text).items()
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


def checked_config(where: object, topic: str, configs: Mapping[str, ConfigEntry]) -> TopicConfig:
    """Check described values as those of a policy file, and make a topic's configuration of them; others are not set.
    `where`, a file or a directory, is named in errors.
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
